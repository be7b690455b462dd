//! How long a wait will still take, where the past of a key allows a guess.

use std::time::Duration;

use distlock::{HoldRecord, HoldRecordState, Mode};

/// How many visits are looked at.
pub(super) const RECENT_HOLDS_MAX: usize = 30;

/// Fewer holds than this say nothing about the next.
const HOLDS_MIN: usize = 3;

/// How long a key is usually held, shortest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsualHolds(Vec<Duration>);

impl UsualHolds {
    /// From the past of a key. Only holds that were released tell how long the work takes.
    pub(super) fn of(visits: &[HoldRecord]) -> Self {
        let released = visits.iter().filter(|visit| {
            visit.mode == Mode::Exclusive && matches!(visit.state, HoldRecordState::Released)
        });
        Self::from_holds(released.filter_map(|visit| visit.held).collect())
    }

    fn from_holds(mut holds: Vec<Duration>) -> Self {
        holds.sort_unstable();
        Self(holds)
    }

    /// How long until it is our turn, with one who has held for so long and so many ahead of us.
    /// None if it is unknown: too little is known, or this hold outlasts all that are known.
    pub(super) fn left(&self, held_for: Duration, ahead: u64) -> Option<Duration> {
        if self.0.len() < HOLDS_MIN {
            return None;
        }
        // Of the holds that lasted longer than this one so far, half end before the middle one.
        let shorter = self.0.partition_point(|hold| *hold <= held_for);
        let this = middle(&self.0[shorter..])?.saturating_sub(held_for);
        let others = middle(&self.0)?.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
        Some(this.saturating_add(others))
    }
}

fn middle(sorted: &[Duration]) -> Option<Duration> {
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_made_from_holds_that_lasted_longer_and_only_then() {
        let seconds = Duration::from_secs;
        let usual = UsualHolds::from_holds([60, 10, 30, 20, 100].map(seconds).into());
        for (held_for, ahead, left) in [
            (0, 0, Some(30)),
            (5, 0, Some(25)),
            // Of 30, 60 and 100 the middle one.
            (25, 0, Some(35)),
            (25, 2, Some(35 + 2 * 30)),
            (99, 0, Some(1)),
            (100, 0, None),
            (500, 3, None),
        ] {
            let guess = usual.left(seconds(held_for), ahead);
            assert_eq!(guess, left.map(seconds), "held for {held_for}, {ahead} ahead");
        }
        let few = UsualHolds::from_holds([10, 20].map(seconds).into());
        assert_eq!(few.left(seconds(1), 0), None);
        assert!(usual.left(seconds(1), u64::MAX).is_some(), "no overflow");
    }
}
