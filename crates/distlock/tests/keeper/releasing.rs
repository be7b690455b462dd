//! Letting go: once, until it is acknowledged, and with the truth about it.

use std::time::Duration;

use distlock::{Error, HoldEnd, LossReason};
use distlock_core::{ReleaseOutcome, Standing};
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released_once_in_the_background() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let watch = guard.watch();
    drop(guard);
    assert_eq!((backend.count_releases(), watch.end()), (0, Some(HoldEnd::Released)));
    settle().await;
    assert_eq!(backend.count_releases(), 1);
    sleep(secs(300)).await;
    assert_eq!((backend.count_releases(), backend.count_renews()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_released_guard_sends_nothing_more() {
    let (backend, locks) = stage();
    assert_eq!(hold(&locks, "k").await.release().await.unwrap(), HoldEnd::Released);
    sleep(secs(300)).await;
    assert_eq!((backend.count_releases(), backend.count_renews()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_tells_that_the_hold_was_gone() {
    for outcome in [ReleaseOutcome::Gone, ReleaseOutcome::WasWaiting] {
        let (backend, locks) = stage();
        backend.on_release(outcome);
        let ended = hold(&locks, "k").await.release().await.unwrap();
        assert_eq!(ended, HoldEnd::Lost(LossReason::Gone), "{outcome:?}");
        assert_eq!(locks.stats().losses, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_watch_and_the_release_tell_the_same_end() {
    let (backend, locks) = stage();
    backend.on_release(ReleaseOutcome::Gone);
    let guard = hold(&locks, "k").await;
    let watch = guard.watch();
    let ended = guard.release().await.unwrap();
    assert_eq!(watch.end(), Some(ended));
}

#[tokio::test(start_paused = true)]
async fn a_release_after_failed_renewals_still_frees_the_key() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    sleep(secs(20)).await;
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    assert_eq!(backend.count_releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_guard_still_sends_its_release_and_says_lost() {
    for released in [true, false] {
        let (backend, locks) = stage();
        backend.always_renew(ScriptedReply::transient());
        let guard = hold(&locks, "k").await;
        assert_eq!(guard.lost().await, LossReason::Unreachable);
        if released {
            assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Unreachable));
        } else {
            drop(guard);
        }
        settle().await;
        assert_eq!(backend.count_releases(), 1, "released {released}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_time_is_over_is_not_released_but_lost() {
    let (_backend, locks) = stage_with(|o| o.max_hold(secs(3_600)));
    let guard = hold(&locks, "k").await;
    tokio::time::advance(secs(60)).await;
    let ended = guard.release().await.unwrap();
    assert!(matches!(ended, HoldEnd::Lost(_)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_uncertain_and_repeated_until_acknowledged() {
    for hung in [true, false] {
        let (backend, locks) = stage();
        for _ in 0..3 {
            backend.on_release(if hung {
                ScriptedReply::never()
            } else {
                ScriptedReply::transient()
            });
        }
        let guard = hold(&locks, "k").await;
        let watch = guard.watch();
        let began = Instant::now();
        let failed = guard.release().await.unwrap_err();
        assert!(matches!(failed, Error::ReleaseUncertain { .. }), "{failed:?}");
        assert_eq!(began.elapsed(), if hung { secs(5) } else { Duration::ZERO });
        assert!(!watch.is_held());
        sleep(secs(60)).await;
        assert_eq!((backend.count_releases(), backend.count_renews()), (4, 0), "hung {hung}");
        assert_eq!(locks.stats().releasing, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_given_up_when_the_lease_is_surely_over() {
    let (backend, locks) = stage();
    backend.always_release(ScriptedReply::transient());
    drop(hold(&locks, "k").await);
    sleep(secs(300)).await;
    let at: Vec<_> = backend.releases().into_iter().map(|(at, ..)| at).collect();
    assert!(at.last().unwrap() > &secs(60) && at.len() < 100, "{at:?}");
    assert_eq!((locks.stats().releasing, locks.stats().tasks), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_midway_is_finished_in_the_background() {
    let (backend, locks) = stage();
    backend.on_release(ScriptedReply::never());
    let guard = hold(&locks, "k").await;
    assert!(timeout(ms(100), guard.release()).await.is_err());
    settle().await;
    assert_eq!((backend.count_releases(), locks.stats().releasing), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_never_polled_is_a_drop() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    drop(guard.release());
    settle().await;
    assert_eq!(backend.count_releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_hold_found_gone_by_a_renewal_is_a_closing_one() {
    let (backend, locks) = stage();
    backend.on_renew(Standing::Gone);
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.lost().await, LossReason::Gone);
    backend.on_release(ReleaseOutcome::Gone);
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    sleep(secs(60)).await;
    assert_eq!((backend.count_releases(), locks.stats().losses), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_hung_release_of_one_guard_delays_no_other() {
    let (backend, locks) = stage();
    let (one, two) = (hold(&locks, "a").await, hold(&locks, "b").await);
    backend.on_release(ScriptedReply::never());
    drop(one);
    settle().await;
    let began = Instant::now();
    drop(two);
    settle().await;
    assert_eq!((backend.count_releases(), began.elapsed()), (2, Duration::ZERO));
}
