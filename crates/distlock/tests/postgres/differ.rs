//! The rows against the law: the same random operations, compared step by step.

use std::sync::Arc;
use std::time::Duration;

use distlock::Order;
use distlock::backends::{Postgres, postgres};
use distlock_core::Backend;
use distlock_testkit::differ::Differ;
use distlock_testkit::servers::PostgresServer;
use tokio_postgres::NoTls;

/// Operations per order; a tenth of what `DISTLOCK_DIFFER_STEPS` asks of quicker stores, and
/// `DISTLOCK_SOAK` multiplies.
const STEPS: u64 = 2_000;
const STEPS_A_RUN: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn runs() -> u64 {
    let steps = number("DISTLOCK_DIFFER_STEPS").map_or(STEPS, |steps| steps / 10);
    (steps / STEPS_A_RUN).max(1) * number("DISTLOCK_SOAK").unwrap_or(1)
}

async fn does_not_differ(order: Order) {
    let server = PostgresServer::start();
    server.sql(&postgres::schema_sql("distlock").unwrap());
    server.stop_clock();
    let (hands, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let url = server.url() + "?response_timeout_ms=5000";
    for seed in 0..runs() {
        let client = |_| Arc::new(Postgres::open(&url).unwrap()) as Arc<dyn Backend>;
        let clients: Vec<_> = (0..3).map(client).collect();
        let pass = async |while_: Duration| {
            let us = i64::try_from(while_.as_micros()).unwrap();
            let sql = format!("UPDATE distlock.test_clock SET us = us + {us}");
            hands.batch_execute(&sql).await.unwrap();
        };
        let report = Differ::new(seed, order).steps(STEPS_A_RUN).run(&clients, pass).await;
        if seed == 0 {
            println!("{order}: {report:?}");
        }
    }
}

#[tokio::test]
async fn rows_do_not_differ_from_the_law_in_fifo_order() {
    does_not_differ(Order::Fifo).await;
}

#[tokio::test]
async fn rows_do_not_differ_from_the_law_when_writers_go_first() {
    does_not_differ(Order::PreferWriters).await;
}

#[tokio::test]
async fn rows_do_not_differ_from_the_law_when_readers_go_first() {
    does_not_differ(Order::PreferReaders).await;
}
