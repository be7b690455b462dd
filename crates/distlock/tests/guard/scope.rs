//! `with`: the lock is released after success, panic and cancellation.

use std::panic::AssertUnwindSafe;

use distlock::{Error, LossReason};
use distlock_core::{ReleaseOutcome, Standing};
use distlock_testkit::ScriptedReply;
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_when_the_work_is_done() {
    let (backend, locks) = stage();
    let mutex = locks.mutex("k").unwrap();
    let fence = mutex.with(async |guard| guard.fence()).await.unwrap();
    assert_eq!((fence, backend.count_releases()), (1, 1));
    sleep(secs(60)).await;
    assert_eq!((backend.count_releases(), backend.count_renews()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_when_the_work_panics() {
    let (backend, locks) = stage();
    let mutex = locks.mutex("k").unwrap();
    let work = mutex.with(async |_| -> () { panic!("the work fails") });
    assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
    settle().await;
    assert_eq!(backend.count_releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_when_the_call_is_cancelled() {
    let (backend, locks) = stage();
    let mutex = locks.mutex("k").unwrap();
    let work = mutex.with(async |_| std::future::pending::<()>().await);
    assert!(timeout(secs(60), work).await.is_err());
    settle().await;
    assert_eq!((backend.count_releases(), locks.stats().held), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_when_the_call_is_cancelled_during_the_release() {
    let (backend, locks) = stage();
    backend.on_release(ScriptedReply::never());
    let mutex = locks.mutex("k").unwrap();
    assert!(timeout(secs(1), mutex.with(async |_| ())).await.is_err());
    settle().await;
    assert_eq!((backend.count_releases(), locks.stats().releasing), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_loss_during_the_work_is_told_and_the_work_dropped() {
    let (backend, locks) = stage();
    backend.on_renew(Standing::Gone);
    let mutex = locks.mutex("k").unwrap();
    let lost = mutex.with(async |_| sleep(secs(60)).await).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LossReason::Gone, .. }), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_found_by_the_release_is_told() {
    let (backend, locks) = stage();
    backend.on_release(ReleaseOutcome::Gone);
    let lost = locks.mutex("k").unwrap().with(async |_| 7).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LossReason::Gone, .. }), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn work_that_was_done_under_the_lock_counts_though_the_release_is_in_doubt() {
    let (backend, locks) = stage();
    backend.on_release(ScriptedReply::transient());
    assert_eq!(locks.mutex("k").unwrap().with(async |_| 7).await.unwrap(), 7);
    sleep(secs(5)).await;
    assert_eq!((backend.count_releases(), locks.stats().releasing), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn no_work_begins_without_the_lock() {
    let (backend, locks) = stage_with(|o| o.max_wait(secs(1)));
    queue_up(&backend);
    let mutex = locks.mutex("k").unwrap();
    let late = mutex.with(async |_| -> () { panic!("not under a lock") }).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
}
