//! Wrong passwords are errors at once, and are shown nowhere.

use std::time::Instant;

use distlock_testkit::servers::{RedisCluster, RedisSentinel};

use crate::support::*;

const RIGHT: &str = "right-s3cret";
const WRONG: &str = "wr0ng-s3cret";

fn with_password(url: &str, password: &str) -> String {
    url.replace("://", &format!("://:{password}@"))
}

/// A call that may wait fails at once, and says why without saying the password.
async fn is_refused(url: &str) {
    let a = locks(&with_password(url, WRONG), ms(8000), ms(4000));
    let began = Instant::now();
    let error = a.mutex("k").unwrap().try_lock_for(ms(3000)).await.unwrap_err();
    for text in [error.to_string(), format!("{error:?}"), format!("{a:?}")] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(!error.is_transient(), "tried again for {:?}: {error}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_for_a_cluster_is_permanent_and_hidden() {
    let mut cluster = RedisCluster::start();
    let url = cluster.url();
    for node in cluster.primaries() {
        said_ok(node, &["CONFIG", "SET", "requirepass", RIGHT]);
    }
    let a = locks(&with_password(&url, RIGHT), ms(8000), ms(4000));
    lock(&a, "k").await.release().await.unwrap();
    is_refused(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_behind_sentinels_is_permanent_and_hidden() {
    let servers = RedisSentinel::start();
    said_ok(&servers.primary, &["CONFIG", "SET", "requirepass", RIGHT]);
    let a = locks(&with_password(&servers.url(), RIGHT), ms(8000), ms(4000));
    lock(&a, "k").await.release().await.unwrap();
    is_refused(&servers.url()).await;
}
