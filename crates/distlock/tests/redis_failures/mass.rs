//! F-64: crowds that died.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::Redis;
use distlock::{ClaimId, Key, Label, Locks, Order};
use distlock_core::{Ask, Backend, CAPACITY_MAX, Claim, Wait};
use distlock_testkit::servers::RedisServer;
use futures_util::future::join_all;

use crate::support::*;

const CROWD: usize = 20_000;
const CLIENTS: usize = 20;
const LIFE: Duration = ms(60_000);

/// A crowd of claims made from `ask`, spread over a few clients that never say anything again.
async fn crowd(server: &RedisServer, ask: &Ask) {
    let each = (0..CLIENTS).map(|_| {
        let client = Redis::open(&format!("{}?response_timeout_ms=30000", server.url())).unwrap();
        let (client, ask) = (Arc::new(client), ask.clone());
        tokio::spawn(async move {
            for _ in 0..CROWD / CLIENTS / 250 {
                let asks = (0..250).map(|_| {
                    let mut ask = ask.clone();
                    ask.claim.id = ClaimId::random().unwrap();
                    let client = Arc::clone(&client);
                    async move { client.acquire(&ask).await.unwrap() }
                });
                join_all(asks).await;
            }
        })
    });
    for done in join_all(each.collect::<Vec<_>>()).await {
        done.unwrap();
    }
}

fn claim() -> Claim {
    Claim { key: Key::new(KEY).unwrap(), id: ClaimId::random().unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f64_the_next_acquire_passes_twenty_thousand_dead_readers() {
    let server = RedisServer::start();
    let mut reader = Ask::new(claim(), Label::new("owner", "crowd").unwrap(), LIFE);
    reader.weight = 1;
    reader.capacity = CAPACITY_MAX;
    reader.order = Order::PreferWriters;
    crowd(&server, &reader).await;
    let a = Locks::connect(&server.url()).unwrap();
    assert_eq!(a.inspect(KEY).await.unwrap().holders_total, CROWD as u64);
    server.pass(LIFE + ms(50));
    let began = Instant::now();
    let writer = a.rwlock(KEY).unwrap().try_write().await.unwrap();
    println!("acquired past {CROWD} dead readers in {:?}", began.elapsed());
    let began = Instant::now();
    writer.release().await.unwrap();
    println!("released in {:?}", began.elapsed());
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f64_the_next_acquire_passes_twenty_thousand_dead_waiters() {
    let server = RedisServer::start();
    let a = Locks::connect(&server.url()).unwrap();
    let held = lock(&a).await;
    let mut waiter = Ask::new(claim(), Label::new("owner", "crowd").unwrap(), LIFE);
    waiter.wait = Some(Wait { place: LIFE, waiters_max: u32::MAX });
    crowd(&server, &waiter).await;
    assert_eq!(a.inspect(KEY).await.unwrap().waiters_total, CROWD as u64);
    held.release().await.unwrap();
    server.pass(LIFE + ms(50));
    let began = Instant::now();
    let guard = try_lock(&a).await.unwrap();
    println!("acquired past {CROWD} dead waiters in {:?}", began.elapsed());
    guard.release().await.unwrap();
    nothing_left(&server, ms(1000)).await;
}
