//! Claims whose ids their callers chose: each call is an attempt, and cleans up after itself only.

use std::time::Duration;

use distlock_core::law::Attempts;
use distlock_core::{
    Answer, Ask, AttemptId, Busy, ClientId, ReleaseOptions, ReleaseOutcome, Target, Wait,
};

use super::world::{World, claim, client, label, ms};

const ME: ClientId = ClientId::from_bytes([1; 16]);

fn id(attempt: u8) -> AttemptId {
    AttemptId::from_bytes([attempt; 16])
}

fn ask(number: u64, attempt: u8) -> Ask {
    let mut ask = Ask::new(claim(number), label("me"), ms(1_000));
    ask.attempt = Some(id(attempt));
    ask.wait = Some(Wait { place: ms(500), waiters_max: 10 });
    ask
}

fn clean_up(world: &mut World, number: u64, attempt: u8, how: ReleaseOptions) -> ReleaseOutcome {
    world.release(Target::Attempt { claim: claim(number), attempt: id(attempt) }, how).0
}

fn is_granted(answer: &Answer) -> bool {
    matches!(answer, Answer::Granted { .. })
}

const PLAIN: ReleaseOptions = ReleaseOptions { keep: Duration::ZERO, bury: Duration::ZERO };
const BURY: ReleaseOptions =
    ReleaseOptions { keep: Duration::ZERO, bury: Duration::from_millis(50) };

#[test]
fn a_clean_up_gives_up_its_own_attempt_only() {
    let mut world = World::new();
    assert!(is_granted(&world.acquire(&ask(1, 1), ME).0));
    assert!(is_granted(&world.acquire(&ask(1, 2), ME).0));
    assert_eq!(clean_up(&mut world, 1, 1, BURY), ReleaseOutcome::Gone);
    assert_eq!(clean_up(&mut world, 1, 1, BURY), ReleaseOutcome::Gone, "once is enough");
    assert_eq!(world.look().holders_total, 1);
    assert_eq!(
        clean_up(&mut world, 1, 2, PLAIN),
        ReleaseOutcome::WasHeld,
        "the last takes the claim"
    );
    assert!(world.look().is_free());
}

#[test]
fn a_dead_attempt_is_never_granted_and_another_of_the_same_claim_is() {
    let mut world = World::new();
    assert_eq!(clean_up(&mut world, 1, 1, BURY), ReleaseOutcome::Gone);
    assert_eq!(world.acquire(&ask(1, 1), ME).0, Answer::Dead);
    assert!(is_granted(&world.acquire(&ask(1, 2), ME).0));
    assert_eq!(world.acquire(&ask(1, 1), ME).0, Answer::Dead, "also while another holds");
    world.pass(ms(50));
    assert!(is_granted(&world.acquire(&ask(1, 1), ME).0));
}

#[test]
fn attempts_move_with_the_place_to_the_hold() {
    let mut world = World::new();
    assert!(is_granted(&world.acquire(&ask(1, 1), ME).0));
    for attempt in [1, 2] {
        let waits = world.acquire(&ask(2, attempt), client(2)).0;
        assert!(matches!(waits, Answer::Busy(Busy { ticket: Some(_), .. })));
    }
    assert_eq!(clean_up(&mut world, 2, 1, PLAIN), ReleaseOutcome::Gone);
    assert_eq!(world.look().waiters_total, 1);
    assert_eq!(clean_up(&mut world, 1, 1, PLAIN), ReleaseOutcome::WasHeld);
    assert_eq!((world.look().holders_total, world.look().waiters_total), (1, 0));
    assert_eq!(clean_up(&mut world, 2, 1, PLAIN), ReleaseOutcome::Gone);
    assert_eq!(clean_up(&mut world, 2, 2, PLAIN), ReleaseOutcome::WasHeld);
}

#[test]
fn the_last_attempt_takes_the_place_and_lets_the_next_in() {
    let mut world = World::new();
    assert!(is_granted(&world.acquire(&ask(1, 1), ME).0));
    world.acquire(&ask(2, 1), client(2));
    assert_eq!(clean_up(&mut world, 2, 2, PLAIN), ReleaseOutcome::Gone, "it never asked");
    assert_eq!(clean_up(&mut world, 2, 1, PLAIN), ReleaseOutcome::WasWaiting);
    assert_eq!(world.look().waiters_total, 0);
}

#[test]
fn a_claim_without_attempts_is_given_up_by_none() {
    let mut world = World::new();
    let plain = Ask { attempt: None, ..ask(1, 1) };
    assert!(is_granted(&world.acquire(&plain, ME).0));
    assert!(is_granted(&world.acquire(&ask(1, 1), ME).0));
    assert_eq!(clean_up(&mut world, 1, 1, BURY), ReleaseOutcome::Gone);
    assert_eq!(world.look().holders_total, 1);
    assert_eq!(world.give_up(&plain).0, ReleaseOutcome::WasHeld);
}

#[test]
fn a_claim_with_more_attempts_than_are_kept_is_given_up_by_none() {
    let most = u8::try_from(Attempts::MAX).unwrap();
    for waits in [false, true] {
        let mut world = World::new();
        if waits {
            assert!(is_granted(&world.acquire(&ask(2, 1), client(2)).0));
        }
        for attempt in 1..=most + 1 {
            assert_eq!(is_granted(&world.acquire(&ask(1, attempt), ME).0), !waits);
        }
        // The last call has the answer; the clean-ups of all earlier ones arrive after it.
        for attempt in 1..=most {
            assert_eq!(clean_up(&mut world, 1, attempt, PLAIN), ReleaseOutcome::Gone);
        }
        let seen = world.look();
        assert_eq!((seen.holders_total, seen.waiters_total), (1, u64::from(waits)));
        assert_eq!(
            clean_up(&mut world, 1, most + 1, PLAIN),
            ReleaseOutcome::Gone,
            "it ends by itself"
        );
        let released = if waits { ReleaseOutcome::WasWaiting } else { ReleaseOutcome::WasHeld };
        assert_eq!(world.give_up(&ask(1, 1)).0, released, "or by its id");
    }
}
