//! Guards and locks outlive runtimes, threads and panics.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use distlock::{Guard, Locks, ManualClock};
use distlock_testkit::{Scripted, ScriptedCall};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::support::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A clock that belongs to no runtime.
fn manual() -> (Scripted, Locks, ManualClock) {
    let (backend, clock) = (Scripted::new(), ManualClock::new());
    let locks = Locks::with_clock(Arc::new(backend.clone()), Arc::new(clock.clone()));
    (backend, locks, clock)
}

fn listened(backend: &Scripted) -> usize {
    backend.calls().iter().filter(|call| matches!(call, ScriptedCall::Pushes { .. })).count()
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_on_a_thread_without_a_runtime_is_released() {
    let (backend, locks, _) = manual();
    let guard = hold(&locks, "k").await;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    settle().await;
    assert_eq!(backend.count_releases(), 1);
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_by_the_destructor_of_a_thread_local_is_released() {
    let (backend, locks, _) = manual();
    let guard = hold(&locks, "k").await;
    let thread = std::thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(guard)));
    thread.join().unwrap();
    settle().await;
    assert_eq!(backend.count_releases(), 1);
}

#[test]
fn a_guard_dropped_by_a_thread_local_after_its_runtime_does_not_panic() {
    let (backend, locks, _) = manual();
    let thread = std::thread::spawn({
        let locks = locks.clone();
        move || {
            let guard = runtime().block_on(hold(&locks, "k"));
            KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
        }
    });
    thread.join().unwrap();
    assert_eq!((backend.count_releases(), locks.stats().releasing), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_by_a_panic_is_released() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("the work fails");
    }));
    settle().await;
    assert_eq!((unwound.is_err(), backend.count_releases()), (true, 1));
}

#[test]
fn a_guard_that_outlives_its_runtime_is_released_with_the_next_use() {
    for background in [true, false] {
        let (backend, locks, _) = manual();
        let first = runtime();
        let guard = first.block_on(hold(&locks, "k"));
        if background {
            first.shutdown_background();
        } else {
            drop(first);
        }
        assert_eq!(locks.stats().tasks, 0);
        drop(guard);
        assert_eq!((backend.count_releases(), locks.stats().releasing), (0, 1));
        runtime().block_on(async {
            let _other = hold(&locks, "other").await;
            settle().await;
            assert_eq!((backend.count_releases(), locks.stats().releasing), (1, 0));
        });
    }
}

#[test]
fn a_guard_dropped_in_another_runtime_is_released_there() {
    let (backend, locks, _) = manual();
    let first = runtime();
    let guard = first.block_on(hold(&locks, "k"));
    drop(first);
    runtime().block_on(async {
        drop(guard);
        settle().await;
        assert_eq!(backend.count_releases(), 1);
    });
}

#[test]
fn the_keeper_moves_on_when_its_runtime_has_ended() {
    let (backend, locks, clock) = manual();
    let first = runtime();
    let guard = first.block_on(hold(&locks, "a"));
    drop(first);
    runtime().block_on(async {
        let other = hold(&locks, "b").await;
        assert_eq!((listened(&backend), locks.stats().tasks), (2, 1));
        clock.advance(secs(10));
        tokio::time::sleep(ms(5)).await;
        assert_eq!(backend.renewals().len(), 2, "both are renewed from here");
        assert!(guard.is_held() && other.is_held());
    });
}

#[test]
fn the_keeper_moves_on_when_its_runtime_stands_still() {
    let (backend, locks, clock) = manual();
    let first = runtime();
    let guard = first.block_on(hold(&locks, "a"));
    clock.advance(secs(9));
    runtime().block_on(async {
        let other = hold(&locks, "b").await;
        assert_eq!(listened(&backend), 2);
        clock.advance(secs(1));
        tokio::time::sleep(ms(5)).await;
        assert_eq!(guard.remaining(), VALID);
        assert!(other.is_held());
    });
    first.block_on(settle());
    assert!(guard.is_held() && locks.stats().held == 1, "the old task ends quietly");
}

#[test]
fn a_wait_goes_on_when_the_keeper_has_moved() {
    let (backend, locks, clock) = manual();
    let first = runtime();
    let _guard = first.block_on(hold(&locks, "a"));
    clock.advance(secs(5));
    runtime().block_on(async {
        queue_up(&backend);
        let locking = start_lock(&locks).await;
        assert_eq!(listened(&backend), 2);
        first.shutdown_background();
        push(&backend, 7, 42);
        let guard = timeout(secs(5), locking).await.unwrap().unwrap().unwrap();
        assert_eq!(guard.fence(), 42);
    });
}

#[test]
fn a_watched_guard_hears_of_its_loss_though_the_runtime_of_the_keeper_has_ended() {
    let (_backend, locks, clock) = manual();
    let first = runtime();
    drop(first.block_on(hold(&locks, "first")));
    runtime().block_on(async {
        let guard = Arc::new(hold(&locks, "k").await);
        let watched = Arc::clone(&guard);
        let losing = tokio::spawn(async move { watched.lost().await });
        settle().await;
        first.shutdown_background();
        clock.advance(secs(60));
        let told = timeout(secs(60), losing).await;
        assert!(told.is_ok(), "no watcher was told, and held is {}", guard.is_held());
    });
}

#[test]
fn a_guard_stays_held_though_the_runtime_of_the_keeper_has_ended() {
    let (backend, locks, clock) = manual();
    let first = runtime();
    drop(first.block_on(hold(&locks, "first")));
    runtime().block_on(async {
        let guard = hold(&locks, "k").await;
        let watching = guard.watch();
        tokio::spawn(async move { watching.ended().await });
        first.shutdown_background();
        settle().await;
        for _ in 0..12 {
            clock.advance(secs(5));
            tokio::time::sleep(ms(5)).await;
        }
        assert!(guard.is_held(), "never renewed: {} renewals", backend.count_renews());
    });
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_does_not_stop_the_renewals() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    locks.on_event(|event| {
        assert!(!matches!(event, distlock::Event::Renewed { .. }), "a bug in a callback");
    });
    tokio::time::sleep(secs(60)).await;
    assert!(guard.is_held(), "{} renewals, {} tasks", backend.count_renews(), locks.stats().tasks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_on_many_threads_leaves_nothing() {
    let (backend, locks, _) = manual();
    let mut storm = tokio::task::JoinSet::new();
    for n in 0..200 {
        let mutex = locks.mutex(format!("k/{n}")).unwrap();
        storm.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            if n % 2 == 0 {
                drop(guard);
            } else {
                assert_eq!(guard.release().await.unwrap(), distlock::HoldEnd::Released);
            }
        });
    }
    storm.join_all().await;
    locks.close().await.unwrap();
    assert_eq!((backend.count_releases(), locks.stats().held), (200, 0));
}
