//! The memory store against the law: the same random operations, compared step by step.

use std::sync::Arc;
use std::time::Instant;

use distlock::backends::Memory;
use distlock_core::{Backend, ManualClock, Order};
use distlock_testkit::differ::{Differ, DifferReport};

/// Operations per seed.
const STEPS: u64 = 5_000;

/// Seeds per order, times `DISTLOCK_SOAK`.
const SEEDS: u64 = 20;

/// Every kind of answer that a comparison must have met to mean anything.
const KINDS: [&str; 12] = [
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

fn soak() -> u64 {
    std::env::var("DISTLOCK_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// One comparison on a store of its own. A difference panics with its seed.
async fn compare(seed: u64, order: Order) -> DifferReport {
    let clock = ManualClock::new();
    let store = Memory::with_clock(Arc::new(clock.clone()));
    let clients: Vec<Arc<dyn Backend>> =
        (0..3).map(|_| Arc::new(store.client()) as Arc<dyn Backend>).collect();
    let pass = async |while_| clock.advance(while_);
    Differ::new(seed, order).steps(STEPS).run(&clients, pass).await
}

/// All seeds of one order. Time is paused, so that waiting in vain for a push takes none.
async fn does_not_differ(order: Order) {
    let (began, seeds) = (Instant::now(), SEEDS * soak());
    let first = 1 + 1_000_000 * order as u64;
    let mut steps = 0;
    let mut met = DifferReport::default();
    for seed in first..first + seeds {
        let report = compare(seed, order).await;
        steps += report.steps;
        for (kind, count) in report.answers {
            *met.answers.entry(kind).or_default() += count;
        }
    }
    for kind in KINDS {
        assert!(met.count(kind) > 0, "{order}: never met {kind}: {met:?}");
    }
    assert_eq!(steps, STEPS * seeds);
    let took = began.elapsed();
    println!("{order}: {steps} operations, seeds {first:#x}+{seeds}, {took:.1?}");
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_differ_from_the_law_first_come_first_served() {
    does_not_differ(Order::Fifo).await;
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_differ_from_the_law_when_writers_go_first() {
    does_not_differ(Order::PreferWriters).await;
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_differ_from_the_law_when_readers_go_first() {
    does_not_differ(Order::PreferReaders).await;
}
