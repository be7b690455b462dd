//! Fences on a cluster whose nodes lose what they gave out.

use distlock_testkit::servers::RedisCluster;

use crate::support::*;

/// A primary that lost its data stands for a replica that took over without the last grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_for_a_client_that_saw_what_a_node_of_a_cluster_lost() {
    let mut cluster = RedisCluster::start();
    let a = locks(&cluster.url(), ms(8000), ms(4000));
    let keys: Vec<_> = (0..3).map(|node| keys_on(cluster.primaries(), node, 1).remove(0)).collect();
    lock(&a, &keys[0]).await.release().await.unwrap();
    // The clock of the node is behind what it has given out by an hour.
    let node = &cluster.primaries()[0];
    let counter = format!("distlock:{{{}}}:f", keys[0]);
    let last = node.command(&["GET", &counter]).lines().nth(1).unwrap().parse::<u64>().unwrap();
    let ahead = last + 3_600_000_000;
    said_ok(node, &["SET", &counter, &ahead.to_string(), "KEEPTTL"]);
    let first = lock(&a, &keys[0]).await;
    assert!(first.fence() > ahead);
    said_ok(node, &["FLUSHALL"]);
    // All kinds of asks, on all nodes: of a free key, of one with side keys, and from the queue.
    for key in &keys {
        let next = a.mutex(key).unwrap().try_lock_for(ms(20_000)).await.unwrap();
        assert!(next.fence() > first.fence(), "{key}: {} after {}", next.fence(), first.fence());
        let waiting = wait(&a, key);
        queued(&a, key, 1).await;
        let fence = next.fence();
        next.release().await.unwrap();
        assert!(got(waiting, ms(10_000)).await.fence() > fence);
        let reader = a.rwlock(key).unwrap().read().await.unwrap();
        assert!(reader.fence() > fence);
    }
}
