//! Part B: replies out of step, wake-ups that get lost, herds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Error, Locks};
use distlock_testkit::Rng;
use distlock_testkit::servers::{Flow, RedisServer};
use futures_util::future::join_all;

use crate::support::*;

/// Replies that do not belong to any request: noise, and what looks like an answer.
const EXTRAS: [&str; 4] =
    ["+OK\r\n", "_\r\n", "$4\r\nheld\r\n", "*2\r\n$7\r\ngranted\r\n$16\r\n1700000000000001\r\n"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extra_reply_between_requests_is_no_grant() {
    for extra in EXTRAS {
        let (server, proxy) = behind_proxy();
        let (a, b) = (connected(&proxy).await, locks(&server.url()));
        let held = lock(&b).await;
        // A message to the client's channel carries the extra reply while nothing is asked.
        let channel = server.command(&["PUBSUB", "CHANNELS"]);
        proxy.inject(extra);
        for channel in channel.lines().filter(|line| line.starts_with("distlock")) {
            server.command(&["PUBLISH", channel, "noise"]);
        }
        pass(ms(50)).await;
        let result = try_lock(&a).await;
        assert!(result.is_err(), "{extra:?}: two holders");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_in_front_of_a_reply_does_not_shift_a_grant() {
    for extra in &EXTRAS[..3] {
        let (server, proxy) = behind_proxy();
        let (a, b) = (connected(&proxy).await, locks(&server.url()));
        let held = lock(&b).await;
        proxy.inject(*extra);
        // Two requests of one instant. Out of step, the second gets the grant of the first.
        let free = a.mutex("free").unwrap();
        proxy.replies(Flow::Hold);
        let both = async { tokio::join!(free.try_lock(), try_lock(&a)) };
        let heal = async {
            pass(ms(60)).await;
            proxy.replies(Flow::Pass);
        };
        let ((first, second), ()) = tokio::join!(both, heal);
        assert!(second.is_err(), "{extra:?}: a false grant of a held key beside {first:?}");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_grant_in_front_of_a_reply_is_no_grant() {
    let (server, proxy) = behind_proxy();
    let (a, b) = (connected(&proxy).await, locks(&server.url()));
    let held = lock(&b).await;
    proxy.inject(EXTRAS[3]);
    let result = try_lock(&a).await;
    assert!(result.is_err(), "a false grant: {result:?}");
    assert!(held.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_connection_is_killed_still_wakes() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    let held = lock(&b).await;
    let next = wait(&a);
    queued(&b, 1).await;
    for _ in 0..5 {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        pass(ms(20)).await;
    }
    drop(held);
    let released = Instant::now();
    let (at, guard) = tokio::time::timeout(ms(5000), next).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert!(at.saturating_duration_since(released) < PLACE / 4 + ms(500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_push_is_lost_wakes_by_its_heartbeat() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels"]);
    let (a, b) = (locks(&server.url()), locks(&with_user(&server, "mute")));
    let held = lock(&b).await;
    let next = wait(&a);
    queued(&b, 1).await;
    held.release().await.unwrap();
    let released = Instant::now();
    let (at, guard) = tokio::time::timeout(ms(5000), next).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert!(at.saturating_duration_since(released) < PLACE / 4 + ms(500));
}

pub(crate) fn with_user(server: &RedisServer, user: &str) -> String {
    format!("redis://{user}:pw@127.0.0.1:{}/", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_at_any_moment_of_a_first_call_wakes_it() {
    let server = RedisServer::start();
    let b = patient(&server.url(), 10_000);
    let mut rng = Rng::new(23);
    for round in 0..60 {
        let held = lock(&b).await;
        // A new client each time: it connects, subscribes and asks while the holder releases. Its
        // heartbeats are far apart.
        let new = patient(&server.url(), 10_000).configure(|o| o.place(ms(60_000))).unwrap();
        let next = wait(&new);
        pass(Duration::from_micros(rng.below(4_000))).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let (at, guard) = next.await.unwrap();
        let took = at.saturating_duration_since(released);
        assert!(took < ms(4000), "round {round}: {took:?}, only a heartbeat woke it");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_few_commands_however_many_wait() {
    const WAITERS: usize = 1_000;
    let server = RedisServer::start();
    let b = Locks::connect(&server.url()).unwrap();
    let held = lock(&b).await;
    let slow = |o: distlock::Options| o.place(ms(60_000)).ttl(ms(60_000));
    let clients: Vec<_> = (0..10).map(|_| Locks::connect(&server.url()).unwrap()).collect();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let waiters = (0..WAITERS).map(|n| {
        let mutex = clients[n % 10].mutex(KEY).unwrap().configure(slow).unwrap();
        let order = Arc::clone(&order);
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().unwrap().push(guard.fence());
            guard.release().await.unwrap();
        })
    });
    let waiters: Vec<_> = waiters.collect();
    queued(&b, WAITERS as u64).await;
    let before = scripts_run(&server);
    held.release().await.unwrap();
    for done in join_all(waiters).await {
        done.unwrap();
    }
    let spent = scripts_run(&server) - before;
    let fences = order.lock().unwrap().clone();
    assert!(fences.is_sorted() && fences.len() == WAITERS, "one after the other");
    println!("{spent} commands for {WAITERS} hand-overs");
    let waiters = WAITERS as u64;
    assert!((waiters..=4 * waiters).contains(&spent), "{spent} commands");
}

/// How many commands clients have sent that touch locks.
pub(crate) fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let (name, rest) = line.split_once(":calls=")?;
        let commands = ["evalsha", "eval", "fcall", "fcall_ro", "subscribe"];
        let sent = name.strip_prefix("cmdstat_").is_some_and(|name| commands.contains(&name));
        if sent { rest.split(',').next()?.parse::<u64>().ok() } else { None }
    };
    stats.lines().filter_map(calls).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_a_passing_fault() {
    let (_server, proxy) = behind_proxy();
    let a = locks(&proxy.url());
    proxy.refuse();
    let error = try_lock(&a).await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)) && error.is_transient(), "{error}");
    let waiting = wait(&a);
    pass(ms(300)).await;
    proxy.admit();
    let (_, guard) = tokio::time::timeout(ms(5000), waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
}
