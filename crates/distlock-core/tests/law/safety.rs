//! What must never happen, over random histories, seen through the eyes of the clients.

use distlock_core::{Answer, Order, Standing, Ticket};

use super::seen::{Grant, Scene, Seen, State, watch};
use super::walk::{Mix, ORDERS};
use super::world::{Op, Reply, World};

fn nothing(_: &mut World, _: &mut Seen) {}

#[test]
fn two_exclusive_holders_never_overlap() {
    let check = |scene: &Scene<'_>| {
        let held: Vec<_> = scene.after.held().collect();
        let Some(alone) = held.iter().find(|life| life.ask.is_exclusive()) else {
            return;
        };
        let sibling = |reentry| reentry == alone.ask.reentry && alone.ask.reentry.is_some();
        let right = held.len() == 1 || held.iter().all(|life| sibling(life.ask.reentry));
        assert!(right, "{:?} is not alone but beside {held:#?}", alone.ask.claim.id);
    };
    watch("two_exclusive_holders_never_overlap", &ORDERS, None, check, nothing);
}

#[test]
fn weights_held_never_exceed_a_claims_capacity() {
    let check = |scene: &Scene<'_>| {
        for grant in scene.grants.iter().filter(|grant| is_new(grant)) {
            let beside: u64 = grant.beside.iter().map(|life| u64::from(life.ask.weight)).sum();
            let (weight, capacity) = (grant.ask.weight, u64::from(grant.ask.capacity));
            assert!(beside + u64::from(weight) <= capacity, "{grant:#?} is too much");
            let closed = grant.beside.iter().any(|life| life.ask.is_exclusive());
            assert!(!closed, "{grant:#?} entered beside an exclusive holder");
        }
    };
    watch("weights_held_never_exceed_a_claims_capacity", &ORDERS, None, check, nothing);
}

/// A repeat is answered from what is held. Everything else has been let in just now.
fn is_new(grant: &Grant) -> bool {
    grant.fence_before != Some(grant.fence)
}

/// A client that enters with a fence of an earlier grant follows its own thread of work past the
/// queue.
fn is_first_inside(grant: &Grant) -> bool {
    grant.fence > grant.top_before
}

#[test]
fn readers_of_different_groups_never_hold_together() {
    let check = |scene: &Scene<'_>| {
        let mut held = scene.after.held();
        let Some(first) = held.next() else { return };
        for other in held.filter(|life| !life.ask.is_exclusive()) {
            let (one, two) = (&first.ask, &other.ask);
            assert_eq!(one.group, two.group, "{one:?} and {two:?} hold together");
        }
    };
    for mix in [Mix::Groups, Mix::Everything] {
        watch("readers_of_different_groups", &ORDERS, Some(mix), check, nothing);
    }
}

#[test]
fn waiters_are_granted_in_ticket_order() {
    let check = |scene: &Scene<'_>| {
        for grant in scene.grants.iter().filter(|grant| is_first_inside(grant)) {
            let Some(ticket) = grant.ticket else { continue };
            let passed = grant.waiting.iter().find(|(other, _)| *other < ticket);
            assert!(passed.is_none(), "{passed:?} was passed over by {grant:#?}");
        }
    };
    watch("waiters_are_granted_in_ticket_order", &[Order::Fifo], None, check, nothing);
}

#[test]
fn one_shot_asks_never_overtake_the_queue() {
    let check = |scene: &Scene<'_>| {
        let Op::Acquire(ask, _) = scene.op else {
            return;
        };
        let new = |grant: &&Grant| grant.ticket.is_none() && is_first_inside(grant);
        for grant in scene.grants.iter().filter(new) {
            // Sharers decide on the order: those that wait, or the claim that asks.
            let sharer = grant.waiting.iter().find(|(_, other)| !other.is_exclusive());
            let order = sharer.map_or(ask.order, |(_, sharer)| sharer.order);
            let ahead = grant.waiting.iter().find(|(_, other)| {
                let kinds = (ask.is_exclusive(), other.is_exclusive());
                match order {
                    Order::PreferWriters => kinds != (true, false),
                    Order::PreferReaders => kinds != (false, true),
                    _ => true,
                }
            });
            assert!(ahead.is_none(), "{ahead:?} was overtaken by {grant:#?}");
        }
    };
    watch("one_shot_asks_never_overtake_the_queue", &ORDERS, None, check, nothing);
}

