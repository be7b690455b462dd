//! Random operations on a backend, compared step by step with the law.

mod burst;
mod compare;
mod crowd;
mod episode;
mod inbox;
mod plan;
mod swap;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Backend, Order};

use crate::Rng;
use episode::Episode;

/// How many operations are made on one key before the next one is taken.
const EPISODE: u64 = 200;

/// Compares a backend with the [law](distlock_core::law), operation by operation.
///
/// The same random operations go to the backend and to a [`Record`](distlock_core::law::Record):
/// mutexes, readers and writers, groups, semaphores of several capacities, reentry, one-shots and
/// waiters, full queues, repeated asks, batches of renewals and of heartbeats, many keys at once,
/// downgrades, releases that keep or bury, breaks, looks. What the backend's capabilities lack is
/// left out. Compared are the kind of every answer, places, holders, snapshots, pushes, and fences
/// and tickets by their order (a store may start at any number).
///
/// Time at the store moves by the caller's `pass` function. Spans and passes are chosen so that no
/// operation comes within 50 ms of the end of anything, so the time that calls take does not
/// matter. If the store's clock also runs by itself, say so with [`Differ::clock_runs`].
///
/// ```
/// # async fn example(clients: Vec<std::sync::Arc<dyn distlock_core::Backend>>) {
/// use distlock_core::{ManualClock, Order};
/// use distlock_testkit::differ::Differ;
///
/// let clock = ManualClock::new(); // The one that the store was made with.
/// let report = Differ::new(42, Order::Fifo)
///     .steps(10_000)
///     .run(&clients, async |while_| clock.advance(while_))
///     .await;
/// assert_eq!(report.steps, 10_000);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Differ {
    seed: u64,
    order: Order,
    steps: u64,
    clock: StoreClock,
    push_within: Duration,
}

/// What moves the clock of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreClock {
    /// Nothing but `pass`.
    Stands,
    /// Real time, and `pass` on top of it.
    Runs,
}

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DifferReport {
    /// Operations made.
    pub steps: u64,
    /// Keys used.
    pub episodes: u64,
    /// How often each kind of answer was given, by its name in lower case: `granted`, `busy`,
    /// `conflict`, `full`, `dead`, `held`, `waiting`, `gone`, `washeld`, `waswaiting`, `pushed`,
    /// `broken`. Lets a test assert that it has seen what it came for.
    pub answers: BTreeMap<String, u64>,
}

impl DifferReport {
    /// How often this kind of answer was given.
    pub fn count(&self, kind: &str) -> u64 {
        self.answers.get(kind).copied().unwrap_or(0)
    }

    fn add(&mut self, kind: &str) {
        *self.answers.entry(kind.to_owned()).or_default() += 1;
    }
}

impl Differ {
    /// A comparison under one order. The same seed makes the same operations again.
    pub fn new(seed: u64, order: Order) -> Self {
        let push_within = Duration::from_secs(5);
        Self { seed, order, steps: 2_000, clock: StoreClock::Stands, push_within }
    }

    /// How many operations to make; 2,000 unless told.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// The store's clock runs by itself, too; `pass` moves it on top of that, or sleeps. A single
    /// call must then take less than 50 ms.
    #[must_use]
    pub fn clock_runs(mut self) -> Self {
        self.clock = StoreClock::Runs;
        self
    }

    /// How long to wait for a push before it counts as missing; 5 s unless told.
    #[must_use]
    pub fn push_within(mut self, push_within: Duration) -> Self {
        self.push_within = push_within;
        self
    }

    /// Compares. `clients` are several clients of one store that no other test uses under keys that
    /// begin with `differ/`; `pass` lets time pass at the store.
    ///
    /// # Panics
    ///
    /// On the first difference or fault, with the seed and the last operations.
    pub async fn run(
        &self,
        clients: &[Arc<dyn Backend>],
        mut pass: impl AsyncFnMut(Duration),
    ) -> DifferReport {
        assert!(!clients.is_empty(), "a comparison needs a client");
        let mut rng = Rng::new(self.seed);
        let mut report = DifferReport::default();
        while report.steps < self.steps {
            report.episodes += 1;
            let rng = Rng::new(rng.next_u64());
            let mut episode = Episode::new(self, clients, rng, report.episodes);
            for _ in 0..EPISODE.min(self.steps - report.steps) {
                episode.step(&mut pass, &mut report).await;
                report.steps += 1;
            }
            episode.finish(&mut pass, &mut report).await;
        }
        report
    }
}
