//! What a client sends while its waiters only wait: one message for many keys.

use distlock_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::support::*;

const KEYS: usize = 300;
const WAITERS: usize = 2;

/// Reads of the server from its clients: what leaves a client in one message is one or few of them.
fn messages(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_at_many_keys_share_the_messages_of_their_heartbeats() {
    let server = RedisServer::start();
    let (a, b) = (patient(&server.url(), 5000), patient(&server.url(), 5000));
    let key = |n: usize| format!("k/{n}");
    let held = join_all((0..KEYS).map(|n| {
        let mutex = a.mutex(key(n)).unwrap().configure(|o| o.ttl(ms(600_000))).unwrap();
        async move { mutex.lock().await.unwrap() }
    }))
    .await;
    let mut waiting = JoinSet::new();
    for n in 0..KEYS * WAITERS {
        let mutex = b.mutex(key(n % KEYS)).unwrap();
        waiting.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    let places = KEYS * WAITERS;
    until("all know that they wait", ms(10_000), async || b.stats().waiting == places).await;
    // The first heartbeats bring those who came one after the other into step.
    pass(ms(2_500)).await;
    let before = messages(&server);
    // Longer than a place lives without a heartbeat.
    pass(ms(8_000)).await;
    let sent = messages(&server) - before;
    println!("{sent} messages in 8 s for {places} waiters at {KEYS} keys");
    assert_eq!((b.stats().waiting, b.stats().places_lost), (places, 0));
    // Eight heartbeats of each key, with some room for messages that arrive in pieces.
    assert!((4..=400).contains(&sent), "{sent} messages");
    join_all(held.into_iter().map(distlock::Guard::release)).await;
    while let Some(done) = waiting.join_next().await {
        done.unwrap();
    }
}
