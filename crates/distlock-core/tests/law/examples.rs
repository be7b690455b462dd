//! Who may enter, one named case at a time.

use std::time::{Duration, Instant};

use distlock_core::{
    Answer, Ask, Busy, CAPACITY_MAX, ClientId, Order, Push, ReentryId, ReleaseOutcome,
};
use distlock_core::{Renewal, Standing, Wait};

use super::walk::ORDERS;
use super::world::{World, claim, client, label, ms};

pub(crate) fn mutex(number: u64) -> Ask {
    sized(number, 1, 1)
}

/// An ask that waits; its place lives for 40 ms and its lease for 100 ms.
pub(crate) fn sized(number: u64, weight: u32, capacity: u32) -> Ask {
    let mut ask = Ask::new(claim(number), label(&format!("owner {number}")), ms(100));
    (ask.weight, ask.capacity) = (weight, capacity);
    ask.wait = Some(Wait { place: ms(40), waiters_max: 1_000_000 });
    ask
}

pub(crate) fn reader(number: u64) -> Ask {
    sized(number, 1, CAPACITY_MAX)
}

pub(crate) fn writer(number: u64) -> Ask {
    sized(number, CAPACITY_MAX, CAPACITY_MAX)
}

/// A mutex of one and the same thread of work, whatever its number.
pub(crate) fn inside(number: u64) -> Ask {
    Ask { reentry: Some(ReentryId::from_bytes([7; 16])), ..mutex(number) }
}

pub(crate) fn one_shot(mut ask: Ask) -> Ask {
    ask.wait = None;
    ask
}

pub(crate) fn granted(answer: &Answer) -> u64 {
    match answer {
        Answer::Granted { fence } => *fence,
        other => panic!("not granted but {other:?}"),
    }
}

pub(crate) fn busy(answer: Answer) -> Busy {
    match answer {
        Answer::Busy(busy) => busy,
        other => panic!("not busy but {other:?}"),
    }
}

const ME: ClientId = ClientId::from_bytes([1; 16]);

#[test]
fn a_claim_enters_beside_those_it_fits_with() {
    // What holds, what asks, and whether it may enter: pairs of weight and capacity.
    type Size = (u32, u32);
    let cases: [(&[Size], Size, bool); 12] = [
        (&[], (1, 1), true),
        (&[(1, 1)], (1, 1), false),
        (&[(1, 1)], (1, 5), false),
        (&[(1, 1)], (1, CAPACITY_MAX), false),
        (&[(5, 5)], (1, CAPACITY_MAX), false),
        (&[(1, 5)], (1, 1), false),
        (&[(1, 5)], (5, 5), false),
        (&[(2, 5), (1, 5)], (2, 5), true),
        (&[(2, 5), (1, 5)], (3, 5), false),
        (&[(3, 5)], (1, 3), false),
        (&[(1, 3), (1, 3)], (1, 5), true),
        (&[(1, CAPACITY_MAX), (1, CAPACITY_MAX)], (CAPACITY_MAX - 1, CAPACITY_MAX), false),
    ];
    for (held, (weight, capacity), enters) in cases {
        let mut world = World::new();
        for (number, (weight, capacity)) in (1..).zip(held) {
            granted(&world.acquire(&sized(number, *weight, *capacity), ME).0);
        }
        let (answer, _) = world.acquire(&one_shot(sized(99, weight, capacity)), ME);
        let entered = matches!(answer, Answer::Granted { .. });
        assert_eq!(entered, enters, "{weight} of {capacity} beside {held:?}");
    }
}

#[test]
fn each_order_serves_the_same_queue_its_own_way() {
    let cases = [
        (Order::Fifo, ["r2", "w3", "r4 r5", "w6"].as_slice()),
        (Order::PreferWriters, &["w3", "w6", "r2 r4 r5"]),
        (Order::PreferReaders, &["r2 r4 r5", "w3", "w6"]),
    ];
    for (order, rounds) in cases {
        let mut world = World::new();
        let mut asks = [writer(1), reader(2), writer(3), reader(4), reader(5), writer(6)];
        for ask in &mut asks {
            ask.order = order;
            world.acquire(ask, ME);
        }
        let mut leaving = vec![1];
        for round in rounds {
            let mut entered = Vec::new();
            for number in leaving {
                let (outcome, notices) = world.give_up(&asks[number as usize - 1]);
                assert_eq!(outcome, ReleaseOutcome::WasHeld);
                entered.extend(notices.iter().filter_map(|notice| match notice.push {
                    Push::Granted { id, .. } => (1..7).find(|n| claim(*n).id == id),
                    _ => None,
                }));
            }
            let kind = |number: &u64| if [2, 4, 5].contains(number) { "r" } else { "w" };
            let names: Vec<_> = entered.iter().map(|n| format!("{}{n}", kind(n))).collect();
            assert_eq!(names.join(" "), *round, "in the order {order}");
            leaving = entered;
        }
    }
}

