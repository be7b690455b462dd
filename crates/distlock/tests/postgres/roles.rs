//! Who may do what: roles without rights, the printed schema, versions, and several schemas.

use distlock::backends::postgres;
use distlock_core::{Backend, FaultKind};
use distlock_testkit::servers::PostgresServer;
use futures_util::future::join_all;

use crate::support::{ask, granted, open, patient, queued, release, waits};

#[tokio::test]
async fn a_role_that_only_reads_and_writes_rows_can_lock() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE app LOGIN");
    server.sql(&postgres::schema_sql("distlock").unwrap());
    server.sql(
        "GRANT USAGE ON SCHEMA distlock TO app; \
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA distlock TO app",
    );
    let client = patient(&server.url_of("app"));
    let (holder, waiter) = (ask("k"), queued("k"));
    granted(&client, &holder).await;
    waits(&client, &waiter).await;
    release(&client, &holder).await;
    assert_eq!(client.inspect(&holder.claim.key).await.unwrap().holders_total, 1);
    client.probe().await.unwrap();
}

#[tokio::test]
async fn a_role_that_may_not_create_the_tables_is_told_how_to_get_them() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE app LOGIN");
    let fault = patient(&server.url_of("app")).acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
    assert!(fault.to_string().contains("distlock schema postgres"), "{fault}");
    // The tables are there, but not for this role.
    server.sql(&postgres::schema_sql("distlock").unwrap());
    let fault = patient(&server.url_of("app")).acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
    assert!(fault.to_string().contains("grant"), "{fault}");
}

#[tokio::test]
async fn clients_that_come_at_the_same_time_make_the_tables_once() {
    let server = PostgresServer::start();
    let clients: Vec<_> = (0..12).map(|_| patient(&server.url())).collect();
    let asks: Vec<_> = (0..12).map(|at| ask(&format!("k{at}"))).collect();
    join_all(clients.iter().zip(&asks).map(|(client, ask)| granted(client, ask))).await;
    assert_eq!(server.sql("SELECT count(*) FROM distlock.meta"), "1");
}

#[tokio::test]
async fn schemas_do_not_meet() {
    let server = PostgresServer::start();
    let of =
        |schema: &str| open(&format!("{}?schema={schema}&response_timeout_ms=10000", server.url()));
    granted(&of("one"), &ask("k")).await;
    granted(&of("two"), &ask("k")).await;
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let server = PostgresServer::start();
    server.sql(&postgres::schema_sql("distlock").unwrap());
    server.sql("UPDATE distlock.meta SET version = 99");
    let fault = patient(&server.url()).acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Permanent, "{fault}");
    assert!(fault.to_string().contains("newer version"), "{fault}");
}

#[tokio::test]
async fn replicas_are_counted_only_for_a_role_that_may_see_them() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE app LOGIN");
    server.sql(&postgres::schema_sql("distlock").unwrap());
    server.sql(
        "GRANT USAGE ON SCHEMA distlock TO app; \
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA distlock TO app",
    );
    let client = patient(&server.url_of("app"));
    let held = ask("k");
    granted(&client, &held).await;
    let renewal = distlock_core::Renewal::hold(held.claim.clone(), crate::support::LONG);
    let fault = client.extensions().confirm(&renewal, 1).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
    assert!(fault.to_string().contains("pg_read_all_stats"), "{fault}");
}

#[tokio::test]
async fn wrong_logins_and_databases_are_named() {
    let server = PostgresServer::start();
    let stranger = patient(&server.url_of("stranger")).acquire(&ask("k")).await.unwrap_err();
    assert_eq!(stranger.kind(), FaultKind::Denied, "{stranger}");
    let url = format!("postgres://postgres@127.0.0.1:{}/nowhere", server.port());
    let nowhere = patient(&url).acquire(&ask("k")).await.unwrap_err();
    assert_eq!(nowhere.kind(), FaultKind::Permanent, "{nowhere}");
    assert!(nowhere.to_string().contains("create the database"), "{nowhere}");
    let socket = server.socket_folder().display().to_string();
    let url = format!("postgres:///postgres?host={socket}&port={}&user=postgres", server.port());
    let client = open(&(url + "&response_timeout_ms=10000"));
    granted(&client, &ask("k")).await;
}
