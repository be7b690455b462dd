//! Hand-overs between the tasks of one process, and futures of releases that are not polled.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::{Flow, RedisServer};
use distlock_testkit::{Rng, sweep::sweep_unpolled};
use futures_util::future::join_all;

use crate::network::scripts_run;
use crate::support::*;

/// On one thread, so that the figure does not depend on the machine.
#[tokio::test]
async fn where_many_want_one_key_a_hand_over_is_two_calls() {
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 50;
    let server = RedisServer::start();
    let locks = patient(&server.url(), 10_000);
    lock(&locks).await.release().await.unwrap();
    let before = scripts_run(&server);
    let last = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|_| {
        let (mutex, last) = (locks.mutex(KEY).unwrap(), Arc::clone(&last));
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = mutex.lock().await.unwrap();
                let before = last.swap(guard.fence(), Ordering::SeqCst);
                assert!(before < guard.fence(), "{before} came before {}", guard.fence());
                guard.release().await.unwrap();
            }
        })
    });
    for done in join_all(tasks).await {
        done.unwrap();
    }
    let (spent, handed_over) = (scripts_run(&server) - before, TASKS * ROUNDS);
    println!("{spent} commands for {handed_over} hand-overs");
    // Each takes at least the release that admits the next waiter.
    let few = handed_over..=handed_over * 21 / 10;
    assert!(few.contains(&spent), "{spent} commands for {handed_over} hand-overs");
    nothing_left(&server, ms(2000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_wakes_though_the_reply_that_admits_it_is_late() {
    let (server, proxy) = behind_proxy();
    // Heartbeats are far apart.
    let far = |o: distlock::Options| o.ttl(ms(60_000)).place(ms(60_000));
    let locks = patient(&proxy.url(), 10_000).configure(far).unwrap();
    // The server knows the scripts from then on.
    lock(&locks).await.release().await.unwrap();
    let held = lock(&locks).await;
    let next = wait(&locks);
    queued(&locks, 1).await;
    proxy.replies(Flow::Hold);
    let released = tokio::time::timeout(ms(100), held.release()).await;
    assert!(released.is_err(), "the answer came through");
    until("the release arrives", ms(5000), async || number(&server, &["EXISTS", QUEUE]) == 0).await;
    proxy.replies(Flow::Pass);
    let healed = Instant::now();
    let (at, guard) = tokio::time::timeout(ms(10_000), next).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert!(at.saturating_duration_since(healed) < ms(5000), "only a heartbeat woke it");
}

/// The outcome, unless it takes more than so many turns of the runtime.
async fn within<T>(turns: u64, call: impl Future<Output = T>) -> Option<T> {
    let too_long = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = call => Some(done),
        () = too_long => None,
    }
}

#[tokio::test]
async fn calls_dropped_in_the_middle_of_hand_overs_leave_nothing_behind() {
    let server = RedisServer::start();
    // Leases are long: nothing ends by itself.
    let locks = patient(&server.url(), 10_000);
    let tasks = (0..6).map(|task| {
        let mutex = locks.mutex(KEY).unwrap();
        tokio::spawn(async move {
            let (mut rng, mut held) = (Rng::new(task), 0);
            for _ in 0..200 {
                let most = if rng.chance(0.5) { 10 } else { 1_000 };
                let turns = rng.below(most);
                if let Some(guard) = within(turns, mutex.lock()).await {
                    held += 1;
                    let _ = within(rng.below(10), guard.unwrap().release()).await;
                }
            }
            held
        })
    });
    let held: u32 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    println!("held {held} times");
    nothing_left(&server, ms(10_000)).await;
}

#[tokio::test]
async fn a_release_that_does_not_name_its_client_wakes_a_waiter_of_another_client() {
    let server = RedisServer::start();
    // Heartbeats are far apart. The counter is found by the name of a key, whatever that is.
    let far = |o: distlock::Options| o.ttl(ms(60_000)).place(ms(60_000));
    let url = format!("{}?namespace=a%3A%7Bb%7D%3A%7B", server.url());
    let [here, there] = [(); 2].map(|()| Locks::connect(&url).unwrap().configure(far).unwrap());
    let (held, next) = (lock(&here).await, wait(&there));
    queued(&here, 1).await;
    let (fence, released) = (held.fence(), Instant::now());
    held.release().await.unwrap();
    let (at, guard) = next.await.unwrap();
    assert!(at.saturating_duration_since(released) < ms(5000), "only a heartbeat woke it");
    assert!(guard.fence() > fence);
    let (counter, last) = ("a:{b}:{:fence", guard.fence().to_string());
    assert_eq!(server.command(&["GET", counter]).lines().nth(1), Some(last.as_str()));
}

/// A release that was sent by a runtime which is not polled any more delays no other call.
#[test]
fn a_release_of_a_runtime_that_is_not_polled_delays_no_other() {
    let server = RedisServer::start();
    let locks = patient(&server.url(), 10_000);
    let here = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let there = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held = here.block_on(async {
        let (first, second) = (lock(&locks).await, wait(&locks));
        queued(&locks, 1).await;
        first.release().await.unwrap();
        second.await.unwrap().1
    });
    let mut release = Box::pin(held.release());
    let sent = there.block_on(within(3, &mut release));
    assert!(sent.is_none(), "it is answered already");
    // The connection of that runtime may not be there yet: nothing was sent then.
    let asked = Instant::now();
    if number(&server, &["EXISTS", MAIN]) == 0 {
        let guard = here.block_on(lock(&locks));
        assert!(asked.elapsed() < ms(5000), "it took {:?}", asked.elapsed());
        assert!(guard.is_held());
    }
    drop(release);
}

#[test]
fn a_release_that_is_polled_once_is_sent_over_a_connection_that_is_made_for_it() {
    let server = RedisServer::start();
    let locks = patient(&server.url(), 10_000).configure(|o| o.ttl(ms(60_000))).unwrap();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (here, there) = (runtime(), runtime());
    let held = here.block_on(lock(&locks));
    let mut release = Box::pin(held.release());
    assert!(there.block_on(within(0, &mut release)).is_none(), "it is answered already");
    let free = async || number(&server, &["EXISTS", MAIN]) == 0;
    here.block_on(until("the key is free", ms(5000), free));
    drop(release);
}

/// Heartbeats are a quarter of a minute apart: within the bound only a push wakes a waiter.
#[tokio::test]
async fn a_release_that_is_not_polled_withholds_the_key_from_no_client() {
    const BOUND: Duration = ms(2_000);
    let server = RedisServer::start();
    let far = |o: distlock::Options| o.ttl(ms(60_000)).place(ms(60_000));
    let clients = || [(); 2].map(|()| patient(&server.url(), 10_000).configure(far).unwrap());
    let [here, there] = clients();
    let waiters = RefCell::new(Vec::new());
    #[expect(clippy::async_yields_async, reason = "the sweep polls the call")]
    let make = async || {
        let held = lock(&here).await;
        for (number, locks) in (1..).zip([&here, &there, &here, &there]) {
            waiters.borrow_mut().push(wait(locks));
            queued(&there, number).await;
        }
        Box::pin(held.release())
    };
    let others = async |_| {
        for waiter in waiters.take() {
            let (_, guard) = waiter.await.unwrap();
            guard.release().await.unwrap();
        }
    };
    let left_alone = sweep_unpolled(make, BOUND, others).await;
    println!("{left_alone} releases were left alone");
    assert!(left_alone > 0);
    nothing_left(&server, ms(2000)).await;
}
