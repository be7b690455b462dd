//! Part H: waiters that die, leave, fall silent or fail.

use std::time::Instant;

use distlock::{Error, Event, Locks};
use distlock_testkit::servers::{Flow, RedisServer};
use futures_util::StreamExt;

use crate::support::*;

/// Ten clients that wait one behind the other, and the order in which they get the lock.
async fn ten_behind(
    server: &RedisServer,
    ahead: u64,
) -> Vec<tokio::task::JoinHandle<(Instant, u64)>> {
    let mut waiters = Vec::new();
    for n in 1..=10 {
        let client = locks(&server.url());
        let mutex = client.mutex(KEY).unwrap();
        waiters.push(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let (at, fence) = (Instant::now(), guard.fence());
            guard.release().await.unwrap();
            (at, fence)
        }));
        queued(&client, ahead + n).await;
    }
    waiters
}

/// A head of the queue whose process dies: its connection may close or hang.
async fn a_dead_head(dies: impl FnOnce(&distlock_testkit::servers::Proxy)) {
    let (server, proxy) = behind_proxy();
    let (head, b) = (connected(&proxy).await, locks(&server.url()));
    let held = lock(&b).await;
    let dead = wait(&head);
    queued(&b, 1).await;
    let waiters = ten_behind(&server, 1).await;
    dies(&proxy);
    let died = Instant::now();
    held.release().await.unwrap();
    let mut last = 0;
    for (n, waiter) in waiters.into_iter().enumerate() {
        let done = tokio::time::timeout(ms(8000), waiter).await;
        let (at, fence) = done.unwrap_or_else(|_| panic!("waiter {n} is stuck")).unwrap();
        let took = at.saturating_duration_since(died);
        assert!(n > 0 || took < PLACE + ms(600), "the next entered after {took:?}");
        assert!(fence > last, "waiter {n} overtook");
        last = fence;
    }
    dead.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_the_queue_that_hangs_blocks_it_for_its_place_at_most() {
    a_dead_head(|proxy| proxy.both(Flow::Swallow)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_the_queue_that_crashes_blocks_it_for_its_place_at_most() {
    a_dead_head(|proxy| {
        proxy.refuse();
        proxy.cut();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_the_queue_that_leaves_admits_the_next_waiter_at_once() {
    let server = RedisServer::start();
    // The next heartbeat is 15 s away: only the client that leaves can have told.
    let slow = |url: &str| {
        Locks::connect(url).unwrap().configure(|o| o.place(ms(60_000)).ttl(ms(60_000))).unwrap()
    };
    let (a, b, c) = (slow(&server.url()), slow(&server.url()), slow(&server.url()));
    let held = a.semaphore(KEY, 2).unwrap().acquire().await.unwrap();
    let semaphore = b.semaphore(KEY, 2).unwrap();
    let head = tokio::spawn(async move { semaphore.acquire_many(2).await });
    queued(&a, 1).await;
    let semaphore = c.semaphore(KEY, 2).unwrap();
    let next = tokio::spawn(async move { semaphore.acquire().await });
    queued(&a, 2).await;
    let began = Instant::now();
    head.abort();
    let guard = tokio::time::timeout(ms(5000), next).await.expect("told").unwrap().unwrap();
    println!("entered {:?} after the head left", began.elapsed());
    assert!(guard.is_held() && held.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_silent_too_long_gets_place_lost_and_queues_again() {
    let (server, proxy) = behind_proxy();
    let (a, b, c) = (connected(&proxy).await, locks(&server.url()), locks(&server.url()));
    let mut events = a.events();
    let held = lock(&b).await;
    let waiting = wait(&a);
    queued(&b, 1).await;
    let behind = wait(&c);
    queued(&b, 2).await;
    proxy.both(Flow::Hold);
    pass(PLACE + ms(300)).await;
    proxy.both(Flow::Pass);
    let told = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::PlaceLost { .. }) {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(ms(3000), told).await.expect("it is told"));
    queued(&b, 2).await;
    held.release().await.unwrap();
    let (_, first) = tokio::time::timeout(ms(3000), behind).await.unwrap().unwrap();
    assert!(!waiting.is_finished(), "it has lost its place");
    first.release().await.unwrap();
    let (_, guard) = tokio::time::timeout(ms(3000), waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert_eq!(a.stats().places_lost, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_gave_up_blocks_no_reader() {
    let server = RedisServer::start();
    let long = |locks: Locks| locks.configure(|o| o.place(ms(60_000))).unwrap();
    let (a, b) = (long(locks(&server.url())), long(locks(&server.url())));
    let reader = a.rwlock(KEY).unwrap().read().await.unwrap();
    let writer = b.rwlock(KEY).unwrap();

    assert!(matches!(writer.try_write().await, Err(Error::Held { .. })));
    drop(a.rwlock(KEY).unwrap().try_read().await.expect("no trace of try_write"));

    assert!(matches!(writer.try_write_for(ms(30)).await, Err(Error::Timeout { .. })));
    soon_readable(&a, "a writer that timed out").await;

    assert!(tokio::time::timeout(ms(30), writer.write()).await.is_err());
    soon_readable(&a, "a writer that was cancelled").await;

    let full = writer.configure(|o| o.waiters_max(1)).unwrap();
    let first = full.clone();
    let first = tokio::spawn(async move { first.write().await });
    queued(&a, 1).await;
    assert!(matches!(full.write().await, Err(Error::TooManyWaiters { .. })));
    first.abort();
    soon_readable(&a, "a writer that was refused").await;
    drop(reader);
    nothing_left(&server, ms(1000)).await;
}

async fn soon_readable(locks: &Locks, after: &str) {
    until(&format!("readers enter after {after}"), ms(1000), async || {
        locks.rwlock(KEY).unwrap().try_read().await.is_ok()
    })
    .await;
}
