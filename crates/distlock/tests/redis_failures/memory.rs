//! Part C: memory that runs out.

use distlock::{Error, HoldEnd, LossReason};
use distlock_testkit::servers::RedisServer;

use crate::support::*;

/// Less than an empty server uses.
fn fill(server: &RedisServer) {
    server.command(&["CONFIG", "SET", "maxmemory", "100kb"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_evicts_locks_is_warned_of() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    assert!(a.probe().await.unwrap().warnings.is_empty(), "noeviction is fine");
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-lfu", "allkeys-random"] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let warnings = a.probe().await.unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(policy)), "{warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_lock_is_lost_at_the_next_renewal() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    let guard = lock(&a).await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    fill(&server);
    server.command(&["SET", "straw", "x"]);
    assert!(left(&server).is_empty(), "it was evicted");
    let reason = tokio::time::timeout(TTL, guard.lost()).await.expect("lost within a renewal");
    assert_eq!(reason, LossReason::Gone);
    assert!(matches!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Gone)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_stops_acquires_but_neither_renewals_nor_releases() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    let guard = lock(&a).await;
    let reader = a.rwlock("r").unwrap().read().await.unwrap();
    let permit = a.semaphore("s", 3).unwrap().acquire().await.unwrap();
    let waiter = wait(&a.configure(|o| o.place(ms(8000))).unwrap());
    queued(&a, 1).await;
    fill(&server);
    let error = a.mutex("other").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)) && error.is_transient(), "{error}");
    assert!(error.to_string().contains("OOM"), "{error}");
    let renewals = a.stats().renewals;
    pass(2 * TTL).await;
    assert!(guard.is_held() && reader.is_held() && permit.is_held());
    assert!(a.stats().renewals >= renewals + 3, "{:?}", a.stats());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    let (_, next) = tokio::time::timeout(ms(6000), waiter).await.expect("handed over").unwrap();
    assert_eq!(next.release().await.unwrap(), HoldEnd::Released);
    assert_eq!(reader.release().await.unwrap(), HoldEnd::Released);
    assert_eq!(permit.release().await.unwrap(), HoldEnd::Released);
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_call_gets_the_lock_when_there_is_memory_again() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    fill(&server);
    let waiting = wait(&a);
    pass(ms(300)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let (_, guard) = tokio::time::timeout(ms(3000), waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
}
