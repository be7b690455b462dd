//! Part C: servers that crash, restart, stop, load or have no room for us.

use std::net::TcpStream;
use std::time::Instant;

use distlock::backends::Redis;
use distlock::{ClaimId, Error, HoldEnd, Key, Label, LossReason};
use distlock_core::{Ask, Backend, CAPACITY_MAX, Claim, Renewal, Standing};
use distlock_testkit::servers::{RedisServer, RedisServerOptions};
use futures_util::StreamExt;

use crate::support::*;

fn started_with(args: &[&str]) -> RedisServer {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    RedisServer::start_with(RedisServerOptions { args })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_memory_is_noticed_and_fences_still_grow() {
    let mut server = RedisServer::start();
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    let guard = lock(&a).await;
    let next = wait(&b);
    queued(&a, 1).await;
    tokio::task::block_in_place(|| server.restart());
    let restarted = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(restarted.elapsed() < TTL, "{:?}", restarted.elapsed());
    let (_, next) = tokio::time::timeout(ms(5000), next).await.unwrap().unwrap();
    assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
    assert!(next.is_held());
}

/// A quorum counts no vote that was given while the epoch of its node changed. So a connection that
/// another runtime makes must not change it: votes in flight would be lost for nothing.
#[test]
fn only_another_incarnation_of_the_server_is_another_epoch() {
    let mut server = RedisServer::start();
    let redis = Redis::open(&server.url()).unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    one.block_on(redis.probe()).unwrap();
    let first = redis.extensions().epoch();
    other.block_on(redis.probe()).unwrap();
    assert_eq!(redis.extensions().epoch(), first, "the same server, over another connection");
    server.restart();
    let deadline = Instant::now() + ms(5000);
    while one.block_on(redis.probe()).is_err() {
        assert!(Instant::now() < deadline, "the server does not answer");
    }
    assert_ne!(redis.extensions().epoch(), first, "the server has restarted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_a_log_keeps_the_lock() {
    let mut server = started_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let a = locks(&server.url()).configure(|o| o.ttl(ms(5000))).unwrap();
    let guard = lock(&a).await;
    let waiter = wait(&locks(&server.url()).configure(|o| o.place(ms(5000))).unwrap());
    queued(&a, 1).await;
    // A disk that is slow keeps the server from writing for up to two seconds.
    until("the log is written", ms(5000), async || {
        let told = server.command(&["INFO", "persistence"]);
        told.contains("aof_buffer_length:0\r") && told.contains("aof_pending_bio_fsync:0\r")
    })
    .await;
    tokio::task::block_in_place(|| server.restart());
    // It answers before it has read all of its log.
    until("the log is read", ms(2000), async || fence_at(&server) == guard.fence()).await;
    assert!(number(&server, &["PTTL", MAIN]) > 0);
    let renewals = a.stats().renewals;
    until("it is renewed again", ms(4500), async || a.stats().renewals > renewals).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    let (_, next) = tokio::time::timeout(ms(5000), waiter).await.unwrap().unwrap();
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_past_the_lease_loses_the_hold() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    let guard = lock(&a).await;
    server.pause();
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    assert!(began.elapsed() < TTL + ms(600), "{:?}", began.elapsed());
    pass(TTL / 2).await;
    server.resume();
    // Requests that the stopped server had taken in are old: none of them brings the hold back.
    let b = locks(&server.url());
    let next = b.mutex(KEY).unwrap().try_lock_for(ms(3000)).await.unwrap();
    assert!(next.fence() > guard.fence() && !guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_for_a_moment_loses_nothing() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    let guard = lock(&a).await;
    server.pause();
    pass(TTL / 3).await;
    server.resume();
    pass(2 * TTL).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_save_is_a_passing_fault() {
    let server = started_with(&["--save", "3600 1"]);
    let a = locks(&server.url()).configure(|o| o.ttl(ms(30_000))).unwrap();
    let guard = lock(&a).await;
    let folder = server.command(&["CONFIG", "GET", "dir"]);
    let folder = folder.lines().find(|line| line.starts_with('/')).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    server.command(&["BGSAVE"]);
    until("the save fails", ms(5000), async || {
        server.command(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    })
    .await;
    let error = a.mutex("other").unwrap().try_lock().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("MISCONF"), "{error}");
    let waiting = a.mutex("third").unwrap();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::ReleaseUncertain { .. }), "{error}");
    pass(ms(100)).await;
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let third = tokio::time::timeout(ms(5000), waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(third.release().await.unwrap(), HoldEnd::Released);
    nothing_left(&server, ms(4000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_for_clients_is_a_passing_fault() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    // As many as a client has: one for its callers, one for its keeper.
    server.command(&["CONFIG", "SET", "maxclients", "2"]);
    let full = [0, 1].map(|_| TcpStream::connect(("127.0.0.1", server.port())).unwrap());
    pass(ms(50)).await;
    for _ in 0..50 {
        let error = try_lock(&a).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    let waiting = wait(&a);
    pass(ms(100)).await;
    drop(full);
    let (_, guard) = tokio::time::timeout(ms(5000), waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_loading_is_a_passing_fault() {
    let slow = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    let mut server = started_with(&[&slow[..], &["--rdbcompression", "no"]].concat());
    server.command(&["DEBUG", "POPULATE", "1000", "filler", "1000"]);
    assert!(server.command(&["SAVE"]).contains("OK"));
    let a = locks(&server.url());
    server.kill();
    let restarting = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let mut said = Vec::new();
    let guard = loop {
        match try_lock(&a).await {
            Ok(guard) => break guard,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                said.push(error.to_string());
            }
        }
        pass(ms(5)).await;
    };
    assert!(said.iter().any(|said| said.contains("loading")), "{:?}", said.last());
    assert!(guard.is_held());
    drop(restarting.await.unwrap());
}

/// How often the server refused a call, such as that of a function or script it does not know.
fn refused_calls(server: &RedisServer) -> u64 {
    let told = server.command(&["INFO", "errorstats"]);
    let counts = told.lines().filter_map(|line| line.strip_prefix("errorstat_")?.split_once('='));
    counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

async fn first_renewal(server: RedisServer) {
    let store = Redis::open(&server.url()).unwrap();
    for weight in [CAPACITY_MAX, 1] {
        let claim = Claim::new(Key::new(format!("{weight}")).unwrap(), ClaimId::random().unwrap());
        let mut ask = Ask::new(claim, Label::new("owner", "me").unwrap(), TTL);
        (ask.weight, ask.capacity) = (weight, CAPACITY_MAX);
        store.acquire(&ask).await.unwrap();
        let before = refused_calls(&server);
        let batch = [Renewal::hold(ask.claim, TTL)];
        let (_, standing) = store.renew(&batch).next().await.unwrap();
        assert!(matches!(standing.unwrap(), Standing::Held { .. }));
        assert_eq!(refused_calls(&server), before, "weight {weight}");
    }
}

#[tokio::test]
async fn the_first_renewal_on_a_fresh_server_takes_one_round_trip() {
    first_renewal(RedisServer::start()).await;
}

#[tokio::test]
async fn the_first_renewal_by_a_script_takes_one_round_trip() {
    let server = RedisServer::start();
    server.deny_functions();
    first_renewal(server).await;
}
