//! The rows against the law: the same random operations, compared step by step.

use std::sync::Arc;

use distlock::backends::Sqlite;
use distlock_core::{Backend, ManualClock, Order};
use distlock_testkit::differ::Differ;
use distlock_testkit::servers::TempFolder;

/// Operations per seed.
const STEPS: u64 = 2_000;

/// Seeds per order, times `DISTLOCK_SOAK`.
const SEEDS: u64 = 3;

async fn does_not_differ(order: Order) {
    let soak = std::env::var("DISTLOCK_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 0..SEEDS * soak {
        let (folder, clock) = (TempFolder::new(), ManualClock::new());
        let file = folder.path().join("locks.db");
        let client = |_| {
            let client = Sqlite::with_clock(&file, "one", Arc::new(clock.clone()));
            Arc::new(client.unwrap()) as Arc<dyn Backend>
        };
        let clients: Vec<_> = (0..3).map(client).collect();
        let pass = async |while_| clock.advance(while_);
        let report = Differ::new(seed, order).steps(STEPS).run(&clients, pass).await;
        if seed == 0 {
            println!("{order}: {report:?}");
        }
    }
}

#[tokio::test]
async fn rows_do_not_differ_from_the_law_first_come_first_served() {
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
