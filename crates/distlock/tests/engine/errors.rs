//! Every other end of a call, each by its name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use distlock::{Backoff, Capabilities, Error, Locks, ManualClock, Order, WaitMode};
use distlock_core::Answer;
use distlock_testkit::{Scripted, ScriptedReply};
use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn answers_that_are_final_have_errors_of_their_own() {
    let (backend, locks) = stage();
    let mutex = locks.mutex("k").unwrap();
    backend.always_acquire(Answer::Conflict);
    let conflict = mutex.lock().await.unwrap_err();
    assert!(matches!(conflict, Error::Conflict { .. }) && !conflict.is_transient());
    backend.always_acquire(Answer::Full);
    let full = mutex.lock().await.unwrap_err();
    assert!(matches!(full, Error::TooManyWaiters { .. }) && full.is_transient());
    assert_eq!(backend.count_acquires(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dead_id_is_exchanged_for_another() {
    let (backend, locks) = stage();
    backend.on_acquire(Answer::Dead);
    let guard = hold(&locks, "k").await;
    let asked = backend.acquires();
    assert_eq!((asked.len(), guard.attempts()), (2, 2));
    assert_ne!(asked[0].1.claim.id, asked[1].1.claim.id);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_cannot_do_is_refused_before_anything_is_sent() {
    let mut poor = Capabilities::ALL;
    (poor.sharing, poor.counting, poor.reentry) = (false, false, false);
    let (backend, locks) = stage();
    let _ = backend.clone().with_capabilities(poor);
    let refused = [
        locks.rwlock("k").unwrap().read().await.map(drop),
        locks.rwlock("k").unwrap().order(Order::Fifo).write().await.map(drop),
        locks.semaphore("k", 3).unwrap().acquire().await.map(drop),
        locks.reentrant("k").unwrap().owner().unwrap().lock().await.map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    settle().await;
    assert!(backend.calls().is_empty() && locks.stats().tasks == 0, "{:?}", backend.calls());
}

#[tokio::test(start_paused = true)]
async fn closed_locks_ask_nothing() {
    let (backend, locks) = stage();
    let mutex = locks.mutex("k").unwrap();
    let lease = hold(&locks, "k").await.into_lease();
    locks.close().await.unwrap();
    backend.forget_calls();
    assert!(matches!(mutex.lock().await, Err(Error::Closed)));
    assert!(matches!(mutex.try_lock().await, Err(Error::Closed)));
    assert!(matches!(mutex.try_lock_for(secs(1)).await, Err(Error::Closed)));
    assert!(matches!(locks.adopt(&lease).await, Err(Error::Closed)));
    assert!(backend.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_waiting_ends_when_the_locks_are_closed() {
    let minute = || WaitMode::Poll(Backoff::fixed(secs(60)));
    let table = [
        ("in the queue", WaitMode::Queue, ScriptedReply::from(queued(7))),
        ("between two polls", minute(), ScriptedReply::from(refused(None))),
        ("between two faults", WaitMode::Queue, unreachable()),
        ("while the store abstains", WaitMode::Queue, Answer::Quarantined(secs(60)).into()),
    ];
    for (what, way, reply) in table {
        let (backend, locks) = stage_with(|o| o.wait_mode(way));
        backend.always_acquire(reply);
        let locking = start_lock(&locks).await;
        let began = Instant::now();
        locks.close().await.unwrap();
        let closed = locking.await.unwrap();
        assert!(matches!(closed, Err(Error::Closed)), "{what}: {closed:?}");
        assert_eq!(began.elapsed(), ms(0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_hangs_ends_when_the_locks_are_closed() {
    let (backend, locks) = stage();
    backend.always_acquire(ScriptedReply::never());
    let locking = start_lock(&locks).await;
    let closing = locks.close().await;
    assert!(closing.is_ok(), "{closing:?}");
    let closed = timeout(secs(60), locking).await;
    assert!(matches!(closed, Ok(Ok(Err(Error::Closed)))), "{closed:?}");
    assert_eq!(backend.count_releases(), 1, "it may have been granted");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_closing_is_given_back() {
    let (backend, locks) = stage();
    let (gate, reply) = ScriptedReply::from(Answer::Granted { fence: 3 }).gated();
    backend.on_acquire(reply);
    let locking = start_lock(&locks).await;
    let closing = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close().await }
    });
    settle().await;
    gate.open();
    assert!(matches!(locking.await.unwrap(), Err(Error::Closed)));
    closing.await.unwrap().unwrap();
    assert_eq!((backend.count_releases(), locks.stats().held), (1, 0));
}

fn manual() -> (Scripted, Locks) {
    let backend = Scripted::new();
    let locks = Locks::with_clock(Arc::new(backend.clone()), Arc::new(ManualClock::new()));
    (backend, locks)
}

#[test]
fn outside_a_runtime_every_form_says_so_and_sends_nothing() {
    let (backend, locks) = manual();
    let mutex = locks.mutex("k").unwrap();
    let mut wrong = Vec::new();
    for form in ["lock", "try_lock", "try_lock_for", "close"] {
        let call = AssertUnwindSafe(|| match form {
            "lock" => mutex.lock().now_or_never().map(|result| result.map(drop)),
            "try_lock" => mutex.try_lock().now_or_never().map(|result| result.map(drop)),
            "close" => locks.close().now_or_never(),
            _ => mutex.try_lock_for(secs(1)).now_or_never().map(|result| result.map(drop)),
        });
        if !matches!(catch_unwind(call), Ok(Some(Err(Error::NoRuntime)))) {
            wrong.push(form);
        }
    }
    assert!(wrong.is_empty(), "these do not return NoRuntime: {wrong:?}");
    assert_eq!(backend.count_acquires(), 0);
}

#[test]
fn outside_a_runtime_nothing_panics_while_the_keeper_runs_in_another() {
    let mut panicked = Vec::new();
    for form in ["lock", "try_lock", "try_lock_for", "polled", "release", "adopt", "close"] {
        let (backend, locks) = manual();
        let poll = WaitMode::Poll(Backoff::fixed(ms(5)));
        let polled = locks.configure(|o| o.wait_mode(poll)).unwrap().mutex("p").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (guard, lease) = runtime
            .block_on(async { (hold(&locks, "a").await, hold(&locks, "b").await.into_lease()) });
        if form == "polled" {
            backend.on_acquire(refused(None));
        }
        let mutex = locks.mutex("k").unwrap();
        let call = AssertUnwindSafe(|| match form {
            "lock" => drop(mutex.lock().now_or_never()),
            "try_lock" => drop(mutex.try_lock().now_or_never()),
            "try_lock_for" => drop(mutex.try_lock_for(secs(1)).now_or_never()),
            "polled" => drop(polled.lock().now_or_never()),
            "release" => drop(guard.release().now_or_never()),
            "adopt" => drop(locks.adopt(&lease).now_or_never()),
            _ => drop(locks.close().now_or_never()),
        });
        if catch_unwind(call).is_err() {
            panicked.push(form);
        }
    }
    assert!(panicked.is_empty(), "these panic outside a runtime: {panicked:?}");
}
