//! Chance that can be repeated: a seeded generator, and the seeds of the histories.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len() as u64) as usize) }
    }

    /// One of these numbers of milliseconds.
    pub(crate) fn millis(&mut self, from: &[u64]) -> Duration {
        Duration::from_millis(self.pick(from).copied().unwrap_or(1))
    }
}

/// Names the history that was running when a test, or the law itself, panics.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this happened in {}", self.0);
        }
    }
}

/// How many operations a history has. Short ones are easy to read and start afresh often.
pub(crate) const HISTORY_STEPS: usize = 500;

/// The seeds that make up `share` of the wanted number of operations, or the one to replay.
pub(crate) fn seeds(name: &str, share: f64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("DISTLOCK_LAW_SEED") {
        return vec![seed.parse().expect("DISTLOCK_LAW_SEED is a number")];
    }
    let steps = std::env::var("DISTLOCK_LAW_STEPS")
        .map_or(100_000, |steps| steps.parse().expect("DISTLOCK_LAW_STEPS is a number"));
    let histories = (steps as f64 * share / HISTORY_STEPS as f64).ceil() as u64;
    // Every test walks histories of its own.
    let salt = name.bytes().fold(7, |salt: u64, byte| salt.wrapping_mul(31) + u64::from(byte));
    let mut rng = Rng::new(salt);
    (0..histories.max(1)).map(|_| rng.next()).collect()
}