#[test]
fn writers_go_first_under_prefer_writers() {
    let check = |scene: &Scene<'_>| {
        let shared = |grant: &&Grant| is_new(grant) && !grant.ask.is_exclusive();
        for grant in scene.grants.iter().filter(shared) {
            let writer = grant.waiting.iter().find(|(_, other)| other.is_exclusive());
            assert!(writer.is_none(), "the writer {writer:?} waits while {grant:#?} enters");
        }
        let exclusive = |grant: &&Grant| is_first_inside(grant) && grant.ask.is_exclusive();
        for grant in scene.grants.iter().filter(exclusive) {
            let earlier = |other: Ticket| grant.ticket.is_some_and(|ticket| other < ticket);
            let mut writers = grant.waiting.iter().filter(|(_, other)| other.is_exclusive());
            assert!(!writers.any(|(ticket, _)| earlier(*ticket)), "{grant:#?} passed a writer");
        }
    };
    for mix in [Mix::ReadersWriters, Mix::Everything] {
        watch("writers_go_first", &[Order::PreferWriters], Some(mix), check, nothing);
    }
}

#[test]
fn readers_enter_whenever_no_writer_holds_under_prefer_readers() {
    let check = |scene: &Scene<'_>| {
        if let (Op::Acquire(ask, _), Reply::Answer(Answer::Busy(busy))) = (scene.op, scene.reply)
            && !ask.is_exclusive()
        {
            let writer = busy.holder.as_ref().is_some_and(|holder| holder.exclusive);
            assert!(writer, "a reader is refused because of {:?}", busy.holder);
        }
        if !matches!(scene.op, Op::Pass(_)) {
            let seen = scene.world.look();
            let reader = seen.waiters.iter().find(|waiter| !waiter.exclusive);
            let writer = seen.holders.iter().any(|holder| holder.exclusive);
            assert!(reader.is_none() || writer, "{reader:?} waits, and yet no writer holds");
        }
    };
    let (orders, mix) = ([Order::PreferReaders], Some(Mix::ReadersWriters));
    watch("readers_enter_whenever_no_writer_holds", &orders, mix, check, nothing);
}

#[test]
fn fences_grow() {
    let check = |scene: &Scene<'_>| {
        for grant in scene.grants {
            let inside = |fence: u64| {
                let reentry = grant.ask.reentry;
                let known = scene.after.lives.values().map(|life| (&life.ask, life.fence));
                // Those let in together may see their fence raised in the same step.
                let told = scene.grants.iter().map(|other| (&other.ask, Some(other.fence)));
                reentry.is_some()
                    && known.chain(told).any(|(ask, theirs)| {
                        let sibling = ask.claim.id != grant.ask.claim.id;
                        sibling && ask.reentry == reentry && theirs == Some(fence)
                    })
            };
            let same = grant.fence_before == Some(grant.fence);
            let grown = grant.fence > grant.top_before;
            assert!(same || grown || inside(grant.fence), "{grant:#?} goes back");
        }
        if let (Op::Renew(renewal, _), Reply::Standing(Standing::Held { fence })) =
            (scene.op, scene.reply)
            && let Some(before) = scene.before.lives[&renewal.claim.id].fence
            && let State::Held { .. } = scene.before.lives[&renewal.claim.id].state
        {
            let wanted = before.max(renewal.fence_floor.unwrap_or(0));
            assert_eq!(*fence, wanted, "{renewal:?} has another fence");
        }
    };
    watch("fences_grow", &ORDERS, None, check, nothing);
}

#[test]
fn a_dead_claim_never_holds_again() {
    let check = |scene: &Scene<'_>| {
        for grant in scene.grants {
            let dead = scene.before.dead.get(&grant.ask.claim.id);
            let past = dead.is_none_or(|until| *until <= scene.world.now.at);
            assert!(past, "{grant:#?} was buried until {dead:?}");
        }
        let Some(id) = (match scene.op {
            Op::Acquire(ask, _) => Some(ask.claim.id),
            Op::Renew(renewal, _) => Some(renewal.claim.id),
            _ => None,
        }) else {
            return;
        };
        if scene.after.dead.contains_key(&id) {
            let refused = [Reply::Answer(Answer::Dead), Reply::Standing(Standing::Gone)];
            assert!(refused.contains(scene.reply), "{:?} to a dead claim", scene.reply);
        }
    };
    watch("a_dead_claim_never_holds_again", &ORDERS, None, check, nothing);
}
