//! Sentinel and Cluster with TLS, for clients as well as among themselves.

use std::time::Duration;

use distlock::{Error, Locks};
use distlock_testkit::servers::{Certificates, ClientCertificates, RedisCluster, RedisSentinel};

use crate::servers::use_lock;

#[tokio::test]
async fn sentinels_and_their_primary_are_reached_over_tls_also_after_a_failover() {
    let certificates = Certificates::for_loopback();
    let mut sentinel = RedisSentinel::start_tls(&certificates, ClientCertificates::Required);
    let url = format!("{}?{}", sentinel.tls_url(), certificates.query_of_client());
    use_lock(&url).await;
    let locks = Locks::connect(&url).unwrap();
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    sentinel.primary.kill();
    let wait = Duration::from_secs(30);
    let guard = locks.mutex("k").unwrap().try_lock_for(wait).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls() {
    let certificates = Certificates::for_loopback();
    let cluster = RedisCluster::start_tls(&certificates, ClientCertificates::Required);
    let url = format!("{}?{}", cluster.tls_url(), certificates.query_of_client());
    use_lock(&url).await;
    let locks = Locks::connect(&url).unwrap();
    for index in 0..20 {
        let guard = locks.mutex(format!("key-{index}")).unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn sentinels_and_nodes_that_another_authority_signed_are_refused() {
    let (ours, theirs) = (Certificates::for_loopback(), Certificates::for_loopback());
    let sentinel = RedisSentinel::start_tls(&theirs, ClientCertificates::Ignored);
    let cluster = RedisCluster::start_tls(&theirs, ClientCertificates::Ignored);
    for url in [sentinel.tls_url(), cluster.tls_url()] {
        let locks = Locks::connect(&format!("{url}?{}", ours.query())).unwrap();
        let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
        assert!(matches!(refused, Error::Backend(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("certificate") && text.contains("127.0.0.1"), "{text}");
    }
}
