//! Answers that take as long as a lease: no guard is ever born dead.

use distlock::{Error, LossReason};
use distlock_core::{Answer, Target};
use distlock_testkit::ScriptedReply;
use tokio::time::Instant;

use crate::support::*;

fn grant_after(ttl_percent: u32) -> ScriptedReply<distlock_core::Ask, Answer> {
    ScriptedReply::from(Answer::Granted { fence: 5 }).after(TTL * ttl_percent / 100)
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_before_the_send() {
    for percent in [0, 10, 40, 90, 98] {
        let (backend, locks) = stage();
        backend.on_acquire(grant_after(percent));
        let guard = hold(&locks, "k").await;
        assert_eq!(guard.remaining(), VALID - TTL * percent / 100, "{percent} %");
        assert_eq!(guard.waited(), TTL * percent / 100);
        settle().await;
        assert!(guard.is_held(), "{percent} %");
    }
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_send_of_the_attempt_that_was_granted() {
    let (backend, locks) = stage();
    backend.on_acquire(unreachable().after(secs(20)));
    backend.on_acquire(ScriptedReply::from(Answer::Granted { fence: 5 }).after(secs(2)));
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.remaining(), VALID - secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_took_longer_than_its_ttl_is_released_and_asked_for_again() {
    let (backend, locks) = stage();
    backend.on_acquire(grant_after(110));
    let guard = hold(&locks, "k").await;
    settle().await;
    let asked = backend.acquires();
    assert_eq!((asked.len(), guard.remaining()), (2, VALID));
    assert_ne!(asked[0].1.claim.id, asked[1].1.claim.id, "the first one is being released");
    let released: Vec<_> = backend.releases().into_iter().map(|(_, target, _)| target).collect();
    assert_eq!(released, [Target::Claim(asked[0].1.claim.clone())]);
}

#[tokio::test(start_paused = true)]
async fn a_network_slower_than_the_ttl_is_told_as_such_and_leaves_nothing() {
    for (percent, attempts) in [(99, 3), (110, 3), (1_000, 3)] {
        let (backend, locks) = stage();
        backend.always_acquire(grant_after(percent));
        let failed = locks.mutex("k").unwrap().lock().await.unwrap_err();
        let slow = matches!(failed, Error::Lost { reason: LossReason::TooSlow, .. });
        assert!(slow, "{percent} %: {failed:?}");
        settle().await;
        assert_eq!((backend.count_acquires(), backend.count_releases()), (attempts, attempts));
        assert_eq!((locks.stats().grants, locks.stats().held), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_call_does_not_repeat_a_grant_that_came_too_late() {
    let (backend, locks) = stage();
    backend.always_acquire(grant_after(110));
    let failed = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(failed, Error::Lost { reason: LossReason::TooSlow, .. }), "{failed:?}");
    settle().await;
    let how: Vec<_> = backend.releases().into_iter().map(|(_, _, how)| how).collect();
    assert_eq!((backend.count_acquires(), how.len()), (1, 1));
    assert!(how[0].bury.is_zero(), "every ask was answered: {how:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_wait_for_slow_grants() {
    let (backend, locks) = stage();
    backend.always_acquire(grant_after(110));
    let began = Instant::now();
    let late = locks.mutex("k").unwrap().try_lock_for(secs(40)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
    settle().await;
    assert_eq!((began.elapsed(), backend.count_releases()), (secs(40), 2));
}
