//! Many locks on a cluster, and a node of it that hangs.

use std::time::Instant;

use distlock::{Guard, HoldEnd};
use distlock_testkit::servers::RedisCluster;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_locks_over_all_slots_are_renewed_for_long() {
    let mut cluster = RedisCluster::start();
    let a = locks(&cluster.url(), ms(1200), ms(4000));
    let nodes = &*cluster.primaries();
    let keys = [keys_on(nodes, 0, 7), keys_on(nodes, 1, 7), keys_on(nodes, 2, 6)].concat();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(lock(&a, key).await);
    }
    pass(ms(4800)).await;
    assert_eq!(a.stats().losses, 0);
    assert!(a.stats().renewals >= 20 * 8, "{} renewals", a.stats().renewals);
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_delays_only_its_own_claims() {
    let mut cluster = RedisCluster::start();
    let slow = locks(&cluster.url(), ms(8000), ms(4000));
    let quick = slow.configure(|o| o.ttl(ms(1500))).unwrap();
    let nodes = &*cluster.primaries();
    for node in nodes {
        // No node is to be declared dead.
        said_ok(node, &["CONFIG", "SET", "cluster-node-timeout", "30000"]);
    }
    let (here, there) = (keys_on(nodes, 0, 3), keys_on(nodes, 1, 3));
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for (here, there) in here.iter().zip(&there) {
        own.push(lock(&slow, here).await);
        others.push(lock(&quick, there).await);
    }
    let free = keys_on(nodes, 2, 1).remove(0);
    nodes[0].pause();
    // A client asks the node that hangs, all the while.
    let (other, hung) = (slow.clone(), here[0].clone());
    let asking = tokio::spawn(async move { other.inspect(hung).await.is_ok() });
    let (began, mut slowest) = (Instant::now(), ms(0));
    while began.elapsed() < ms(3500) {
        let asked = Instant::now();
        let guard = quick.mutex(free.as_str()).unwrap().try_lock().await;
        let guard = guard.unwrap_or_else(|error| panic!("after {:?}: {error}", began.elapsed()));
        guard.release().await.unwrap();
        slowest = slowest.max(asked.elapsed());
        pass(ms(50)).await;
    }
    nodes[0].resume();
    asking.await.unwrap();
    assert!(slowest < ms(1000), "another node was asked for {slowest:?}");
    assert!(others.iter().all(Guard::is_held), "held on other nodes");
    all_renewed(&slow, &own, ms(8000)).await;
    assert_eq!(slow.stats().losses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_a_node_that_hangs_ends_in_time() {
    let mut cluster = RedisCluster::start();
    let a = locks(&cluster.url(), ms(8000), ms(4000));
    let nodes = &*cluster.primaries();
    for node in nodes {
        said_ok(node, &["CONFIG", "SET", "cluster-node-timeout", "30000"]);
    }
    let key = keys_on(nodes, 0, 1).remove(0);
    lock(&a, &key).await.release().await.unwrap();
    nodes[0].pause();
    let began = Instant::now();
    let error = a.mutex(key.as_str()).unwrap().try_lock().await.unwrap_err();
    let took = began.elapsed();
    nodes[0].resume();
    assert!(error.is_transient(), "{error}");
    assert!(took < ms(2500), "one attempt with a response timeout of 400 ms took {took:?}");
}