#[test]
fn a_newcomer_is_told_how_many_the_order_puts_ahead() {
    // Behind one holder wait a reader, a writer and a reader.
    let cases = [(Order::Fifo, 3, 3), (Order::PreferWriters, 3, 1), (Order::PreferReaders, 2, 3)];
    for (order, reader_behind, writer_behind) in cases {
        let mut world = World::new();
        for mut ask in [writer(1), reader(2), writer(3), reader(4)] {
            ask.order = order;
            world.acquire(&ask, ME);
        }
        for (mut ask, ahead) in [(reader(9), reader_behind), (writer(9), writer_behind)] {
            ask.order = order;
            let refused = busy(world.acquire(&one_shot(ask), ME).0);
            assert_eq!((refused.ahead, refused.ticket), (ahead, None), "in the order {order}");
            assert_eq!(refused.retry_after, Some(ms(100)));
        }
    }
}

#[test]
fn sharers_that_differ_on_the_order_conflict_as_long_as_the_first_of_them_is_there() {
    let mut world = World::new();
    let one = Ask { order: Order::PreferWriters, ..reader(1) };
    let other = Ask { order: Order::PreferReaders, ..reader(2) };
    granted(&world.acquire(&one, ME).0);
    assert_eq!(world.acquire(&other, ME).0, Answer::Conflict);
    world.give_up(&one);
    granted(&world.acquire(&other, ME).0);
}

#[test]
fn a_mutex_has_no_opinion_on_the_order_of_sharers() {
    for order in ORDERS {
        let mut world = World::new();
        let sharer = Ask { order, ..reader(1) };
        granted(&world.acquire(&sharer, ME).0);
        assert_eq!(world.look().order, Some(order));
        busy(world.acquire(&mutex(2), ME).0);
        world.give_up(&sharer);
        granted(&world.acquire(&mutex(2), ME).0);
        assert_eq!(world.look().order, None);
        busy(world.acquire(&sharer, ME).0);
    }
}

#[test]
fn a_grant_to_a_waiter_never_outlasts_its_ttl() {
    let mut world = World::new();
    granted(&world.acquire(&mutex(1), ME).0);
    let mut waiter = mutex(2);
    (waiter.ttl, waiter.wait) = (ms(10), Some(Wait { place: ms(40), waiters_max: 9 }));
    busy(world.acquire(&waiter, ME).0);
    world.give_up(&mutex(1));
    let held = &world.look().holders[0];
    assert_eq!(held.expires_in, Some(ms(10)));
}

#[test]
fn a_full_queue_refuses_newcomers_but_not_those_inside_it() {
    let mut world = World::new();
    let mut asks = [mutex(1), mutex(2), mutex(3)];
    for ask in &mut asks {
        ask.wait = Some(Wait { place: ms(40), waiters_max: 1 });
    }
    granted(&world.acquire(&asks[0], ME).0);
    let ticket = busy(world.acquire(&asks[1], ME).0).ticket;
    assert_eq!(world.acquire(&asks[2], ME).0, Answer::Full);
    assert_eq!(busy(world.acquire(&asks[1], ME).0).ticket, ticket);
    assert_eq!(world.look().waiters_total, 1);
}

#[test]
fn a_thread_of_work_enters_past_the_queue_while_it_is_inside() {
    let mut world = World::new();
    let fence = granted(&world.acquire(&inside(1), ME).0);
    busy(world.acquire(&mutex(2), client(2)).0);
    assert_eq!(granted(&world.acquire(&inside(3), ME).0), fence);

    let (_, notices) = world.give_up(&inside(1));
    assert_eq!(notices, [], "the key is free only when the last of them has gone");
    let (_, notices) = world.give_up(&inside(3));
    assert!(matches!(notices[0].push, Push::Granted { id, .. } if id == claim(2).id));
}

#[test]
fn a_downgrade_lets_readers_in_and_keeps_the_fence() {
    let mut world = World::new();
    let fence = granted(&world.acquire(&writer(1), ME).0);
    busy(world.acquire(&reader(2), ME).0);
    let renewal = Renewal { weight: Some(1), ..Renewal::hold(claim(1), ms(100)) };
    let (standing, notices) = world.renew(renewal, ME);
    assert_eq!(standing, Standing::Held { fence });
    assert!(matches!(notices[0].push, Push::Granted { id, .. } if id == claim(2).id));
    assert_eq!(world.look().holders_total, 2);
}

/// Generous: what is quick takes some 50 ms, what scans the dead at every step takes minutes.
const QUICK: Duration = Duration::from_secs(10);

#[test]
fn twenty_thousand_dead_readers_or_waiters_do_not_hinder_the_next() {
    for order in ORDERS {
        for first in [reader(1), writer(1)] {
            let start = Instant::now();
            let mut world = World::new();
            granted(&world.acquire(&Ask { order, ..first.clone() }, ME).0);
            for number in 2..20_002 {
                // Behind a reader they hold, behind a writer they wait, each with its own client.
                let who = ClientId::from_bytes(u128::from(number).to_be_bytes());
                world.record.acquire(&Ask { order, ..reader(number) }, who, world.now);
            }
            let seen = world.look();
            assert_eq!(seen.holders_total + seen.waiters_total, 20_001);
            world.pass(ms(100));
            assert!(world.look().is_free());
            granted(&world.acquire(&Ask { order, ..writer(99_999) }, ME).0);
            assert_eq!(world.look().holders_total, 1);
            assert!(start.elapsed() < QUICK, "{order}: {:?}", start.elapsed());
        }
    }
}
