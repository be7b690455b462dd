//! What is shown is what the primaries say.

use std::collections::BTreeSet;

use distlock::Locks;
use distlock_testkit::servers::{RedisCluster, RedisServer};

use crate::support::*;

async fn listed(locks: &Locks) -> BTreeSet<String> {
    let (mut keys, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = locks.list("key", cursor.as_ref()).await.unwrap();
        keys.extend(page.locks.into_iter().map(|lock| lock.key.as_str().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return keys;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_and_list_ask_the_primaries_of_all_nodes() {
    let mut cluster = RedisCluster::start_with_replicas();
    let hosts: Vec<_> =
        cluster.replicas().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    // One client knows nothing but replicas.
    let (a, b) = (
        locks(&cluster.url(), ms(20_000), ms(4000)),
        locks(&format!("redis-cluster://{}", hosts.join(",")), ms(20_000), ms(4000)),
    );
    b.inspect("warm").await.unwrap();
    let nodes = &*cluster.primaries();
    let keys: Vec<_> = (0..3).flat_map(|node| keys_on(nodes, node, 10)).collect();
    for node in cluster.primaries() {
        said_ok(node, &["CONFIG", "SET", "cluster-node-timeout", "30000"]);
    }
    // Whatever is written from here on reaches no replica.
    cluster.replicas().iter().for_each(RedisServer::pause);
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(lock(&a, key).await);
        for locks in [&a, &b] {
            assert_eq!(locks.inspect(key.as_str()).await.unwrap().holders_total, 1, "{key}");
        }
    }
    let all: BTreeSet<_> = keys.into_iter().collect();
    assert_eq!(listed(&a).await, all);
    assert_eq!(listed(&b).await, all);
    for guard in guards {
        let key = guard.key().clone();
        guard.release().await.unwrap();
        for locks in [&a, &b] {
            assert!(locks.inspect(key.clone()).await.unwrap().is_free(), "{key}");
        }
    }
    assert!(listed(&a).await.is_empty() && listed(&b).await.is_empty());
}
