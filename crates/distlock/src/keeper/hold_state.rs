//! Held until when, or ended how: one word that goes one way.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::Moment;

use crate::LossReason;

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldEnd {
    /// Its guard was released or dropped.
    Released,
    /// It was lost.
    Lost(LossReason),
}

impl HoldEnd {
    /// Why it was lost, if it was.
    pub(crate) fn loss(self) -> Option<LossReason> {
        match self {
            Self::Lost(reason) => Some(reason),
            Self::Released => None,
        }
    }
}

/// Everything at or above this is an [`HoldEnd`]; everything below, a moment in microseconds.
const ENDS: u64 = u64::MAX - 15;

/// The atomic operations the latch is built on, so that a model checker can stand in for them.
pub(crate) trait StateWord {
    fn new(value: u64) -> Self;
    fn load(&self) -> u64;
    fn swap_if(&self, current: u64, new: u64) -> Result<u64, u64>;
}

impl StateWord for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// The state of a hold, in a single word.
///
/// The word is the moment until which the hold is valid, or how it ended. Because validity and
/// state are one word, no caller can see a hold that is held and past its validity, and a renewal
/// that is confirmed too late cannot bring an ended hold back.
#[derive(Debug)]
pub(crate) struct HoldState<W = AtomicU64>(W);

impl<W: StateWord> HoldState<W> {
    pub(crate) fn new(until: Moment) -> Self {
        Self(W::new(until.as_micros().min(ENDS - 1)))
    }

    /// Until when the hold is valid, or how it ended. Looking does not end a hold; see
    /// [`HoldState::check`].
    pub(crate) fn read(&self) -> Result<Moment, HoldEnd> {
        decode(self.0.load())
    }

    /// Valid until when? Ends the hold for `reason` if its time has passed; `true` says so.
    pub(crate) fn check(&self, now: Moment, reason: LossReason) -> (Result<Moment, HoldEnd>, bool) {
        loop {
            let word = self.0.load();
            match decode(word) {
                Ok(until) if until <= now => {
                    let end = HoldEnd::Lost(reason);
                    if self.0.swap_if(word, encode(end)).is_ok() {
                        return (Err(end), true);
                    }
                }
                state => return (state, false),
            }
        }
    }

    /// Moves the end of validity later. Refused once the hold has ended or its time has passed.
    pub(crate) fn extend(&self, until: Moment, now: Moment) -> bool {
        let until = until.as_micros().min(ENDS - 1);
        loop {
            let word = self.0.load();
            if word >= ENDS || word <= now.as_micros() {
                return false;
            }
            if word >= until || self.0.swap_if(word, until).is_ok() {
                return true;
            }
        }
    }

    /// A release found nothing to release: the hold had been lost before.
    pub(crate) fn amend(&self, reason: LossReason) {
        // Only the one release can amend, so there is no race.
        let _ = self.0.swap_if(encode(HoldEnd::Released), encode(HoldEnd::Lost(reason)));
    }

    /// Ends the hold. True if this call did; false if it had ended before.
    pub(crate) fn end(&self, end: HoldEnd) -> bool {
        loop {
            let word = self.0.load();
            if word >= ENDS {
                return false;
            }
            if self.0.swap_if(word, encode(end)).is_ok() {
                return true;
            }
        }
    }
}

fn encode(end: HoldEnd) -> u64 {
    ENDS + match end {
        HoldEnd::Released => 0,
        HoldEnd::Lost(LossReason::Expired) => 1,
        HoldEnd::Lost(LossReason::Unreachable) => 2,
        HoldEnd::Lost(LossReason::Gone) => 3,
        HoldEnd::Lost(LossReason::Broken) => 4,
        HoldEnd::Lost(LossReason::MaxHold) => 5,
        HoldEnd::Lost(LossReason::Closed) => 6,
        HoldEnd::Lost(LossReason::TooSlow) => 7,
        HoldEnd::Lost(LossReason::Cancelled) => 8,
    }
}

