//! The end of all locks: everything is released, and that is waited for.

use std::time::Duration;

use distlock::{Error, HoldEnd, LossReason};
use distlock_core::ReleaseOutcome;
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn closing_waits_until_every_release_is_acknowledged() {
    let (backend, locks) = stage();
    let (kept, dropped) = (hold(&locks, "a").await, hold(&locks, "b").await);
    backend.always_release(ScriptedReply::from(ReleaseOutcome::WasHeld).after(secs(2)));
    drop(dropped);
    let began = Instant::now();
    locks.close().await.unwrap();
    assert_eq!((began.elapsed(), backend.count_releases()), (secs(2), 2));
    assert_eq!(kept.watch().end(), Some(HoldEnd::Lost(LossReason::Closed)));
    assert!(kept.cancellation().is_cancelled());
    let stats = locks.stats();
    assert_eq!((stats.held, stats.waiting, stats.releasing), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_the_closing_releases_nothing_twice() {
    let (backend, locks) = stage();
    let (one, two) = (hold(&locks, "a").await, hold(&locks, "b").await);
    locks.close().await.unwrap();
    assert_eq!(backend.count_releases(), 2);
    drop(one);
    sleep(secs(60)).await;
    assert_eq!((backend.count_releases(), backend.count_renews()), (2, 0));
    assert_eq!(two.release().await.unwrap(), HoldEnd::Lost(LossReason::Closed));
}

#[tokio::test(start_paused = true)]
async fn closing_again_is_fine() {
    let (_backend, locks) = stage();
    let _guard = hold(&locks, "k").await;
    let began = Instant::now();
    for _ in 0..3 {
        locks.close().await.unwrap();
    }
    let clone = locks.clone();
    let (one, two) = tokio::join!(locks.close(), clone.close());
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn closing_unused_locks_sends_nothing() {
    let (backend, locks) = stage();
    locks.close().await.unwrap();
    assert_eq!(backend.count_releases() + backend.count_acquires(), 0);
    sleep(secs(5)).await;
    assert_eq!(locks.stats().tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn closing_before_a_dead_store_ends_in_doubt_after_five_seconds() {
    for hung in [true, false] {
        let (backend, locks) = stage();
        backend.always_release(if hung {
            ScriptedReply::never()
        } else {
            ScriptedReply::transient()
        });
        let _guard = hold(&locks, "k").await;
        let began = Instant::now();
        let uncertain = locks.close().await.unwrap_err();
        assert!(matches!(uncertain, Error::ReleaseUncertain { .. }), "{uncertain:?}");
        assert_eq!(began.elapsed(), secs(5));
    }
}

#[tokio::test(start_paused = true)]
async fn a_closing_that_was_dropped_goes_on_in_the_background() {
    let (backend, locks) = stage();
    backend.on_release(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    assert!(timeout(ms(1), locks.close()).await.is_err());
    sleep(secs(5)).await;
    assert_eq!((backend.count_releases(), guard.is_held()), (2, false));
    assert_eq!(locks.stats().tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_closing_leaves_the_one_under_way_alone() {
    let (backend, locks) = stage();
    backend.on_release(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    assert!(timeout(ms(1), locks.close()).await.is_err(), "the store is out of reach");
    backend.on_release(ScriptedReply::never());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Closed));
    sleep(secs(20)).await;
    assert_eq!(backend.count_releases(), 3, "neither of the first two was acknowledged");
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_closing_does_not_call_off_the_one_under_way() {
    for delay in [secs(0), secs(15)] {
        let (backend, locks) = stage_with(|o| o.lock_delay(delay));
        backend.on_release(ScriptedReply::transient());
        let guard = hold(&locks, "k").await;
        assert!(timeout(ms(1), locks.close()).await.is_err(), "the store is out of reach");
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Closed));
        sleep(secs(20)).await;
        assert_eq!(backend.count_releases(), 2, "lock delay {delay:?}: one was acknowledged");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_one_clone_closes_all() {
    let (_backend, locks) = stage();
    let other = locks.configure(|o| o.ttl(secs(5))).unwrap();
    let guard = hold(&other, "k").await;
    locks.close().await.unwrap();
    assert!(!guard.is_held());
    assert!(matches!(other.mutex("k").unwrap().try_lock().await, Err(Error::Closed)));
}
