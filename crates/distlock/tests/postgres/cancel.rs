//! Futures that are dropped at any moment, or left alone, leave nothing at the server.

use std::any::Any;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use distlock::Locks;
use distlock_testkit::servers::PostgresServer;
use distlock_testkit::{Rng, sweep::sweep};

use crate::support::until;

const KEY: &str = "k";

type Got = Box<dyn Any + Send>;
type Running = Pin<Box<dyn Future<Output = Got> + Send>>;
type Call = fn(Locks) -> Running;

/// The calls that acquire, each ready to be made.
const CALLS: [(&str, Call); 5] = [
    ("lock", |l| Box::pin(async move { got(l.mutex(KEY).unwrap().lock().await) })),
    ("try_lock", |l| Box::pin(async move { got(l.mutex(KEY).unwrap().try_lock().await) })),
    ("read", |l| Box::pin(async move { got(l.rwlock(KEY).unwrap().read().await) })),
    ("write", |l| Box::pin(async move { got(l.rwlock(KEY).unwrap().write().await) })),
    ("acquire", |l| Box::pin(async move { got(l.semaphore(KEY, 3).unwrap().acquire().await) })),
];

fn got<T: Send + 'static>(result: T) -> Got {
    Box::new(result)
}

/// Leases and places that outlive the test: nothing goes away merely because it expired.
fn long(server: &PostgresServer) -> Locks {
    let locks = Locks::connect(&format!("{}?response_timeout_ms=10000", server.url())).unwrap();
    let (ttl, place) = (Duration::from_secs(120), Duration::from_secs(60));
    locks.configure(|options| options.ttl(ttl).place(place)).unwrap()
}

async fn nothing_is_left(server: &PostgresServer, what: &str) {
    let left = "SELECT (SELECT count(*) FROM distlock.holders) + \
                (SELECT count(*) FROM distlock.waiters) + (SELECT count(*) FROM distlock.clients)";
    until(what, || server.sql(left) == "0").await;
}

#[tokio::test]
async fn a_call_dropped_after_any_number_of_polls_leaves_nothing() {
    let server = PostgresServer::start();
    drop(long(&server).mutex("first").unwrap().lock().await.unwrap());
    for (name, call) in CALLS {
        let locks = long(&server);
        let after = async |polls| {
            let what = format!("{name} after {polls} polls leaves something");
            nothing_is_left(&server, &what).await;
        };
        let cancellations = sweep(|| call(locks.clone()), after).await;
        assert!(cancellations > 0, "{name} was never cancelled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_while_it_waits_leaves_nothing() {
    let server = PostgresServer::start();
    let mut rng = Rng::new(3);
    for (name, call) in CALLS {
        let (locks, rival) = (long(&server), long(&server));
        for round in 0..10 {
            let held = match name {
                "read" | "write" => got(rival.rwlock(KEY).unwrap().write().await),
                _ => got(rival.mutex(KEY).unwrap().lock().await),
            };
            let hold_for = Duration::from_micros(rng.below(12_000));
            let releasing = tokio::spawn(async move {
                tokio::time::sleep(hold_for).await;
                drop(held);
            });
            let after = Duration::from_micros(rng.below(18_000));
            // Granted or cancelled: what it got is dropped.
            let _ = tokio::time::timeout(after, call(locks.clone())).await;
            releasing.await.unwrap();
            let what = format!("{name}, round {round}, dropped after {after:?}, leaves something");
            nothing_is_left(&server, &what).await;
        }
    }
}

#[tokio::test]
async fn a_call_that_is_not_polled_delays_no_other() {
    let server = PostgresServer::start();
    let locks = long(&server);
    let goes_on = async || {
        let others = async {
            let guard = locks.mutex("another key").unwrap().lock().await.unwrap();
            guard.release().await.unwrap();
        };
        let within = Duration::from_secs(20);
        tokio::time::timeout(within, others).await.expect("another call goes on");
    };
    goes_on().await;
    for (name, call) in CALLS {
        for polls in 0..4 {
            let mut left_alone = call(locks.clone());
            for _ in 0..polls {
                let once = |cx: &mut Context<'_>| Poll::Ready(left_alone.as_mut().poll(cx));
                if poll_fn(once).await.is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            goes_on().await;
            drop(left_alone);
            nothing_is_left(&server, &format!("{name} left alone after {polls} polls")).await;
        }
    }
}
