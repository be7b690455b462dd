//! No runtime of a caller is needed to keep what is held: on every store.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use distlock::backends::{Memory, Quorum, QuorumOptions};
use distlock::{Backend, Locks, Mutex};
use distlock_testkit::servers::{RedisServer, TempFolder};
use tokio::runtime::{Builder, Runtime};

use crate::support::ms;

/// Longer than anything here takes on a busy machine, and shorter than the usual lease.
const SOON: Duration = Duration::from_secs(10);

/// What a release without a caller may take. Of several rounds the quickest has to keep to it: a
/// busy machine delays some, and a release that waits for a timer is late in all.
const AT_ONCE: Duration = Duration::from_millis(100);

const ROUNDS: usize = 5;

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

/// Gets the lock in another runtime as soon as it is free; returns how long that took.
fn got_by_another(locks: &Locks) -> Duration {
    let (runtime, mutex) = (runtime(), long(locks));
    let began = Instant::now();
    runtime.block_on(async {
        let guard = mutex.try_lock_for(SOON).await.unwrap();
        let took = began.elapsed();
        guard.release().await.unwrap();
        took
    })
}

fn at_once(rounds: impl Iterator<Item = Duration>) {
    let quickest = rounds.min().unwrap();
    assert!(quickest < AT_ONCE, "the quickest of {ROUNDS} rounds took {quickest:?}");
}

fn a_dropped_runtime_releases_the_guards_inside_it_at_once(locks: &Locks) {
    at_once((0..ROUNDS).map(|_| {
        let first = runtime();
        let guard = first.block_on(long(locks).lock()).unwrap();
        first.spawn(async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        drop(first);
        got_by_another(locks)
    }));
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

fn a_guard_dropped_outside_any_runtime_is_released_at_once(locks: &Locks) {
    at_once((0..ROUNDS).map(|_| {
        drop(runtime().block_on(long(locks).lock()).unwrap());
        got_by_another(locks)
    }));
}

fn using_runtimes_in_turn_costs_no_time(locks: &Locks) {
    let runtimes = [runtime(), runtime()];
    let mut turns: Vec<_> = (0..20)
        .map(|turn| {
            let began = Instant::now();
            runtimes[turn % 2].block_on(async {
                let guard = long(locks).lock().await.unwrap();
                guard.release().await.unwrap();
            });
            began.elapsed()
        })
        .collect();
    turns.sort_unstable();
    assert!(turns[10] < AT_ONCE, "half of the turns took longer than {:?}", turns[10]);
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

/// A quorum of three stores in memory.
fn quorum() -> Locks {
    let nodes = ["a", "b", "c"].map(|name| (name.to_owned(), Arc::new(Memory::new()) as _));
    let nodes: [(String, Arc<dyn Backend>); 3] = nodes;
    let options = QuorumOptions::default().max_ttl(Duration::from_secs(600));
    Locks::new(Arc::new(Quorum::with_options(nodes, options).unwrap()))
}

macro_rules! on_a_quorum {
    ($($promise:ident),+ $(,)?) => {
        mod quorum {
            $(#[test] fn $promise() { super::$promise(&super::quorum()); })+
        }
    };
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
        mod valkey {
            $(#[test] fn $promise() {
                let server = super::RedisServer::valkey();
                super::$promise(&distlock::Locks::connect(&server.url()).unwrap());
            })+
        }
    };
}

on_every_store!(
    a_blocked_runtime_keeps_its_lease,
    a_dropped_runtime_releases_the_guards_inside_it_at_once,
    a_waiter_gets_the_lock_while_another_runtime_is_not_polled,
    a_guard_dropped_outside_any_runtime_is_released_at_once,
    using_runtimes_in_turn_costs_no_time,
);

on_a_quorum!(
    a_blocked_runtime_keeps_its_lease,
    a_dropped_runtime_releases_the_guards_inside_it_at_once,
    a_waiter_gets_the_lock_while_another_runtime_is_not_polled,
    a_guard_dropped_outside_any_runtime_is_released_at_once,
    using_runtimes_in_turn_costs_no_time,
);

#[test]
fn a_loss_is_told_while_the_runtime_that_locked_is_not_polled() {
    a_watched_loss_is_told_while_the_runtime_that_locked_is_not_polled(&Locks::memory());
}
