//! Points in time as plain numbers. Nothing here reads a clock of the machine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in time: microseconds since an origin that only its clock knows.
///
/// Moments of different clocks must not be compared, so none crosses the seam to a backend: only
/// durations do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);

    /// The moment that many microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This moment and a while; the end of time if that is further away.
    #[must_use]
    pub fn after(self, while_: Duration) -> Self {
        Self(self.0.saturating_add(micros(while_)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Microseconds of a duration; an enormous one becomes the largest number instead of wrapping.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_micros(self.0))
    }
}

/// Where time comes from.
///
/// Leases need a clock that never goes back and that keeps counting while the machine sleeps:
/// a holder that was suspended must know that its lease has ended.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Moment;

    /// The longest sleep after which the clock must be looked at again. Timers of the runtime stop
    /// while the machine is suspended; a clock that goes on then is looked at in short naps.
    fn nap(&self) -> Duration;
}

/// A clock that stands still until it is moved. Clones share the time.
///
/// ```
/// use distlock_core::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock at its origin.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets time pass.
    pub fn advance(&self, while_: Duration) {
        self.0.fetch_add(micros(while_), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }

    fn nap(&self) -> Duration {
        Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enormous_durations_saturate() {
        let late = Moment::from_micros(5).after(Duration::MAX);
        assert_eq!(late, Moment::from_micros(u64::MAX));
        assert_eq!(Moment::ORIGIN.since(late), Duration::ZERO);
    }
}
