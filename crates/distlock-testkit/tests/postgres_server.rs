//! The PostgreSQL servers of the harness do what tests rely on.

use distlock_testkit::servers::{PgBouncer, PostgresServer};

#[test]
fn a_server_that_was_killed_starts_again_with_what_it_had() {
    let mut server = PostgresServer::start();
    server.sql("CREATE TABLE t AS SELECT 7 AS n");
    server.kill();
    assert!(server.try_sql("SELECT 1").is_err());
    server.restart();
    assert_eq!(server.sql("SELECT n FROM t"), "7");
    server.stop();
    assert!(server.try_sql("SELECT 1").is_err());
}

#[test]
fn a_standby_follows_and_can_be_promoted() {
    let mut primary = PostgresServer::start();
    let standby = primary.standby();
    primary.sql("CREATE TABLE t AS SELECT 7 AS n");
    primary.await_standbys(1);
    assert_eq!(standby.sql("SELECT n FROM t"), "7");
    assert!(standby.try_sql("DELETE FROM t").is_err());
    primary.kill();
    standby.promote();
    standby.sql("DELETE FROM t");
}

#[test]
fn a_pooler_is_in_front_of_its_server() {
    let server = PostgresServer::start();
    let mut pooler = PgBouncer::start(&server);
    let ask = || {
        let args = ["-X", "-A", "-t", "-c", "SELECT inet_server_port()", "-d"];
        let psql = std::process::Command::new("psql").args(args).arg(pooler.url()).output();
        String::from_utf8_lossy(&psql.expect("psql is installed").stdout).trim().to_owned()
    };
    assert_eq!(ask(), server.port().to_string());
    pooler.restart();
}
