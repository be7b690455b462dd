//! How long it lasts and what is left: leases, places, fences, graves, one named case at a time.

use distlock_core::law::Record;
use distlock_core::{
    Answer, Ask, ClientId, Push, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target, Wait,
};

use super::examples::{busy, granted, inside, mutex, one_shot, reader, sized, writer};
use super::world::{World, claim, client, key, ms};

const ME: ClientId = ClientId::from_bytes([1; 16]);

#[test]
fn a_lease_ends_exactly_when_it_says() {
    let mut world = World::new();
    granted(&world.acquire(&mutex(1), ME).0);
    world.pass(ms(100) - std::time::Duration::from_micros(1));
    busy(world.acquire(&one_shot(mutex(2)), ME).0);
    world.pass(std::time::Duration::from_micros(1));
    granted(&world.acquire(&one_shot(mutex(2)), ME).0);
    assert_eq!(world.renew(Renewal::hold(claim(1), ms(100)), ME).0, Standing::Gone);
}

#[test]
fn a_grant_to_a_waiter_inherits_its_place() {
    let mut world = World::new();
    granted(&world.acquire(&mutex(1), ME).0);
    let ticket = busy(world.acquire(&mutex(2), client(2)).0).ticket.unwrap();
    world.pass(ms(10));
    let (_, notices) = world.give_up(&mutex(1));
    let Push::Granted { id, ticket: pushed, fence } = notices[0].push else {
        panic!("{notices:?}")
    };
    assert_eq!((id, pushed, notices[0].to), (claim(2).id, ticket, client(2)));
    assert_eq!(world.look().holders[0].expires_in, Some(ms(30)), "its place lived for 40 ms");

    let (standing, _) = world.renew(Renewal::hold(claim(2), ms(100)), client(2));
    assert_eq!(standing, Standing::Held { fence });
    assert_eq!(world.look().holders[0].expires_in, Some(ms(100)));
}

#[test]
fn a_heartbeat_covers_all_places_of_the_client() {
    let mut world = World::new();
    let long = Ask { ttl: ms(1_000), ..mutex(1) };
    granted(&world.acquire(&long, ME).0);
    let ticket = busy(world.acquire(&mutex(2), client(2)).0).ticket.unwrap();
    busy(world.acquire(&mutex(3), client(3)).0);
    busy(world.acquire(&mutex(4), client(2)).0);
    for _ in 0..5 {
        world.pass(ms(30));
        let beat = Renewal::place(claim(2), ms(40), ticket);
        assert!(matches!(world.renew(beat, client(2)).0, Standing::Waiting(_)));
    }
    let owners: Vec<_> = world.look().waiters.into_iter().map(|waiter| waiter.owner).collect();
    assert_eq!(owners, [mutex(2).owner, mutex(4).owner], "only the silent client is gone");
    world.pass(ms(40));
    assert_eq!(world.look().waiters_total, 0, "and then both go together");
}

#[test]
fn a_dead_waiter_in_front_delays_nobody() {
    let mut world = World::new();
    granted(&world.acquire(&Ask { ttl: ms(1_000), ..mutex(1) }, ME).0);
    busy(world.acquire(&mutex(2), client(2)).0);
    world.pass(ms(20));
    busy(world.acquire(&mutex(3), client(3)).0);
    world.pass(ms(20));
    let (_, notices) = world.give_up(&mutex(1));
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].to, client(3));
}

#[test]
fn a_shorter_renewal_or_repeat_leaves_the_lease_as_it_is() {
    let mut world = World::new();
    let fence = granted(&world.acquire(&mutex(1), ME).0);
    world.pass(ms(10));
    let (standing, _) = world.renew(Renewal::hold(claim(1), ms(1)), ME);
    assert_eq!(standing, Standing::Held { fence });
    assert_eq!(granted(&world.acquire(&Ask { ttl: ms(1), ..mutex(1) }, ME).0), fence);
    assert_eq!(world.look().holders[0].expires_in, Some(ms(90)));

    let mut world = World::new();
    granted(&world.acquire(&reader(1), ME).0);
    granted(&world.acquire(&Ask { ttl: ms(1), ..reader(2) }, ME).0);
    world.pass(ms(50));
    busy(world.acquire(&one_shot(writer(3)), ME).0);
}

