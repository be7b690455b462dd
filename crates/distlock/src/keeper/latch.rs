//! Held until when, or ended how: one word that goes one way.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::Moment;

use crate::Reason;

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Its guard was released or dropped.
    Released,
    /// It was lost.
    Lost(Reason),
}

impl End {
    /// Why it was lost, if it was.
    pub(crate) fn loss(self) -> Option<Reason> {
        match self {
            Self::Lost(reason) => Some(reason),
            Self::Released => None,
        }
    }
}

/// Everything at or above this is an [`End`]; everything below, a moment in microseconds.
const ENDS: u64 = u64::MAX - 15;

/// The atomic operations the latch is built on, so that a model checker can stand in for them.
pub(crate) trait Word {
    fn new(value: u64) -> Self;
    fn load(&self) -> u64;
    fn swap_if(&self, current: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
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
/// state are one word, nobody can see a hold that is held and past its validity, and a renewal
/// that is confirmed too late cannot bring an ended hold back.
#[derive(Debug)]
pub(crate) struct Latch<W = AtomicU64>(W);

impl<W: Word> Latch<W> {
    pub(crate) fn new(until: Moment) -> Self {
        Self(W::new(until.as_micros().min(ENDS - 1)))
    }

    /// Until when the hold is valid, or how it ended. Looking does not end a hold; see
    /// [`Latch::check`].
    pub(crate) fn read(&self) -> Result<Moment, End> {
        decode(self.0.load())
    }

    /// Valid until when? Ends the hold for `reason` if its time has passed; `true` says so.
    pub(crate) fn check(&self, now: Moment, reason: Reason) -> (Result<Moment, End>, bool) {
        loop {
            let word = self.0.load();
            match decode(word) {
                Ok(until) if until <= now => {
                    let end = End::Lost(reason);
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
    pub(crate) fn amend(&self, reason: Reason) {
        // Only the one release can amend, so there is nobody to race with.
        let _ = self.0.swap_if(encode(End::Released), encode(End::Lost(reason)));
    }

    /// Ends the hold. True if this call did; false if it had ended before.
    pub(crate) fn end(&self, end: End) -> bool {
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

fn encode(end: End) -> u64 {
    ENDS + match end {
        End::Released => 0,
        End::Lost(Reason::Expired) => 1,
        End::Lost(Reason::Unreachable) => 2,
        End::Lost(Reason::Gone) => 3,
        End::Lost(Reason::Broken) => 4,
        End::Lost(Reason::MaxHold) => 5,
        End::Lost(Reason::Closed) => 6,
        End::Lost(Reason::TooSlow) => 7,
    }
}

fn decode(word: u64) -> Result<Moment, End> {
    let Some(code) = word.checked_sub(ENDS) else { return Ok(Moment::from_micros(word)) };
    Err(match code {
        0 => End::Released,
        1 => End::Lost(Reason::Expired),
        2 => End::Lost(Reason::Unreachable),
        4 => End::Lost(Reason::Broken),
        5 => End::Lost(Reason::MaxHold),
        6 => End::Lost(Reason::Closed),
        7 => End::Lost(Reason::TooSlow),
        _ => End::Lost(Reason::Gone),
    })
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as LoomU64;
    use loom::thread;

    use super::*;

    impl Word for LoomU64 {
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
        use Reason::{Broken, Closed, Expired, Gone, MaxHold, TooSlow, Unreachable};
        let reasons = [Expired, Unreachable, Gone, Broken, MaxHold, Closed, TooSlow];
        for end in reasons.map(End::Lost).into_iter().chain([End::Released]) {
            let latch: Latch = Latch::new(AT(5));
            assert!(latch.end(end));
            assert_eq!(latch.read(), Err(end));
        }
    }

    #[test]
    fn a_release_that_found_nothing_is_a_loss() {
        let latch: Latch = Latch::new(AT(5));
        latch.end(End::Released);
        latch.amend(Reason::Gone);
        assert_eq!(latch.read(), Err(End::Lost(Reason::Gone)));
    }

    #[test]
    fn lost_is_final() {
        let latch: Latch = Latch::new(AT(5));
        assert_eq!(latch.check(AT(4), Reason::Expired), (Ok(AT(5)), false));
        assert_eq!(latch.check(AT(5), Reason::Expired), (Err(End::Lost(Reason::Expired)), true));
        assert!(!latch.extend(AT(50), AT(4)), "an ended hold was extended");
        assert!(!latch.end(End::Released));
        assert_eq!(latch.check(AT(1), Reason::Expired), (Err(End::Lost(Reason::Expired)), false));
    }

    #[test]
    fn a_renewal_confirmed_too_late_does_not_count() {
        let latch: Latch = Latch::new(AT(5));
        assert!(!latch.extend(AT(50), AT(5)));
        assert_eq!(latch.read(), Ok(AT(5)), "nobody has looked yet");
        assert!(latch.check(AT(5), Reason::Expired).1);
    }

    /// All interleavings of a renewal, a look at the clock and an end by somebody else: exactly one
    /// of them ends the hold, and whoever was told "held" was told so before the end.
    #[test]
    fn every_interleaving_ends_a_hold_once() {
        loom::model(|| {
            let latch: Arc<Latch<LoomU64>> = Arc::new(Latch::new(AT(5)));
            let (renewing, ending) = (Arc::clone(&latch), Arc::clone(&latch));
            let renewer = thread::spawn(move || renewing.extend(AT(9), AT(4)));
            let ender = thread::spawn(move || ending.end(End::Lost(Reason::Gone)));
            let (seen, expired) = latch.check(AT(6), Reason::Expired);
            let (extended, ended) = (renewer.join().unwrap(), ender.join().unwrap());
            assert!(!(ended && expired), "ended twice");
            assert!(ended || expired, "nobody ended it");
            assert!(
                !(expired && extended),
                "extended after it had expired, or expired while valid"
            );
            if seen.is_ok() {
                assert!(extended && ended, "believed in a lease that was over");
            }
            assert!(latch.read().is_err());
        });
    }

    #[test]
    fn every_interleaving_of_release_and_loss_has_one_winner() {
        loom::model(|| {
            let latch: Arc<Latch<LoomU64>> = Arc::new(Latch::new(AT(5)));
            let releasing = Arc::clone(&latch);
            let releaser = thread::spawn(move || releasing.end(End::Released));
            let lost = latch.end(End::Lost(Reason::Broken));
            assert_ne!(releaser.join().unwrap(), lost);
            let expected = if lost { End::Lost(Reason::Broken) } else { End::Released };
            assert_eq!(latch.read(), Err(expected));
        });
    }
}
