//! A primary of a cluster dies and its replica takes over.

use distlock::HoldEnd;
use distlock_testkit::servers::{RedisCluster, RedisServer, RedisServerOptions};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_failover_loses_no_replicated_hold_and_no_place() {
    let mut cluster = RedisCluster::start_with_replicas();
    let url = cluster.url();
    let (a, b) = (locks(&url, ms(10_000), ms(10_000)), locks(&url, ms(10_000), ms(10_000)));
    let others = locks(&url, ms(6000), ms(2000));
    let nodes = &*cluster.primaries();
    let key = keys_on(nodes, 0, 1).remove(0);
    let guards = [lock(&a, &key).await];
    let mut elsewhere = Vec::new();
    for key in [keys_on(nodes, 1, 2), keys_on(nodes, 2, 2)].concat() {
        elsewhere.push(lock(&others, &key).await);
    }
    let next = wait(&b, &key);
    queued(&a, &key, 1).await;
    // An operator who wants that locks elsewhere go on sets this.
    for node in cluster.primaries() {
        said_ok(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    pass(ms(200)).await;
    cluster.primaries()[0].kill();
    pass(ms(500)).await;
    said_ok(&cluster.replicas()[0], &["CLUSTER", "FAILOVER", "TAKEOVER"]);
    all_renewed(&others, &elsewhere, ms(6000)).await;
    all_renewed(&a, &guards, ms(10_000)).await;
    all_renewed(&others, &elsewhere, ms(6000)).await;
    let [first] = guards;
    let fence = first.fence();
    assert_eq!(fence_at(&cluster.replicas()[0], &key), Some(fence));
    assert_eq!(first.release().await.unwrap(), HoldEnd::Released);
    let next = got(next, ms(15_000)).await;
    assert!(next.fence() > fence);
    assert_eq!((b.stats().places_lost, others.stats().losses), (0, 0));
}

/// A node that joins the cluster, or has lost its way, answers that no slot has an owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_node_that_knows_no_slots_fails_no_call() {
    let cluster = RedisCluster::start();
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let args = ["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()];
    let args = args.map(str::to_owned).to_vec();
    let blank = RedisServer::start_with(RedisServerOptions { args });
    let url = cluster.url().replace("://", &format!("://127.0.0.1:{},", blank.port()));
    for round in 0..12 {
        let a = patient(&url, 2000, ms(10_000), ms(4000));
        let guard = a.mutex("k").unwrap().try_lock_for(ms(5000)).await;
        let guard = guard.unwrap_or_else(|error| panic!("client {round}: {error}"));
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    }
}