fn decode(word: u64) -> Result<Moment, HoldEnd> {
    let Some(code) = word.checked_sub(ENDS) else { return Ok(Moment::from_micros(word)) };
    Err(match code {
        0 => HoldEnd::Released,
        1 => HoldEnd::Lost(LossReason::Expired),
        2 => HoldEnd::Lost(LossReason::Unreachable),
        4 => HoldEnd::Lost(LossReason::Broken),
        5 => HoldEnd::Lost(LossReason::MaxHold),
        6 => HoldEnd::Lost(LossReason::Closed),
        7 => HoldEnd::Lost(LossReason::TooSlow),
        8 => HoldEnd::Lost(LossReason::Cancelled),
        _ => HoldEnd::Lost(LossReason::Gone),
    })
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as LoomU64;
    use loom::thread;

    use super::*;

    impl StateWord for LoomU64 {
        fn new(value: u64) -> Self {
            Self::new(value)
        }

        fn load(&self) -> u64 {
            self.load(Ordering::Acquire)
        }

        fn swap_if(&self, current: u64, new: u64) -> Result<u64, u64> {
            self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
        }
    }

    const AT: fn(u64) -> Moment = Moment::from_micros;

    #[test]
    fn every_end_survives_the_encoding() {
        use LossReason::{Broken, Cancelled, Closed, Expired, Gone, MaxHold, TooSlow, Unreachable};
        let reasons = [Expired, Unreachable, Gone, Broken, MaxHold, Closed, TooSlow, Cancelled];
        for end in reasons.map(HoldEnd::Lost).into_iter().chain([HoldEnd::Released]) {
            let state: HoldState = HoldState::new(AT(5));
            assert!(state.end(end));
            assert_eq!(state.read(), Err(end));
        }
    }

    #[test]
    fn a_release_that_found_nothing_is_a_loss() {
        let state: HoldState = HoldState::new(AT(5));
        state.end(HoldEnd::Released);
        state.amend(LossReason::Gone);
        assert_eq!(state.read(), Err(HoldEnd::Lost(LossReason::Gone)));
    }

    #[test]
    fn lost_is_final() {
        let state: HoldState = HoldState::new(AT(5));
        assert_eq!(state.check(AT(4), LossReason::Expired), (Ok(AT(5)), false));
        assert_eq!(
            state.check(AT(5), LossReason::Expired),
            (Err(HoldEnd::Lost(LossReason::Expired)), true)
        );
        assert!(!state.extend(AT(50), AT(4)), "an ended hold was extended");
        assert!(!state.end(HoldEnd::Released));
        assert_eq!(
            state.check(AT(1), LossReason::Expired),
            (Err(HoldEnd::Lost(LossReason::Expired)), false)
        );
    }

    #[test]
    fn a_renewal_confirmed_too_late_does_not_count() {
        let state: HoldState = HoldState::new(AT(5));
        assert!(!state.extend(AT(50), AT(5)));
        assert_eq!(state.read(), Ok(AT(5)), "no call has looked yet");
        assert!(state.check(AT(5), LossReason::Expired).1);
    }

    /// All interleavings of a renewal, a look at the clock and an end by another thread: exactly
    /// one of them ends the hold, and every answer "held" was given before the end.
    #[test]
    fn every_interleaving_ends_a_hold_once() {
        loom::model(|| {
            let state: Arc<HoldState<LoomU64>> = Arc::new(HoldState::new(AT(5)));
            let (renewing, ending) = (Arc::clone(&state), Arc::clone(&state));
            let renewer = thread::spawn(move || renewing.extend(AT(9), AT(4)));
            let ender = thread::spawn(move || ending.end(HoldEnd::Lost(LossReason::Gone)));
            let (seen, expired) = state.check(AT(6), LossReason::Expired);
            let (extended, ended) = (renewer.join().unwrap(), ender.join().unwrap());
            assert!(!(ended && expired), "ended twice");
            assert!(ended || expired, "no thread ended it");
            assert!(
                !(expired && extended),
                "extended after it had expired, or expired while valid"
            );
            if seen.is_ok() {
                assert!(extended && ended, "believed in a lease that was over");
            }
            assert!(state.read().is_err());
        });
    }

    #[test]
    fn every_interleaving_of_release_and_loss_has_one_winner() {
        loom::model(|| {
            let state: Arc<HoldState<LoomU64>> = Arc::new(HoldState::new(AT(5)));
            let releasing = Arc::clone(&state);
            let releaser = thread::spawn(move || releasing.end(HoldEnd::Released));
            let lost = state.end(HoldEnd::Lost(LossReason::Broken));
            assert_ne!(releaser.join().unwrap(), lost);
            let expected = if lost { HoldEnd::Lost(LossReason::Broken) } else { HoldEnd::Released };
            assert_eq!(state.read(), Err(expected));
        });
    }
}
