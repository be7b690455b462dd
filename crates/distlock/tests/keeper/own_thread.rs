//! No runtime of a caller is needed to keep what is held: on every store.

use std::thread;
use std::time::{Duration, Instant};

use distlock::{Locks, Mutex};
use distlock_testkit::servers::{RedisServer, TempFolder};
use tokio::runtime::{Builder, Runtime};

use crate::support::ms;

/// Longer than anything here takes on a busy machine, and shorter than the usual lease.
const SOON: Duration = Duration::from_secs(10);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn mutex(locks: &Locks, ttl: Duration) -> Mutex {
    locks.configure(|o| o.ttl(ttl)).unwrap().mutex("k").unwrap()
}

/// A lease that outlives every test here: a lock that comes free earlier was released.
fn long(locks: &Locks) -> Mutex {
    mutex(locks, Duration::from_secs(600))
}

fn a_blocked_runtime_keeps_its_lease(locks: &Locks) {
    let ttl = ms(600);
    runtime().block_on(async {
        let guard = mutex(locks, ttl).lock().await.unwrap();
        thread::sleep(3 * ttl);
        assert!(guard.is_held(), "lost: {:?}", guard.loss());
        guard.release().await.unwrap();
    });
}

fn a_dropped_runtime_releases_the_guards_inside_it(locks: &Locks) {
    let first = runtime();
    let guard = first.block_on(long(locks).lock()).unwrap();
    first.spawn(async move {
        std::future::pending::<()>().await;
        drop(guard);
    });
    drop(first);
    let _guard = runtime().block_on(long(locks).try_lock_for(SOON)).unwrap();
}

fn a_waiter_gets_the_lock_while_another_runtime_is_not_polled(locks: &Locks) {
    let idle = runtime();
    let guard = idle.block_on(long(locks).lock()).unwrap();
    let waiting = thread::spawn({
        let mutex = long(locks);
        move || {
            let guard = runtime().block_on(mutex.try_lock_for(SOON));
            (guard.map(drop), Instant::now())
        }
    });
    thread::sleep(ms(300));
    let dropped = Instant::now();
    drop(guard);
    let (got, at) = waiting.join().unwrap();
    got.unwrap();
    let late = at.duration_since(dropped);
    assert!(late < ms(900), "a place would have been looked at by a heartbeat: {late:?}");
    drop(idle);
}

fn a_guard_dropped_outside_any_runtime_is_released(locks: &Locks) {
    let second = runtime();
    for round in 0..5 {
        let guard = runtime().block_on(long(locks).lock()).unwrap();
        drop(guard);
        let got = second.block_on(long(locks).try_lock_for(SOON));
        assert!(got.is_ok(), "round {round}: {got:?}");
    }
}

fn runtimes_are_used_in_turn(locks: &Locks) {
    let runtimes = [runtime(), runtime()];
    let began = Instant::now();
    for turn in 0..20 {
        let runtime = &runtimes[turn % 2];
        runtime.block_on(async {
            let guard = long(locks).lock().await.unwrap();
            guard.release().await.unwrap();
        });
    }
    assert!(began.elapsed() < SOON, "20 turns took {:?}", began.elapsed());
}

fn a_watched_loss_is_told_while_the_runtime_that_locked_is_not_polled(locks: &Locks) {
    let (idle, other) = (runtime(), runtime());
    let guard = idle.block_on(long(locks).lock()).unwrap();
    let watch = guard.watch();
    let fence = guard.fence();
    other.block_on(async {
        locks.break_hold("k", fence).await.unwrap();
        tokio::time::timeout(SOON, watch.ended()).await.expect("the loss is told");
    });
}

macro_rules! on_every_store {
    ($($promise:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $promise() { super::$promise(&distlock::Locks::memory()); })+
        }
        mod sqlite {
            $(#[test] fn $promise() {
                let folder = super::TempFolder::new();
                let file = folder.path().join("locks.db");
                let url = format!("sqlite:{}", file.display());
                super::$promise(&distlock::Locks::connect(&url).unwrap());
            })+
        }
        mod redis {
            $(#[test] fn $promise() {
                let server = super::RedisServer::start();
                super::$promise(&distlock::Locks::connect(&server.url()).unwrap());
            })+
        }
    };
}

on_every_store!(
    a_blocked_runtime_keeps_its_lease,
    a_dropped_runtime_releases_the_guards_inside_it,
    a_waiter_gets_the_lock_while_another_runtime_is_not_polled,
    a_guard_dropped_outside_any_runtime_is_released,
    runtimes_are_used_in_turn,
);

#[test]
fn a_loss_is_told_while_the_runtime_that_locked_is_not_polled() {
    a_watched_loss_is_told_while_the_runtime_that_locked_is_not_polled(&Locks::memory());
}
