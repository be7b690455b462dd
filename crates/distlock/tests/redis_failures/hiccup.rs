//! A server that stops for two seconds while a crowd waits: everything goes on, and nothing piles
//! up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::{Flow, RedisServer};
use tokio::task::JoinSet;

use crate::network::scripts_run;
use crate::support::*;

const WAITERS: usize = 20;
const CLIENTS: usize = 4;

/// A place and a lease, with the default options, and what a busy machine adds.
const RECOVERY_MAX: Duration = Duration::from_secs(4 + 30);

/// How many keys: `DISTLOCK_SOAK` times twenty, at most a thousand.
fn keys() -> usize {
    let soak = std::env::var("DISTLOCK_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    (20 * soak).min(1_000)
}

/// Tasks that take and release locks without a pause, and how often they got one.
struct Crowd {
    tasks: JoinSet<()>,
    grants: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Crowd {
    fn start(url: &str, keys: usize) -> Self {
        let (grants, errors) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (ends, mut tasks) = (Arc::<AtomicBool>::default(), JoinSet::new());
        let clients: Vec<_> = (0..CLIENTS).map(|_| Locks::connect(url).unwrap()).collect();
        for n in 0..keys * WAITERS {
            let mutex = clients[n % CLIENTS].mutex(format!("k/{}", n / WAITERS)).unwrap();
            let (grants, errors) = (Arc::clone(&grants), Arc::clone(&errors));
            let ends = Arc::clone(&ends);
            tasks.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    match mutex.lock().await {
                        Ok(guard) => {
                            grants.fetch_add(1, Ordering::Relaxed);
                            // An outage shorter than the lease may end in doubt, not in an error.
                            let _ = guard.release().await;
                        }
                        Err(_) => {
                            errors.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        Self { tasks, grants, errors, ends }
    }

    /// Grants in the next second.
    async fn a_second(&self) -> u64 {
        let before = self.grants.load(Ordering::Relaxed);
        pass(ms(1_000)).await;
        self.grants.load(Ordering::Relaxed) - before
    }
}

fn resident_mib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096 / (1 << 20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_goes_on_after_the_server_stopped_for_two_seconds() {
    let server = RedisServer::start();
    let mut crowd = Crowd::start(&server.url(), keys());
    pass(ms(1_000)).await;
    let (before, mib_before) = (crowd.a_second().await.max(1), resident_mib());
    server.pause();
    pass(ms(2_000)).await;
    server.resume();
    let resumed = Instant::now();
    let (mut after, mut mib_after) = (Vec::new(), mib_before);
    while after.last().is_none_or(|grants| *grants < before / 2) {
        assert!(resumed.elapsed() < RECOVERY_MAX, "{before} a second before, then {after:?}");
        after.push(crowd.a_second().await);
        mib_after = mib_after.max(resident_mib());
    }
    println!(
        "{} waiters: {before} grants a second before, then {after:?}; {mib_before} MiB, then \
         {mib_after} MiB; {} errors",
        keys() * WAITERS,
        crowd.errors.load(Ordering::Relaxed)
    );
    assert!(mib_after < 2 * mib_before + 100, "{mib_before} MiB became {mib_after} MiB");
    crowd.ends.store(true, Ordering::Relaxed);
    while crowd.tasks.join_next().await.is_some() {}
}

#[tokio::test]
async fn slow_answers_are_not_asked_for_more_often() {
    let (server, proxy) = behind_proxy();
    let url = format!("{}?response_timeout_ms=5000", proxy.url());
    let locks = Locks::connect(&url).unwrap().configure(|o| o.ttl(ms(3_000))).unwrap();
    let guard = lock(&locks).await;
    until("the keeper has renewed over its own connection", ms(10_000), async || {
        locks.stats().renewals > 0
    })
    .await;
    // Two fifths of the lease, which is longer than the time between two renewals.
    proxy.replies(Flow::Delay(ms(1_200)));
    let before = scripts_run(&server);
    pass(ms(12_000)).await;
    let renewals = scripts_run(&server) - before;
    assert!(guard.is_held(), "{:?}", guard.loss());
    assert!((4..=13).contains(&renewals), "one a second at most: {renewals} in 12 s");
    proxy.replies(Flow::Pass);
    guard.release().await.unwrap();
}
