//! The differ accepts a store that runs the law and finds one that does not.

mod support;

use std::time::Duration;

use distlock_core::Order;
use distlock_testkit::differ::{Differ, DifferReport};
use support::{Bug, Store};

const ORDERS: [Order; 3] = [Order::Fifo, Order::PreferWriters, Order::PreferReaders];

async fn run(seed: u64, order: Order, steps: u64, bug: Bug) -> DifferReport {
    let clients = Store::clients(3, bug);
    let pass = async |while_| tokio::time::advance(while_).await;
    Differ::new(seed, order).steps(steps).run(&clients, pass).await
}

#[tokio::test(start_paused = true)]
async fn a_store_that_runs_the_law_does_not_differ() {
    for order in ORDERS {
        for seed in 1..=5 {
            let report = run(seed, order, 4_000, Bug::None).await;
            assert_eq!((report.steps, report.episodes), (4_000, 20));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_answer_is_met() {
    let kinds = [
        "granted",
        "busy",
        "conflict",
        "full",
        "dead",
        "held",
        "waiting",
        "gone",
        "washeld",
        "waswaiting",
        "pushed",
        "broken",
    ];
    for order in ORDERS {
        let report = run(1, order, 4_000, Bug::None).await;
        for kind in kinds {
            assert!(report.count(kind) > 0, "{order} never met {kind}: {report:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_operations() {
    let first = run(9, Order::Fifo, 1_000, Bug::None).await;
    assert_eq!(first, run(9, Order::Fifo, 1_000, Bug::None).await);
    assert_ne!(first, run(10, Order::Fifo, 1_000, Bug::None).await);
}

#[tokio::test(start_paused = true)]
async fn every_planted_bug_is_found() {
    use Bug::*;
    for bug in [ForgetsWaiters, RepeatsFences, SwallowsPushes, IgnoresBury, GrantsEverything] {
        let found = tokio::spawn(async move { run(3, Order::Fifo, 2_000, bug).await }).await;
        let panic = found.expect_err("the bug must be found").into_panic();
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.contains("Differ::new(0x3, Order::Fifo)"), "{bug:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_runs_by_itself_does_not_differ() {
    let clients = Store::clients(2, Bug::None);
    let pass = async |while_| tokio::time::sleep(while_ + Duration::from_millis(3)).await;
    let differ = Differ::new(4, Order::PreferWriters).steps(400).clock_runs();
    assert_eq!(differ.run(&clients, pass).await.steps, 400);
}
