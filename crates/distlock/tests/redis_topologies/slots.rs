//! Slots that move from node to node.

use std::time::Instant;

use distlock::{Error, HoldEnd};
use distlock_testkit::servers::RedisCluster;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moved_is_followed_with_all_its_claims() {
    let mut cluster = RedisCluster::start();
    let (a, b) =
        (locks(&cluster.url(), ms(2000), ms(4000)), locks(&cluster.url(), ms(2000), ms(4000)));
    let nodes = &*cluster.primaries();
    let key = &keys_on(nodes, 0, 1)[0];
    let guards = [lock(&a, key).await];
    let next = wait(&b, key);
    queued(&a, key, 1).await;
    Move::begin(key, &nodes[0], &nodes[2]).finish();
    all_renewed(&a, &guards, ms(2000)).await;
    let [first] = guards;
    let fence = first.fence();
    assert_eq!(fence_at(&nodes[2], key), Some(fence), "it is renewed where it is now");
    assert_eq!(first.release().await.unwrap(), HoldEnd::Released);
    let next = got(next, ms(10_000)).await;
    assert!(next.fence() > fence);
    assert_eq!(next.release().await.unwrap(), HoldEnd::Released);
    assert_eq!(b.stats().places_lost, 0);
    let again = a.mutex(key.as_str()).unwrap().try_lock().await.unwrap();
    assert!(again.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_renewed_through_ask() {
    let mut cluster = RedisCluster::start();
    let a = locks(&cluster.url(), ms(1500), ms(4000));
    let nodes = &*cluster.primaries();
    let key = &keys_on(nodes, 0, 1)[0];
    let guard = lock(&a, key).await;
    let moving = Move::begin(key, &nodes[0], &nodes[1]);
    moving.carry();
    assert!(nodes[0].command(&["GET", &main_of(key)]).starts_with("-ASK"));
    pass(ms(3000)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    moving.finish();
    pass(ms(1500)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    assert_eq!(fence_at(&nodes[1], key), Some(guard.fence()));
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_mutex_is_renewed_while_its_slot_is_in_limbo() {
    let mut cluster = RedisCluster::start();
    let (a, b) =
        (locks(&cluster.url(), ms(1200), ms(4000)), locks(&cluster.url(), ms(1200), ms(4000)));
    let nodes = &*cluster.primaries();
    let key = &keys_on(nodes, 1, 1)[0];
    let guard = lock(&a, key).await;
    let moving = Move::begin(key, &nodes[1], &nodes[2]);
    let error = b.mutex(key.as_str()).unwrap().try_lock().await.unwrap_err();
    assert!(error.is_transient() && !matches!(error, Error::Held { .. }), "{error}");
    let next = wait(&b, key);
    let renewed = a.stats().renewals;
    pass(ms(3000)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    assert!(a.stats().renewals >= renewed + 3, "{} renewals", a.stats().renewals - renewed);
    assert!(!next.is_finished(), "it waits, or it has failed");
    moving.finish();
    queued(&b, key, 1).await;
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    got(next, ms(5000)).await.release().await.unwrap();
    assert_eq!(a.stats().losses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_in_limbo_is_asked_for_until_the_deadline() {
    let mut cluster = RedisCluster::start();
    let a = locks(&cluster.url(), ms(5000), ms(4000));
    let nodes = &*cluster.primaries();
    let key = &keys_on(nodes, 1, 1)[0];
    lock(&a, key).await.release().await.unwrap();
    let moving = Move::begin(key, &nodes[1], &nodes[0]);
    let (mutex, began) = (a.mutex(key.as_str()).unwrap(), Instant::now());
    let error = mutex.try_lock_for(ms(800)).await.unwrap_err();
    let took = began.elapsed();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(took >= ms(800) && took < ms(1600), "{took:?}");
    let next = wait(&a, key);
    pass(ms(200)).await;
    moving.finish();
    got(next, ms(8000)).await.release().await.unwrap();
}
