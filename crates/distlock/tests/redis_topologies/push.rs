//! Hand-over by push, far below the five seconds between two heartbeats.

use std::time::Duration;

use distlock::Locks;
use distlock_testkit::servers::{RedisCluster, RedisSentinel};

use crate::support::*;

const PLACE: Duration = ms(20_000);

async fn quick_hand_overs(a: &Locks, b: &Locks, keys: &[String]) {
    let mut took = Vec::new();
    for key in keys {
        took.push(hand_over(a, b, key).await);
    }
    let (best, worst) = (took.iter().min().unwrap(), took.iter().max().unwrap());
    assert!(*best < ms(300) && *worst < ms(1000), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_on_a_cluster_goes_by_push() {
    let mut cluster = RedisCluster::start();
    let new = || locks(&cluster.url(), ms(20_000), PLACE);
    let (a, b) = (new(), new());
    let nodes = &*cluster.primaries();
    let keys: Vec<_> = (0..3).flat_map(|node| keys_on(nodes, node, 1)).collect();
    for _ in 0..2 {
        quick_hand_overs(&a, &b, &keys).await;
        quick_hand_overs(&b, &a, &keys).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_goes_by_push_after_the_slot_has_moved() {
    let mut cluster = RedisCluster::start();
    let new = || locks(&cluster.url(), ms(20_000), PLACE);
    let (a, b) = (new(), new());
    let nodes = &*cluster.primaries();
    let key = keys_on(nodes, 0, 1).remove(0);
    quick_hand_overs(&a, &b, std::slice::from_ref(&key)).await;
    Move::begin(&key, &nodes[0], &nodes[1]).finish();
    lock(&a, &key).await.release().await.unwrap();
    lock(&b, &key).await.release().await.unwrap();
    pass(ms(300)).await;
    quick_hand_overs(&a, &b, &vec![key; 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_goes_by_push_after_connections_were_cut() {
    let mut cluster = RedisCluster::start();
    let new = || locks(&cluster.url(), ms(20_000), PLACE);
    let (a, b) = (new(), new());
    let nodes = &*cluster.primaries();
    let key = keys_on(nodes, 0, 1).remove(0);
    quick_hand_overs(&a, &b, std::slice::from_ref(&key)).await;
    for node in nodes {
        node.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    pass(ms(300)).await;
    quick_hand_overs(&a, &b, &vec![key; 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_goes_by_push_after_a_cluster_failover() {
    let mut cluster = RedisCluster::start_with_replicas();
    let new = || locks(&cluster.url(), ms(20_000), PLACE);
    let (a, b) = (new(), new());
    let key = keys_on(cluster.primaries(), 0, 1).remove(0);
    quick_hand_overs(&a, &b, std::slice::from_ref(&key)).await;
    cluster.primaries()[0].kill();
    said_ok(&cluster.replicas()[0], &["CLUSTER", "FAILOVER", "TAKEOVER"]);
    lock(&a, &key).await.release().await.unwrap();
    lock(&b, &key).await.release().await.unwrap();
    pass(ms(300)).await;
    quick_hand_overs(&a, &b, &vec![key; 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_goes_by_push_after_a_sentinel_failover() {
    let mut servers = RedisSentinel::start();
    let new = || locks(&servers.url(), ms(20_000), PLACE);
    let (a, b) = (new(), new());
    let keys: Vec<_> = (0..3).map(|n| format!("k{n}")).collect();
    quick_hand_overs(&a, &b, &keys[..1]).await;
    servers.primary.kill();
    servers.wait_for_failover();
    lock(&a, "warm").await.release().await.unwrap();
    lock(&b, "warm").await.release().await.unwrap();
    quick_hand_overs(&a, &b, &keys).await;
}