#[test]
fn a_kept_key_stays_taken_and_can_be_neither_renewed_nor_asked_for_nor_released() {
    let mut world = World::new();
    granted(&world.acquire(&mutex(1), ME).0);
    let how = ReleaseOptions { keep: ms(20), ..ReleaseOptions::default() };
    assert_eq!(world.release(Target::Claim(claim(1)), how).0, ReleaseOutcome::WasHeld);
    assert_eq!(world.renew(Renewal::hold(claim(1), ms(100)), ME).0, Standing::Gone);
    assert_eq!(world.acquire(&mutex(1), ME).0, Answer::Dead);
    assert_eq!(world.give_up(&mutex(1)).0, ReleaseOutcome::Gone);
    assert_eq!(busy(world.acquire(&one_shot(mutex(2)), ME).0).retry_after, Some(ms(20)));
    world.pass(ms(20));
    granted(&world.acquire(&mutex(2), ME).0);
}

#[test]
fn a_buried_claim_is_dead_even_if_its_ask_comes_after_the_release() {
    let mut world = World::new();
    let how = ReleaseOptions { bury: ms(50), ..ReleaseOptions::default() };
    assert_eq!(world.release(Target::Claim(claim(1)), how).0, ReleaseOutcome::Gone);
    assert_eq!(world.acquire(&mutex(1), ME).0, Answer::Dead);
    assert!(world.look().is_free() && !world.record.is_idle());
    world.pass(ms(50));
    granted(&world.acquire(&mutex(2), ME).0);
    world.give_up(&mutex(2));
    assert!(world.record.is_idle());
}

#[test]
fn a_break_ends_the_hold_with_that_fence_and_no_other() {
    let mut world = World::new();
    let first = granted(&world.acquire(&sized(1, 1, 3), client(1)).0);
    granted(&world.acquire(&sized(2, 1, 3), client(2)).0);
    let broken = Target::Fence { key: key(), fence: first };
    let (outcome, notices) = world.release(broken.clone(), ReleaseOptions::default());
    assert_eq!(outcome, ReleaseOutcome::WasHeld);
    assert_eq!((notices[0].to, notices[0].push), (client(1), Push::Broken { id: claim(1).id }));
    assert_eq!(world.release(broken, ReleaseOptions::default()), (ReleaseOutcome::Gone, vec![]));
    assert_eq!(world.look().holders_total, 1);

    world.pass(ms(99));
    assert_eq!(world.acquire(&sized(1, 1, 3), client(1)).0, Answer::Dead, "for the rest of it");
}

#[test]
fn fences_grow_over_idleness_a_clock_set_back_and_lost_data() {
    let mut world = World::new();
    let first = granted(&world.acquire(&mutex(1), ME).0);
    world.give_up(&mutex(1));
    assert!(world.record.is_idle());
    world.record = Record::new(world.record.counter());
    world.now.seed = 5;
    let second = granted(&world.acquire(&mutex(2), ME).0);
    assert_eq!(second, first + 1, "the wall clock was set back");

    world.now.seed = first + 1_000_000;
    world.record = Record::new(0);
    let third = granted(&world.acquire(&mutex(3), ME).0);
    assert_eq!(third, first + 1_000_000, "all data was lost");
    world.give_up(&mutex(3));
    let floor = Some(third + 7);
    assert_eq!(granted(&world.acquire(&Ask { fence_floor: floor, ..mutex(4) }, ME).0), third + 7);
}

#[test]
fn a_second_burial_never_ends_before_the_first() {
    let mut world = World::new();
    let fence = granted(&world.acquire(&mutex(1), ME).0);
    world.release(Target::Fence { key: key(), fence }, ReleaseOptions::default());
    let shorter = ReleaseOptions { bury: ms(1), ..ReleaseOptions::default() };
    let (outcome, _) = world.release(Target::Claim(claim(1)), shorter);
    assert_eq!(outcome, ReleaseOutcome::Gone);
    world.pass(ms(99));
    assert_eq!(world.acquire(&mutex(1), ME).0, Answer::Dead, "for the rest of the broken lease");

    let longer = ReleaseOptions { bury: ms(50), ..ReleaseOptions::default() };
    world.release(Target::Claim(claim(1)), longer);
    world.pass(ms(49));
    assert_eq!(world.acquire(&mutex(1), ME).0, Answer::Dead, "a longer one counts");
    world.pass(ms(1));
    granted(&world.acquire(&mutex(1), ME).0);
}

