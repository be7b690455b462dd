//! Many clients, every kind of lock, one bad network, one simulated clock: what clients see breaks
//! no rule, no client is stuck, and nothing is left. And stores with a bug in them are found out.

#![allow(clippy::unwrap_used, reason = "tests")]

mod client;
mod many_keys;
mod minimal;
mod planted;
mod witness;
mod world;

use std::time::{Duration, Instant};

use planted::Bug;
use tokio::runtime::Builder;
use world::{Summary, World};

/// Seeds in CI, times `DISTLOCK_SOAK`.
const SEEDS: u64 = 300;

/// How often `DISTLOCK_SIM_SEED` is run: claim ids are random, so one run is not quite another.
const REPLAYS: u64 = 50;

/// A planted bug is found within this many seeds.
const FOUND_WITHIN: u64 = 30;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Runs the world of one seed in simulated time.
fn run(seed: u64, bug: Bug) -> Result<Summary, Vec<String>> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { World::new(seed, bug).run().await })
}

#[test]
fn clients_in_a_bad_world_break_no_rule() {
    let began = Instant::now();
    let seeds: Vec<u64> = match number("DISTLOCK_SIM_SEED") {
        Some(seed) => vec![seed; usize::try_from(REPLAYS).unwrap()],
        None => (0..SEEDS * number("DISTLOCK_SOAK").unwrap_or(1)).collect(),
    };
    let mut sum = Summary::default();
    let mut failed = Vec::new();
    for &seed in &seeds {
        match run(seed, Bug::None) {
            Ok(summary) => sum.add(&summary),
            Err(wrong) => {
                failed.push(format!("DISTLOCK_SIM_SEED={seed}\n  {}", wrong.join("\n  ")));
            }
        }
    }
    println!("{} seeds in {:.1?}: {sum:?}", seeds.len(), began.elapsed());
    let shown = failed.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{shown}", failed.len(), seeds.len());
    sum.is_worth_something();
}

#[test]
fn pushes_from_the_past_are_ignored() {
    for seed in 0..40 {
        let outcome = run(seed, Bug::PushesThePast);
        assert!(outcome.is_ok(), "seed {seed}: {outcome:#?}");
    }
}

/// One test for each bug: some seed finds it, with a word that says what is wrong.
macro_rules! finds {
    ($($name:ident: $bug:ident => $word:literal,)*) => {$(
        #[test]
        fn $name() {
            let found = |seed: &u64| match run(*seed, Bug::$bug) {
                Err(wrong) => wrong.iter().any(|what| what.contains($word)),
                Ok(_) => false,
            };
            let at = (0..FOUND_WITHIN).find(found);
            let seed = at.expect("no seed finds the planted bug");
            println!("{:?}: found as {:?} by seed {seed}", Bug::$bug, $word);
        }
    )*};
}

finds! {
    a_store_that_renews_what_is_gone_is_found_out: RenewsTheGone => "exclusion",
    a_store_that_grants_twice_is_found_out: GrantsTwice => "exclusion",
    a_store_that_pushes_too_early_is_found_out: PushesTooEarly => "exclusion",
    a_store_that_repeats_fences_is_found_out: RepeatsFences => "fence",
    a_store_that_shortens_leases_is_found_out: ShortensLeases => "exclusion",
    a_store_that_tells_nobody_is_found_out: TellsNobody => "stuck",
    a_store_whose_clock_runs_fast_is_found_out: RunsFast => "exclusion",
    a_store_whose_clock_stands_still_is_found_out: StandsStill => "left at the store",
    clients_that_ignore_their_loss_are_found_out: ClientsIgnoreLoss => "exclusion",
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.losses += other.losses;
        self.refusals += other.refusals;
        self.cancellations += other.cancellations;
        self.breaks += other.breaks;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.leaks += other.leaks;
        self.places_lost += other.places_lost;
        self.simulated += other.simulated;
    }

    /// Nothing went wrong because nothing happened: not here.
    fn is_worth_something(&self) {
        let Self { grants, losses, refusals, cancellations, breaks, .. } = *self;
        assert!(
            [grants, losses, refusals, cancellations, breaks].iter().all(|n| *n > 100),
            "{self:?}"
        );
        let Self { crashes, pauses, leaks, places_lost, .. } = *self;
        assert!([crashes, pauses, leaks, places_lost].iter().all(|n| *n > 20), "{self:?}");
        assert!(self.simulated > Duration::from_secs(1_000), "{self:?}");
    }
}
