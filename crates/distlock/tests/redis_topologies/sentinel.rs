//! A primary with a replica, watched by Sentinels.

use std::time::Instant;

use distlock::{Durability, Error, HoldEnd, LossReason};
use distlock_testkit::servers::{RedisSentinel, RedisServer};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_lost_in_a_failover_is_noticed_and_fences_grow() {
    let mut servers = RedisSentinel::start();
    let (a, b) =
        (locks(&servers.url(), ms(8000), ms(4000)), locks(&servers.url(), ms(8000), ms(4000)));
    lock(&a, "k").await.release().await.unwrap();
    said_ok(&servers.replica, &["REPLICAOF", "127.0.0.1", "1"]);
    let first = lock(&a, "k").await;
    servers.primary.kill();
    servers.wait_for_failover();
    assert_eq!(fence_at(&servers.replica, "k"), None, "the grant was not replicated");
    let second = b.mutex("k").unwrap().try_lock_for(ms(10_000)).await.unwrap();
    assert!(second.fence() > first.fence(), "{} after {}", second.fence(), first.fence());
    let reason = tokio::time::timeout(ms(8000), first.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Gone, "lost by the next renewal, not by the end of the lease");
    assert!(second.is_held());
    assert_eq!(first.release().await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    assert_eq!(fence_at(&servers.replica, "k"), Some(second.fence()), "the second is untouched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicated_holds_outlive_a_failover_and_waiters_go_on() {
    let mut servers = RedisSentinel::start();
    let (ttl, place) = (ms(10_000), ms(10_000));
    let (a, b) = (locks(&servers.url(), ttl, place), locks(&servers.url(), ttl, place));
    let mut guards = Vec::new();
    for n in 0..5 {
        guards.push(lock(&a, &format!("k{n}")).await);
    }
    guards.push(a.rwlock("r").unwrap().read().await.unwrap());
    guards.push(a.semaphore("s", 3).unwrap().acquire().await.unwrap());
    let next = wait(&b, "k0");
    queued(&a, "k0", 1).await;
    replicated(&servers.primary, &servers.replica).await;
    servers.primary.kill();
    servers.wait_for_failover();
    all_renewed(&a, &guards, ttl).await;
    let first = guards.swap_remove(0);
    let fence = first.fence();
    assert_eq!(first.release().await.unwrap(), HoldEnd::Released);
    let next = got(next, ms(15_000)).await;
    assert!(next.fence() > fence);
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    }
    assert_eq!((a.stats().losses, b.stats().losses, b.stats().places_lost), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stops_and_returns_as_replica_costs_nothing() {
    let servers = RedisSentinel::start();
    let new = || locks(&servers.url(), ms(10_000), ms(10_000));
    let (a, once, waiting) = (new(), new(), new());
    for idle in [&once, &waiting] {
        lock(idle, "warm").await.release().await.unwrap();
    }
    let guard = lock(&a, "k").await;
    replicated(&servers.primary, &servers.replica).await;
    servers.primary.pause();
    servers.wait_for_failover();
    servers.primary.resume();
    // Before the Sentinels do the same and close the connections of all clients.
    let port = servers.replica.port().to_string();
    said_ok(&servers.primary, &["REPLICAOF", "127.0.0.1", &port]);
    let began = Instant::now();
    let error = once.mutex("other").unwrap().try_lock().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("read only"), "{error}");
    // Not all Sentinels may have heard of the new primary yet.
    let other = loop {
        match once.mutex("other").unwrap().try_lock().await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_transient() && began.elapsed() < ms(5000), "{error}"),
        }
    };
    let third = waiting.mutex("third").unwrap().try_lock_for(ms(5000)).await.unwrap();
    assert!(began.elapsed() < ms(10_000), "{:?}", began.elapsed());
    assert!(fence_at(&servers.replica, "third").is_some(), "it is at the new primary");
    all_renewed(&a, std::slice::from_ref(&guard), ms(10_000)).await;
    assert_eq!(fence_at(&servers.replica, "k"), Some(guard.fence()));
    for guard in [guard, other, third] {
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas_are_a_passing_fault() {
    let servers = RedisSentinel::start();
    let a = locks(&servers.url(), ms(10_000), ms(4000));
    let guard = lock(&a, "k").await;
    said_ok(&servers.primary, &["CONFIG", "SET", "min-replicas-to-write", "2"]);
    let error = a.mutex("other").unwrap().try_lock().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("NOREPLICAS"), "{error}");
    let next = wait(&a, "other");
    pass(ms(100)).await;
    said_ok(&servers.primary, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    got(next, ms(5000)).await.release().await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_too_few_replicas_the_sentinels_are_asked_again_who_is_the_primary() {
    let (servers, other) = (RedisSentinel::start(), RedisSentinel::start());
    let url = format!("{}?response_timeout_ms=2000", servers.url());
    let locks = distlock::Locks::connect(&url).unwrap();
    let locks = locks.configure(|o| o.durability(Durability::Replicas(1))).unwrap();
    until("the replica confirms", ms(10_000), async || {
        locks.mutex("warm").unwrap().try_lock().await.is_ok()
    })
    .await;
    // The old primary goes on without its replica, and its clients do not notice.
    servers.replica.pause();
    servers.watch(&other.primary);
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::NotReplicated { .. }), "{refused}");
    let guard = locks.mutex("k").unwrap().try_lock().await.unwrap();
    assert_eq!(guard.replicas(), 1);
    assert_eq!(fence_at(&other.primary, "k"), Some(guard.fence()), "granted by the new primary");
    servers.replica.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_for_a_client_that_saw_what_a_failover_lost_and_no_clock_makes_up_for() {
    let mut servers = RedisSentinel::start();
    let a = locks(&servers.url(), ms(8000), ms(4000));
    lock(&a, "k").await.release().await.unwrap();
    said_ok(&servers.replica, &["REPLICAOF", "127.0.0.1", "1"]);
    // The clock of the server that is going to take over is behind by an hour.
    let ahead = fence_at_the_counter(&servers.primary) + 3_600_000_000;
    said_ok(&servers.primary, &["SET", "distlock:fence", &ahead.to_string(), "KEEPTTL"]);
    let first = lock(&a, "k").await;
    assert!(first.fence() > ahead);
    servers.primary.kill();
    servers.wait_for_failover();
    for key in ["k", "other"] {
        let next = a.mutex(key).unwrap().try_lock_for(ms(20_000)).await.unwrap();
        assert!(next.fence() > first.fence(), "{key}: {} after {}", next.fence(), first.fence());
    }
}

fn fence_at_the_counter(server: &RedisServer) -> u64 {
    server.command(&["GET", "distlock:fence"]).lines().nth(1).unwrap().parse().unwrap()
}
