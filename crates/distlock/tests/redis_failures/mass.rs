//! Crowds that died, and crowds that are kept alive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::Redis;
use distlock::{ClaimId, Key, Label, Order};
use distlock_core::{Answer, Ask, Backend, CAPACITY_MAX, Claim, Renewal, Standing, Wait};
use distlock_testkit::servers::RedisServer;
use futures_util::StreamExt;
use futures_util::future::join_all;

use crate::support::*;

const CROWD: usize = 20_000;
const CLIENTS: usize = 20;
const LIFE: Duration = ms(60_000);

/// A crowd of claims made from `ask`, spread over a few clients that never say anything again.
async fn crowd(server: &RedisServer, ask: &Ask) {
    let each = (0..CLIENTS).map(|_| {
        let patience = "response_timeout_ms=30000&connect_timeout_ms=30000";
        let client = Redis::open(&format!("{}?{patience}", server.url())).unwrap();
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
async fn the_next_acquire_passes_twenty_thousand_dead_readers() {
    let server = RedisServer::start();
    let mut reader = Ask::new(claim(), Label::new("owner", "crowd").unwrap(), LIFE);
    reader.weight = 1;
    reader.capacity = CAPACITY_MAX;
    reader.order = Order::PreferWriters;
    crowd(&server, &reader).await;
    // The server has much to remove in one call, and a busy machine takes longer for it.
    let a = patient(&server.url(), 20_000);
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
async fn the_next_acquire_passes_twenty_thousand_dead_waiters() {
    let server = RedisServer::start();
    // The server has much to remove in one call, and a busy machine takes longer for it.
    let a = patient(&server.url(), 20_000);
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

/// Many scripts in one message: each claim gets its own answer and its own span, also when the
/// server has forgotten the library, and a claim that is gone or shares its key costs no other.
#[tokio::test]
async fn a_large_batch_of_all_kinds_is_answered_one_by_one() {
    let server = RedisServer::start();
    let store = Redis::open(&server.url()).unwrap();
    let (mut batch, mut fences) = (Vec::new(), Vec::new());
    for number in 0..250 {
        let key = Key::new(format!("held-{number}")).unwrap();
        let claim = Claim { key, id: ClaimId::random().unwrap() };
        let mut ask = Ask::new(claim.clone(), Label::new("owner", "crowd").unwrap(), ms(10_000));
        if number % 50 == 7 {
            (ask.weight, ask.capacity) = (1, CAPACITY_MAX);
        }
        let Answer::Granted { fence } = store.acquire(&ask).await.unwrap() else { panic!() };
        fences.push(fence);
        batch.push(Renewal::hold(claim, ms(100_000 * (1 + number as u64 % 3))));
    }
    let gone = [3, 120, 249];
    for number in gone {
        server.command(&["DEL", &format!("distlock:{{held-{number}}}")]);
    }
    for forgotten in [true, false] {
        if forgotten {
            server.command(&["FUNCTION", "FLUSH"]);
        }
        let mut answers: Vec<_> = store.renew(&batch).collect().await;
        answers.sort_by_key(|(index, _)| *index);
        assert_eq!(answers.len(), batch.len());
        for (number, (index, answer)) in answers.into_iter().enumerate() {
            assert_eq!(number, index);
            let expected = match gone.contains(&number) {
                true => Standing::Gone,
                false => Standing::Held { fence: fences[number] },
            };
            assert_eq!(answer.unwrap(), expected, "{number}");
        }
    }
    for at in (0..250).filter(|number| !gone.contains(number)) {
        let left = number(&server, &["PTTL", &format!("distlock:{{held-{at}}}")]);
        let span = 100_000 * (1 + at as i64 % 3);
        assert!(left <= span && left > span - 60_000, "{at}: {left} of {span}");
    }
}
