//! Random histories in which the law and the oracle must give the same answer to everything.

use distlock_core::{Answer, Holder, Order};

use super::oracle::Oracle;
use super::rng::{HISTORY_STEPS, Told, seeds};
use super::walk::Walk;
use super::world::{Op, Reply, World};

#[test]
fn the_law_answers_like_the_oracle_in_fifo_order() {
    compare("fifo", Order::Fifo);
}

#[test]
fn the_law_answers_like_the_oracle_when_writers_go_first() {
    compare("writers", Order::PreferWriters);
}

#[test]
fn the_law_answers_like_the_oracle_when_readers_go_first() {
    compare("readers", Order::PreferReaders);
}

fn compare(name: &str, order: Order) {
    for seed in seeds(name, 1.0) {
        let _told = Told(format!("the history with seed {seed}, order {order}"));
        let (mut world, mut oracle) = (World::new(), Oracle::default());
        let mut walk = Walk::new(seed, order);
        for step in 0..HISTORY_STEPS {
            let op = walk.next(world.now.at);
            if walk.rng.one_in(50) {
                // The wall clock is set back. Leases do not care; fences must not.
                world.now.seed -= world.now.seed / 10;
            }
            one_step(&mut world, &mut oracle, &mut walk, &op, &format!("seed {seed} step {step}"));
        }
    }
}

fn one_step(world: &mut World, oracle: &mut Oracle, walk: &mut Walk, op: &Op, place: &str) {
    let (mut reply, notices) = world.apply(op);
    let now = world.now;
    let (expected, expected_notices) = oracle.apply(op, now);
    walk.hear(&reply, &notices);
    if let Reply::Answer(Answer::Busy(busy)) = &mut reply {
        // Leases may end together; then any of those holders is the one that ends last.
        let shown = busy.holder.take();
        let holders = oracle.holders(now.at);
        let last = |holder: &&Holder| holder.expires_in == holders[0].expires_in;
        let right = holders.iter().filter(last).any(|holder| Some(holder) == shown.as_ref());
        assert!(right, "{place}: {op:?} shows {shown:?}, who does not end last of {holders:?}");
    }
    assert_eq!(reply, expected, "{place}: {op:?} is answered wrongly, see {oracle:#?}");
    assert_eq!(notices, expected_notices, "{place}: {op:?} pushes wrongly, see {oracle:#?}");

    let seen = world.look();
    let (holders, waiters) = (oracle.holders(now.at), oracle.waiters(now.at));
    let totals = (holders.len() as u64, waiters.len() as u64);
    assert_eq!((seen.holders_total, seen.waiters_total), totals, "{place}: after {op:?}");
    assert_eq!(by_fence(seen.holders), by_fence(holders), "{place}: after {op:?}");
    assert_eq!(seen.waiters, waiters, "{place}: after {op:?}");
    let live = totals != (0, 0);
    assert_eq!(seen.order, oracle.order_at(now.at).filter(|_| live), "{place}: after {op:?}");
    assert_eq!(world.record.counter(), oracle.counter(), "{place}: after {op:?}");
    assert_eq!(world.record.is_idle(), oracle.is_idle(), "{place}: after {op:?}");
    if walk.rng.one_in(2) {
        world.forget_if_idle();
    }
}

/// Holders in a sequence that does not depend on who is shown first among equals.
fn by_fence(mut holders: Vec<Holder>) -> Vec<Holder> {
    assert!(holders.is_sorted_by_key(|holder| std::cmp::Reverse(holder.expires_in)));
    holders.sort_by_key(|holder| (holder.fence, holder.owner.clone()));
    holders
}
