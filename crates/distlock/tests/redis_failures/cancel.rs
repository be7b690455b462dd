//! Futures that are dropped at any moment leave nothing at a real server.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use distlock_testkit::{Rng, sweep::sweep};

use crate::support::*;

type Got = Box<dyn Any + Send>;
type Running = Pin<Box<dyn Future<Output = Got> + Send>>;
type Call = fn(Locks) -> Running;

/// The calls that acquire, each ready to be made.
const CALLS: [(&str, Call); 6] = [
    ("lock", |l| Box::pin(async move { got(l.mutex(KEY).unwrap().lock().await) })),
    ("try_lock", |l| Box::pin(async move { got(l.mutex(KEY).unwrap().try_lock().await) })),
    ("read", |l| Box::pin(async move { got(l.rwlock(KEY).unwrap().read().await) })),
    ("write", |l| Box::pin(async move { got(l.rwlock(KEY).unwrap().write().await) })),
    ("try_write", |l| Box::pin(async move { got(l.rwlock(KEY).unwrap().try_write().await) })),
    ("acquire", |l| Box::pin(async move { got(l.semaphore(KEY, 3).unwrap().acquire().await) })),
];

fn got<T: Send + 'static>(result: T) -> Got {
    Box::new(result)
}

/// Leases and places that outlive the test: nothing goes away merely because it expired.
fn long(url: &str) -> Locks {
    let locks = patient(url, 10_000);
    locks.configure(|o| o.ttl(ms(120_000)).place(ms(60_000))).unwrap()
}

#[tokio::test]
async fn a_call_dropped_after_any_number_of_polls_leaves_nothing() {
    let server = RedisServer::start();
    for (name, call) in CALLS {
        let locks = long(&server.url());
        let cancellations = sweep(
            || call(locks.clone()),
            async |polls| {
                until(
                    &format!("{name} after {polls} polls leaves nothing"),
                    ms(1000),
                    async || left(&server).is_empty(),
                )
                .await;
            },
        )
        .await;
        assert!(cancellations > 0, "{name} was never cancelled");
        idle(&locks).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_while_it_waits_leaves_nothing() {
    let server = RedisServer::start();
    let mut rng = Rng::new(3);
    for (name, call) in CALLS {
        let (locks, rival) = (long(&server.url()), long(&server.url()));
        for round in 0..20 {
            let held = match name {
                "read" | "write" | "try_write" => got(rival.rwlock(KEY).unwrap().write().await),
                _ => got(rival.mutex(KEY).unwrap().lock().await),
            };
            let hold_for = Duration::from_micros(rng.below(6_000));
            let releasing = tokio::spawn(async move {
                pass(hold_for).await;
                drop(held);
            });
            let after = Duration::from_micros(rng.below(9_000));
            // Granted or cancelled: whatever it got is dropped.
            let _ = tokio::time::timeout(after, call(locks.clone())).await;
            releasing.await.unwrap();
            let what = format!("{name}, round {round}, dropped after {after:?}, leaves nothing");
            until(&what, ms(1000), async || left(&server).is_empty()).await;
        }
        idle(&locks).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_leaves_no_subscription() {
    let server = RedisServer::start();
    let channels = || server.command(&["PUBSUB", "CHANNELS"]);
    let locks = long(&server.url());
    drop(tokio::time::timeout(ms(1), lock(&locks)).await);
    let guard = lock(&locks).await;
    // The keeper subscribes over a connection of its own, which may take longer.
    until("one per client", ms(2000), async || channels().starts_with("*1\r\n")).await;
    drop(guard);
    drop(locks);
    until("no subscription is left", ms(8000), async || channels().starts_with("*0\r\n")).await;
}

async fn idle(locks: &Locks) {
    until("nothing is in hand", ms(2000), async || {
        let stats = locks.stats();
        stats.held + stats.waiting + stats.releasing == 0
    })
    .await;
}
