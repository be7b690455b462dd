//! A wait that ran out has given up its place when it returns: on real stores.

use std::time::{Duration, Instant};

use distlock::{Error, Locks};
use distlock_testkit::servers::{RedisServer, TempFolder};

use crate::support::ms;

const ROUNDS: usize = 50;

/// No call waits longer than this for its clean-up. A round that took as long says nothing.
const CLEANUP_MAX: Duration = ms(100);

/// A holder releases right after another client's wait ran out, and a third client tries once.
async fn the_next_try_is_not_refused(clients: [Locks; 3]) {
    let [holder, waiter, third] = clients.map(|locks| locks.mutex("k").unwrap());
    let mut judged = 0;
    for round in 0..ROUNDS {
        let held = holder.lock().await.unwrap();
        let began = Instant::now();
        let late = waiter.try_lock_for(ms(5)).await.unwrap_err();
        let in_time = began.elapsed() < CLEANUP_MAX;
        assert!(matches!(late, Error::Timeout { .. }), "round {round}: {late}");
        held.release().await.unwrap();
        let next = match third.try_lock().await {
            Ok(next) => next,
            Err(_) if !in_time => third.lock().await.unwrap(),
            Err(refused) => panic!("round {round}: {refused}"),
        };
        next.release().await.unwrap();
        judged += usize::from(in_time);
    }
    assert!(judged > ROUNDS / 2, "the machine was too busy: {judged} of {ROUNDS} rounds count");
}

async fn at(url: &str) {
    the_next_try_is_not_refused([(); 3].map(|()| Locks::connect(url).unwrap())).await;
}

#[tokio::test]
async fn after_a_timeout_the_next_try_is_not_refused_in_memory() {
    let locks = Locks::memory();
    the_next_try_is_not_refused([locks.clone(), locks.clone(), locks]).await;
}

#[tokio::test]
async fn after_a_timeout_the_next_try_is_not_refused_on_sqlite() {
    let folder = TempFolder::new();
    at(&format!("sqlite:{}", folder.path().join("locks.db").display())).await;
}

#[tokio::test]
async fn after_a_timeout_the_next_try_is_not_refused_on_redis() {
    at(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn after_a_timeout_the_next_try_is_not_refused_on_valkey() {
    at(&RedisServer::valkey().url()).await;
}
