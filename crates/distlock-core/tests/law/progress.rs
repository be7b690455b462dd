//! What must go on happening: no client is forgotten, cut short or left behind.

use distlock_core::{ReleaseOptions, ReleaseOutcome, Renewal, SNAPSHOT_MAX, Standing, Target};

use super::rng::{HISTORY_STEPS, Told, seeds};
use super::seen::{Scene, Seen, State, watch};
use super::walk::{LONG, ORDERS, Walk};
use super::world::{Op, Reply, World, claim, client, ms};

fn nothing(_: &mut World, _: &mut Seen) {}

fn unwatched(_: &Scene<'_>) {}

#[test]
fn no_waiter_is_stuck() {
    let check = |scene: &Scene<'_>| {
        let seen = scene.world.look();
        let stuck = seen.holders_total == 0 && seen.waiters_total > 0;
        assert!(matches!(scene.op, Op::Pass(_)) || !stuck, "{:?} left {seen:#?}", scene.op);
    };
    watch("no_waiter_is_stuck", &ORDERS, None, check, everybody_gets_in);
}

/// The waiters go on beating and every holder releases: then everybody is granted in the end.
fn everybody_gets_in(world: &mut World, seen: &mut Seen) {
    let hopeful: Vec<_> = seen.waiting().map(|(_, life)| life.clone()).collect();
    let mut granted = 0;
    for _ in 0..HISTORY_STEPS {
        let lives: Vec<_> = seen.waiting().map(|(_, life)| life.clone()).collect();
        for life in lives {
            let op = Op::Renew(Renewal::hold(life.ask.claim, LONG), life.client);
            granted += tell(world, seen, &op);
        }
        // Also those that were pushed later than their client could rely on.
        let held = seen.lives.values().filter(|life| matches!(life.state, State::Held { .. }));
        let claims: Vec<_> = held.map(|life| life.ask.claim.clone()).collect();
        for claim in claims {
            granted +=
                tell(world, seen, &Op::Release(Target::Claim(claim), ReleaseOptions::default()));
        }
        granted += tell(world, seen, &Op::Pass(ms(1)));
    }
    assert!(granted >= hopeful.len(), "{granted} grants for {hopeful:#?}");
    assert_eq!(seen.waiting().count(), 0, "a client waits for ever");
}

/// Does it and returns how many waiters it let in.
fn tell(world: &mut World, seen: &mut Seen, op: &Op) -> usize {
    let (reply, notices) = world.apply(op);
    let grants = seen.hear(op, &reply, &notices, world.now.at);
    grants.iter().filter(|grant| grant.ticket.is_some()).count()
}

#[test]
fn nothing_is_left_when_all_time_has_passed() {
    let all_time_passes = |world: &mut World, _: &mut Seen| {
        world.pass(LONG);
        let (standing, _) = world.renew(Renewal::hold(claim(1), LONG), client(1));
        assert_eq!(standing, Standing::Gone);
        assert!(world.record.is_idle(), "{:#?}", world.record);
    };
    watch("nothing_is_left, time", &ORDERS, None, unwatched, all_time_passes);
}

#[test]
fn nothing_is_left_when_all_is_released() {
    for seed in seeds("nothing_is_left, release", 0.25) {
        let order = ORDERS[(seed % 3) as usize];
        let _told = Told(format!("nothing_is_left, the history with seed {seed}, order {order}"));
        let (mut world, mut asked) = (World::new(), Vec::new());
        let mut walk = Walk::new(seed, order);
        for _ in 0..HISTORY_STEPS {
            match walk.next(world.now.at) {
                // A kept key and a grave are left because a client asked for them.
                Op::Release(Target::Claim(claim), _) => {
                    world.release(Target::Claim(claim), ReleaseOptions::default());
                }
                Op::Release(..) => {}
                Op::Acquire(ask, client) => {
                    world.acquire(&ask, client);
                    asked.push(ask);
                }
                op => {
                    world.apply(&op);
                }
            }
        }
        for ask in &asked {
            world.give_up(ask);
        }
        assert!(world.record.is_idle(), "{:#?}", world.record);
    }
}

#[test]
fn a_short_lease_never_shortens_a_long_one() {
    let check = |scene: &Scene<'_>| {
        let seen = scene.world.look();
        if seen.holders_total > SNAPSHOT_MAX as u64 {
            return;
        }
        for life in scene.after.held() {
            let State::Held { until, .. } = life.state else {
                continue;
            };
            let rest = until.since(scene.world.now.at);
            let mine = seen.holders.iter().find(|holder| holder.owner == life.ask.owner);
            let kept = mine.is_some_and(|holder| holder.expires_in >= Some(rest));
            assert!(kept, "{:?} cut {life:#?} short: {mine:?}", scene.op);
        }
    };
    watch("a_short_lease_never_shortens_a_long_one", &ORDERS, None, check, nothing);
}

#[test]
fn renew_never_creates_and_never_shortens() {
    let check = |scene: &Scene<'_>| {
        let (Op::Renew(renewal, _), Reply::Standing(standing)) = (scene.op, scene.reply) else {
            return;
        };
        let now = scene.world.now.at;
        match scene.before.lives.get(&renewal.claim.id).map(|life| life.state) {
            None | Some(State::Ended) => {
                assert_eq!(*standing, Standing::Gone, "{renewal:?} made a claim");
            }
            Some(State::Held { until, .. }) if until > now => {
                let held = matches!(standing, Standing::Held { .. });
                assert!(held, "{renewal:?} lost a hold until {until:?}: {standing:?}");
            }
            Some(State::Waiting { ticket, until }) if until > now => match standing {
                Standing::Held { .. } => {}
                Standing::Waiting(waiting) => assert_eq!(waiting.ticket, ticket),
                _ => panic!("{renewal:?} lost a place until {until:?}: {standing:?}"),
            },
            _ => {}
        }
    };
    watch("renew_never_creates_and_never_shortens", &ORDERS, None, check, nothing);
}

#[test]
fn a_release_happens_once() {
    let check = |scene: &Scene<'_>| {
        let (Op::Release(Target::Claim(claim), _), Reply::Outcome(outcome)) =
            (scene.op, scene.reply)
        else {
            return;
        };
        let now = scene.world.now.at;
        match scene.before.lives.get(&claim.id).map(|life| life.state) {
            None | Some(State::Ended) => assert_eq!(*outcome, ReleaseOutcome::Gone, "{claim:?}"),
            Some(State::Held { until, .. }) if until > now => {
                assert_eq!(*outcome, ReleaseOutcome::WasHeld, "{claim:?}");
            }
            Some(State::Waiting { until, .. }) if until > now => {
                assert_ne!(*outcome, ReleaseOutcome::Gone, "{claim:?}");
            }
            _ => {}
        }
    };
    watch("a_release_happens_once", &ORDERS, None, check, nothing);
}
