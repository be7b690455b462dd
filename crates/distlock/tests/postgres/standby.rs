//! The primary dies and a standby takes its place.

use distlock::{Durability, Error, Locks};
use distlock_core::{Answer, Backend, Confirmed, Renewal, Standing};
use distlock_testkit::servers::PostgresServer;

use crate::support::{LONG, ask, granted, open, patient, try_renew, until_ok};

fn both(primary: &PostgresServer, standby: &PostgresServer) -> String {
    format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        primary.port(),
        standby.port()
    )
}

#[tokio::test]
async fn a_grant_that_a_replica_confirmed_outlives_the_primary() {
    let mut primary = PostgresServer::start();
    let standby = primary.standby();
    let url = both(&primary, &standby);
    let locks = Locks::connect(&format!("{url}?response_timeout_ms=10000")).unwrap();
    let locks = locks.configure(|o| o.durability(Durability::Replicas(1))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(guard.replicas(), 1);
    primary.kill();
    standby.promote();
    let other = patient(&url);
    let busy = until_ok(async || other.acquire(&ask("k")).await).await;
    let Answer::Busy(busy) = busy else { panic!("the grant was forgotten: {busy:?}") };
    assert_eq!(busy.holder.unwrap().fence, guard.fence());
    let before = guard.fence();
    guard.release().await.unwrap();
    assert!(granted(&other, &ask("k")).await > before, "fences go on after the failover");
}

#[tokio::test]
async fn a_replica_that_does_not_follow_confirms_nothing() {
    let primary = PostgresServer::start();
    let standby = primary.standby();
    let client = open(&primary.url());
    let held = ask("k");
    granted(&client, &held).await;
    let renewal = Renewal::hold(held.claim.clone(), LONG);
    let confirmed = until_ok(async || client.extensions().confirm(&renewal, 1).await).await;
    assert_eq!(confirmed, Confirmed::By(1));
    standby.pause();
    granted(&client, &ask("later")).await;
    let confirmed = until_ok(async || client.extensions().confirm(&renewal, 1).await).await;
    assert_eq!(confirmed, Confirmed::By(0));
    standby.resume();
    let alone = PostgresServer::start();
    let locks = Locks::connect(&alone.url()).unwrap();
    let locks = locks.configure(|o| o.durability(Durability::Replicas(1))).unwrap();
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    let few = matches!(refused, Error::NotReplicated { confirmed: 0, wanted: 1, .. });
    assert!(few, "{refused}");
}

#[tokio::test]
async fn without_replicas_a_failover_may_forget_a_grant_and_fences_grow_all_the_same() {
    let mut primary = PostgresServer::start();
    let standby = primary.standby();
    let client = patient(&both(&primary, &standby));
    granted(&client, &ask("before")).await;
    primary.await_standbys(1);
    standby.pause();
    primary.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    let held = ask("k");
    let fence = granted(&client, &held).await;
    primary.kill();
    standby.resume();
    standby.promote();
    // The standby has never heard of it, and says so.
    let standing = until_ok(async || try_renew(&client, &held).await).await;
    assert_eq!(standing, Standing::Gone);
    // Its clock may be behind: this client asks for more than it has seen.
    standby.stop_clock();
    standby.move_clock(-3600.0);
    assert!(granted(&client, &ask("k")).await > fence);
}

#[tokio::test]
async fn a_server_that_only_reads_is_left_for_the_primary() {
    let mut primary = PostgresServer::start();
    let standby = primary.standby();
    let client = patient(&both(&standby, &primary));
    let held = ask("k");
    let fence = granted(&client, &held).await;
    primary.await_standbys(1);
    primary.kill();
    let fault = try_renew(&client, &held).await.unwrap_err();
    assert!(fault.is_transient(), "{fault}");
    standby.promote();
    let standing = until_ok(async || try_renew(&client, &held).await).await;
    assert_eq!(standing, Standing::Held { fence });
}

#[tokio::test]
async fn a_lone_standby_is_a_transient_fault_that_names_the_cure() {
    let primary = PostgresServer::start();
    let standby = primary.standby();
    let fault = patient(&standby.url()).acquire(&ask("k")).await.unwrap_err();
    assert!(fault.is_transient(), "{fault}");
    assert!(fault.to_string().contains("primary"), "{fault}");
}
