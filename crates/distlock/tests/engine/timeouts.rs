//! A wait that ran out has given up its place when it returns, within a bound.

use distlock::Error;
use distlock_core::ReleaseOutcome;
use distlock_testkit::ScriptedReply;
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_timeout_returns_when_the_place_is_given_up() {
    let (backend, locks) = stage();
    queue_up(&backend);
    backend.always_release(ScriptedReply::from(ReleaseOutcome::WasWaiting).after(ms(20)));
    let began = Instant::now();
    let late = locks.mutex("k").unwrap().try_lock_for(secs(2)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    assert_eq!((began.elapsed(), backend.count_releases()), (ms(2_020), 1));
    assert_eq!(locks.stats().releasing, 0);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_waits_no_longer_than_a_tenth_of_a_second_for_a_slow_store() {
    let (backend, locks) = stage();
    queue_up(&backend);
    backend.always_release(ScriptedReply::never());
    let began = Instant::now();
    let late = locks.mutex("k").unwrap().try_lock_for(secs(2)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    assert_eq!((began.elapsed(), locks.stats().releasing), (ms(2_100), 1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_has_nothing_to_give_up_returns_at_once() {
    let (backend, locks) = polling(distlock::Backoff::fixed(ms(100)));
    backend.always_acquire(refused(None));
    backend.always_release(ScriptedReply::never());
    let began = Instant::now();
    let late = locks.mutex("k").unwrap().try_lock_for(ms(250)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    assert_eq!((began.elapsed(), backend.count_releases()), (ms(250), 0));
}
