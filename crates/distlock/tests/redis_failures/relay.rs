//! Hand-overs within one process: one call for who leaves and who comes, which brings the news.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use distlock::Locks;
use distlock_testkit::Rng;
use distlock_testkit::servers::{Flow, RedisServer};
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::network::scripts_run;
use crate::support::*;

/// On one thread, so that how much goes together does not depend on the machine.
#[tokio::test]
async fn where_many_want_one_key_a_hand_over_is_one_call() {
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
    assert!(spent <= handed_over * 5 / 4, "{spent} commands for {handed_over} hand-overs");
    nothing_left(&server, ms(2000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f22_a_waiter_wakes_though_nobody_hears_the_answer_that_lets_it_in() {
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
async fn those_who_leave_while_they_are_taken_along_leave_nothing_behind() {
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

/// Many want one key; then one leaves and the next keeps the key. All others soon know that they
/// wait.
async fn many_and_then_nobody(locks: &Locks) {
    const CROWD: usize = 6;
    const CHANGES: usize = 50;
    let (held, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let over = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let (mutex, held) = (locks.mutex(KEY).unwrap(), Arc::clone(&held));
        let (over, done) = (Arc::clone(&over), Arc::clone(&done));
        tasks.spawn(async move {
            while held.load(Ordering::SeqCst) < CHANGES - 1 {
                let guard = mutex.lock().await.unwrap();
                if held.fetch_add(1, Ordering::SeqCst) == CHANGES - 1 {
                    over.notified().await;
                }
                guard.release().await.unwrap();
            }
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    until("the last one holds", ms(10_000), async || held.load(Ordering::SeqCst) == CHANGES).await;
    let all_wait = async || locks.stats().waiting + done.load(Ordering::SeqCst) == CROWD - 1;
    until("all others wait, and know it", ms(1000), all_wait).await;
    assert!(locks.stats().waiting >= CROWD / 2, "most have left");
    over.notify_one();
    tasks.join_all().await;
}

#[tokio::test]
async fn whoever_went_along_and_has_to_wait_hears_of_it_even_if_nobody_follows() {
    let (server, proxy) = behind_proxy();
    let (near, far) = (locks(&server.url()), connected(&proxy).await);
    proxy.replies(Flow::Delay(ms(8)));
    for _ in 0..20 {
        many_and_then_nobody(&near).await;
    }
    for _ in 0..5 {
        many_and_then_nobody(&far).await;
    }
}

#[tokio::test]
async fn whoever_waits_elsewhere_is_let_in_by_a_holder_that_knows_of_nobody() {
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

/// A release that was sent by a runtime which does not turn any more holds up nobody.
#[test]
fn nobody_stays_on_offer_for_a_call_that_nobody_hears_the_end_of() {
    let server = RedisServer::start();
    let locks = patient(&server.url(), 10_000);
    let here = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let there = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The connection lives here, and the key is known to be wanted by several.
    let held = here.block_on(async {
        let (first, second) = (lock(&locks).await, wait(&locks));
        queued(&locks, 1).await;
        first.release().await.unwrap();
        second.await.unwrap().1
    });
    let mut release = Box::pin(held.release());
    let sent = there.block_on(within(0, &mut release));
    assert!(sent.is_none(), "it is answered already");
    let asked = Instant::now();
    let guard = here.block_on(async {
        until("it has let go", ms(5000), async || number(&server, &["EXISTS", MAIN]) == 0).await;
        lock(&locks).await
    });
    assert!(asked.elapsed() < ms(5000), "it took {:?}", asked.elapsed());
    assert!(guard.is_held());
    drop(release);
}
