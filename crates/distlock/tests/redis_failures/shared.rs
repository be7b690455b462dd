//! Connections that the program has made: they carry locks, and say what they cannot.

use std::sync::Arc;
use std::time::Instant;

use distlock::backends::Redis;
use distlock::{Durability, Error, HoldEnd, Locks};
use distlock_core::Backend;
use distlock_testkit::servers::RedisServer;

use crate::support::*;

fn with_short_times(backend: Redis) -> Locks {
    let locks = Locks::new(Arc::new(backend));
    locks.configure(|o| o.ttl(TTL).place(PLACE)).unwrap()
}

async fn shared(server: &RedisServer) -> (redis::aio::MultiplexedConnection, Locks) {
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let backend = Redis::with_connection(connection.clone(), "distlock").unwrap();
    (connection, with_short_times(backend))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_program_carries_locks_beside_its_own_commands() {
    let server = RedisServer::start();
    let (mut theirs, ours) = shared(&server).await;
    let other = locks(&server.url());
    let guard = lock(&ours).await;
    assert_eq!(fence_at(&server), guard.fence());
    assert!(matches!(try_lock(&other).await, Err(Error::Held { .. })));
    let () = redis::cmd("SET").arg("x").arg(7).query_async(&mut theirs).await.unwrap();
    let renewals = ours.stats().renewals;
    until("it is renewed", TTL, async || ours.stats().renewals > renewals).await;
    let x: u32 = redis::cmd("GET").arg("x").query_async(&mut theirs).await.unwrap();
    assert_eq!((x, guard.release().await.unwrap()), (7, HoldEnd::Released));
    let reader = ours.rwlock(KEY).unwrap().read().await.unwrap();
    assert_eq!(reader.release().await.unwrap(), HoldEnd::Released);
    nothing_left(&server, ms(1000)).await;
    assert!(server.command(&["PUBSUB", "CHANNELS"]).starts_with("*1"), "only the other listens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_a_connection_of_the_program_looks_by_itself() {
    let server = RedisServer::start();
    let (_, ours) = shared(&server).await;
    let ours = ours.configure(|o| o.place(ms(60_000)).ttl(ms(60_000))).unwrap();
    let other = locks(&server.url());
    let held = lock(&other).await;
    let next = wait(&ours);
    queued(&other, 1).await;
    held.release().await.unwrap();
    let released = Instant::now();
    let (at, guard) = tokio::time::timeout(ms(5000), next).await.unwrap().unwrap();
    // Its heartbeats are 15 s apart: only looking can have told.
    assert!(at.saturating_duration_since(released) < ms(4000));
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_program_says_what_it_cannot() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let backend = Redis::with_connection(connection, "distlock").unwrap();
    let offered = backend.capabilities();
    assert!(!offered.push && !offered.push_breaks && !offered.durability && offered.queue);
    let durable = with_short_times(backend);
    let durable = durable.configure(|o| o.durability(Durability::Replicas(1))).unwrap();
    let refused = try_lock(&durable).await.unwrap_err();
    assert!(matches!(refused, Error::Unsupported { what: "durability" }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_broke_is_a_passing_fault_and_the_programs_to_mend() {
    let server = RedisServer::start();
    let (mut theirs, ours) = shared(&server).await;
    lock(&ours).await.release().await.unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until("it is broken for the program, too", ms(3000), async || {
        redis::cmd("PING").query_async::<()>(&mut theirs).await.is_err()
    })
    .await;
    let error = try_lock(&ours).await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)) && error.is_transient(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_program_is_as_good_as_a_url() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let backend = Redis::from_client(&client, "distlock").unwrap();
    assert!(backend.capabilities().push && backend.capabilities().durability);
    let ours = with_short_times(backend).configure(|o| o.place(ms(60_000))).unwrap();
    let other = locks(&server.url());
    let held = lock(&other).await;
    let next = wait(&ours);
    queued(&other, 1).await;
    held.release().await.unwrap();
    let (_, guard) = tokio::time::timeout(ms(5000), next).await.expect("pushed").unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    drop(guard);
    nothing_left(&server, ms(4000)).await;
    lock(&ours).await.release().await.unwrap();
}
