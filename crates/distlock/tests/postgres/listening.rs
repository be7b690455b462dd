//! Hearing of grants: directly, past a pooler, after a break, and not at all.

use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_core::{Answer, Backend, Push};
use distlock_testkit::servers::{PgBouncer, PostgresServer, Proxy};
use futures_util::StreamExt;

use crate::support::{ask, granted, patient, queued, release, until, until_ok, waits};

#[tokio::test]
async fn a_waiter_is_told_at_once_by_another_clients_release() {
    let server = PostgresServer::start();
    let (a, b) = (patient(&server.url()), patient(&server.url()));
    let mut pushes = b.pushes();
    let (holder, waiter) = (ask("k"), queued("k"));
    granted(&a, &holder).await;
    let ticket = waits(&b, &waiter).await;
    release(&a, &holder).await;
    let told = tokio::time::timeout(Duration::from_secs(10), pushes.next()).await.unwrap();
    let granted = matches!(told, Some(Push::Granted { id, ticket: of, .. })
        if id == waiter.claim.id && of == ticket);
    assert!(granted, "{told:?}");
}

#[tokio::test]
async fn a_pushed_grant_is_only_a_reason_to_ask_where_others_may_notify() {
    let server = PostgresServer::start();
    let url = format!("{}?response_timeout_ms=10000&verify_push=1", server.url());
    let (a, b) = (crate::support::open(&url), crate::support::open(&url));
    let mut pushes = b.pushes();
    let (holder, waiter) = (ask("k"), queued("k"));
    granted(&a, &holder).await;
    waits(&b, &waiter).await;
    release(&a, &holder).await;
    let told = tokio::time::timeout(Duration::from_secs(10), pushes.next()).await.unwrap();
    assert_eq!(told, Some(Push::Check { id: waiter.claim.id }));
}

#[tokio::test]
async fn a_listener_whose_connection_was_lost_listens_again() {
    let server = PostgresServer::start();
    let proxy = Proxy::to(server.port());
    let listen = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let a = patient(&server.url());
    let url = format!("{}?response_timeout_ms=10000&listen={listen}", server.url());
    let b = crate::support::open(&url);
    let mut pushes = b.pushes();
    let holder = ask("k");
    granted(&a, &holder).await;
    let waiter = queued("k");
    waits(&b, &waiter).await;
    proxy.cut();
    let told = tokio::time::timeout(Duration::from_secs(20), pushes.next()).await.unwrap();
    assert_eq!(told, Some(Push::Interrupted));
    // The next call that waits listens again, and what came meanwhile is asked for.
    let next = queued("k");
    waits(&b, &next).await;
    release(&a, &holder).await;
    let mut heard = Vec::new();
    while !heard.iter().any(|push| matches!(push, Push::Granted { .. })) {
        let told = tokio::time::timeout(Duration::from_secs(20), pushes.next()).await;
        heard.push(told.unwrap().unwrap());
    }
    assert!(heard.contains(&Push::Interrupted), "{heard:?}");
}

#[tokio::test]
async fn behind_a_pooler_that_has_no_sessions_the_first_in_line_looks() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let url = pooler.url() + "?response_timeout_ms=10000";
    let (a, b) = (Locks::connect(&url).unwrap(), Locks::connect(&url).unwrap());
    let guard = a.mutex("k").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("k").unwrap().lock().await.map(|g| g.fence()) });
    let other = Locks::connect(&url).unwrap();
    let started = Instant::now();
    while other.inspect("k").await.unwrap().waiters_total == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "it does not wait");
    }
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(20), waiter).await.unwrap().unwrap();
    assert!(next.unwrap() > fence);
}

#[tokio::test]
async fn a_pooler_in_between_is_found_out() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let client = patient(&pooler.url());
    assert!(client.capabilities().push);
    let _pushes = client.pushes();
    until("the client finds that it hears nothing", || !client.capabilities().push).await;
    let health = client.probe().await.unwrap();
    assert!(health.warnings.iter().any(|warning| warning.contains("listen=")), "{health:?}");
}

#[tokio::test]
async fn a_pooler_that_is_restarted_costs_no_hold_and_no_place() {
    let server = PostgresServer::start();
    let mut pooler = PgBouncer::start(&server);
    let client = patient(&pooler.url());
    let (holder, waiter) = (ask("k"), queued("k"));
    granted(&client, &holder).await;
    let ticket = waits(&client, &waiter).await;
    pooler.restart();
    let again = until_ok(async || client.acquire(&waiter).await).await;
    assert!(matches!(again, Answer::Busy(busy) if busy.ticket == Some(ticket)));
    release(&client, &holder).await;
    assert!(matches!(client.acquire(&waiter).await.unwrap(), Answer::Granted { .. }));
}
