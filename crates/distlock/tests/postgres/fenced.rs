//! A program's own transactions that depend on a guard.

use std::time::Duration;

use distlock::Locks;
use distlock::backends::postgres::{StaleHold, fenced};
use distlock_core::{Answer, Backend, Standing};
use distlock_testkit::servers::PostgresServer;
use tokio_postgres::{Client, NoTls};

use crate::support::{ask, granted, open, patient, release, try_release, try_renew};

async fn session(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_transaction_of_a_guard_that_holds_is_committed() {
    let server = PostgresServer::start();
    let locks = Locks::connect(&(server.url() + "?response_timeout_ms=10000")).unwrap();
    let guard = locks.mutex("stock").unwrap().lock().await.unwrap();
    server.sql("CREATE TABLE stock AS SELECT 7 AS n");
    let mut client = session(&server).await;
    let transaction = client.transaction().await.unwrap();
    fenced(&transaction, "distlock", guard.key(), guard.fence()).await.unwrap();
    transaction.execute("UPDATE stock SET n = n - 1", &[]).await.unwrap();
    transaction.commit().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(server.sql("SELECT n FROM stock"), "6");
}

#[tokio::test]
async fn a_transaction_of_a_hold_that_has_ended_is_refused() {
    let server = PostgresServer::start();
    let locks = patient(&server.url());
    let (first, second) = (ask("k"), ask("k"));
    let old = granted(&locks, &first).await;
    release(&locks, &first).await;
    let new = granted(&locks, &second).await;
    let mut client = session(&server).await;
    let transaction = client.transaction().await.unwrap();
    let key = &first.claim.key;
    let refused = fenced(&transaction, "distlock", key, old).await.unwrap_err();
    assert!(matches!(refused, StaleHold::Lost { fence, .. } if fence == old), "{refused}");
    fenced(&transaction, "distlock", key, new).await.unwrap();
    drop(transaction);
    // Past its lease it is as good as gone, also if no client has asked since.
    server.pass(2 * crate::support::LONG);
    let transaction = client.transaction().await.unwrap();
    assert!(fenced(&transaction, "distlock", key, new).await.is_err());
}

#[tokio::test]
async fn a_hold_can_be_renewed_and_cannot_end_while_its_transaction_runs() {
    let server = PostgresServer::start();
    let (locks, hasty) = (patient(&server.url()), open(&server.url()));
    let held = ask("k");
    let fence = granted(&locks, &held).await;
    let mut client = session(&server).await;
    let transaction = client.transaction().await.unwrap();
    fenced(&transaction, "distlock", &held.claim.key, fence).await.unwrap();
    assert_eq!(try_renew(&hasty, &held).await.unwrap(), Standing::Held { fence });
    let busy = hasty.acquire(&ask("k")).await.unwrap();
    assert!(matches!(busy, Answer::Busy(_)), "others are answered meanwhile: {busy:?}");
    // Its lease ends, but the next grant has to wait for what the transaction writes.
    let taken = hasty.acquire(&ask("elsewhere")).await.unwrap();
    assert!(matches!(taken, Answer::Granted { .. }));
    let fault = try_release(&hasty, &held).await.unwrap_err();
    assert!(fault.is_transient(), "{fault}");
    transaction.commit().await.unwrap();
    let release = tokio::time::timeout(Duration::from_secs(20), release(&locks, &held)).await;
    release.unwrap();
}