#[test]
fn a_fence_raised_for_one_sibling_is_raised_for_all() {
    let mut world = World::new();
    for number in 1..=3 {
        granted(&world.acquire(&inside(number), ME).0);
    }
    let how = ReleaseOptions { keep: ms(50), ..ReleaseOptions::default() };
    world.release(Target::Claim(claim(3)), how);
    let fence = world.record.counter() + 50_000;
    let raised = Renewal { fence_floor: Some(fence), ..Renewal::hold(claim(2), ms(100)) };
    assert_eq!(world.renew(raised, ME).0, Standing::Held { fence });

    let (standing, _) = world.renew(Renewal::hold(claim(1), ms(100)), ME);
    assert_eq!(standing, Standing::Held { fence });
    assert_eq!(granted(&world.acquire(&inside(4), ME).0), fence, "also for those who come later");
    let (outcome, notices) =
        world.release(Target::Fence { key: key(), fence }, ReleaseOptions::default());
    assert_eq!((outcome, notices.len()), (ReleaseOutcome::WasHeld, 4), "one break ends them all");
    assert!(world.look().is_free(), "the kept one, too");
}

#[test]
fn only_a_mutex_is_reentrant() {
    assert!(inside(1).check().is_ok());
    // One that is downgraded to a share would let its thread back in beside readers.
    for (weight, capacity) in [(5, 5), (1, 5), (1, 2)] {
        let ask = Ask { weight, capacity, ..inside(1) };
        assert!(ask.check().is_err(), "{weight} of {capacity}");
        assert!(Ask { reentry: None, ..ask }.check().is_ok(), "{weight} of {capacity}");
    }
}

#[test]
fn a_kept_key_cannot_be_reentered() {
    let mut world = World::new();
    let fence = granted(&world.acquire(&inside(1), ME).0);
    granted(&world.acquire(&inside(2), ME).0);
    let how = ReleaseOptions { keep: ms(50), ..ReleaseOptions::default() };
    world.release(Target::Claim(claim(1)), how);
    let again = granted(&world.acquire(&inside(3), ME).0);
    assert_eq!(again, fence, "the thread is inside by its second claim");
    world.give_up(&inside(2));
    world.give_up(&inside(3));

    let long = Wait { place: ms(80), waiters_max: 9 };
    let refused = busy(world.acquire(&Ask { wait: Some(long), ..inside(4) }, ME).0);
    assert_eq!(refused.retry_after, Some(ms(50)));
    world.pass(ms(50));
    let (standing, notices) = world.renew(Renewal::hold(claim(4), ms(100)), ME);
    assert!(matches!(standing, Standing::Held { fence: new } if new > fence), "{standing:?}");
    assert_eq!(notices.len(), 1);
}

#[test]
fn a_place_that_moves_to_another_client_keeps_the_longer_life() {
    let beat = |span| Renewal::hold(claim(2), ms(span));
    // The life that the new client gives the place, and the life that it has then.
    for (given, lives) in [(1, 40), (70, 70)] {
        let mut world = World::new();
        granted(&world.acquire(&mutex(1), ME).0);
        let ticket = busy(world.acquire(&mutex(2), ME).0).ticket;
        world.renew(beat(given), client(2));
        world.pass(ms(lives - 1));
        assert_eq!(world.look().waiters_total, 1, "renewed for {given} ms");
        world.pass(ms(1));
        assert_eq!(world.look().waiters_total, 0, "renewed for {given} ms");

        let mut world = World::new();
        granted(&world.acquire(&mutex(1), ME).0);
        assert_eq!(busy(world.acquire(&mutex(2), ME).0).ticket, ticket);
        let wait = Some(Wait { place: ms(given), waiters_max: 9 });
        let asked = busy(world.acquire(&Ask { wait, ..mutex(2) }, client(2)).0);
        assert_eq!(asked.ticket, ticket);
        world.pass(ms(lives - 1));
        assert!(matches!(world.renew(beat(1), client(2)).0, Standing::Waiting(_)));
        world.pass(ms(1));
        assert_eq!(world.renew(beat(1), client(2)).0, Standing::Gone, "asked for {given} ms");
    }
}
