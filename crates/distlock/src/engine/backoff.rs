//! How long to pause between attempts, as pure arithmetic.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::ClaimId;

/// The shortest pause. Zero would spin.
const BACKOFF_MIN: Duration = Duration::from_millis(1);

/// The longest pause between two attempts to reach a backend that does not answer.
const FAULT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// When to try again while polling.
///
/// The first attempt is always immediate; a pacing only spaces the ones after it. No pause lasts
/// beyond the deadline of the call, nor beyond the moment when the holder's lease can end.
///
/// ```
/// use std::time::Duration;
/// use distlock::Backoff;
///
/// let fixed = Backoff::fixed(Duration::from_millis(50));
/// let growing = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));
/// let twice = growing.max_retries(2);
/// # let _ = (fixed, twice);
/// ```
#[derive(Clone)]
pub struct Backoff {
    pace: Arc<dyn BackoffRule>,
    max_retries: Option<u32>,
}

/// A rule for pauses of one's own.
pub trait BackoffRule: Send + Sync + 'static {
    /// The pause before retry number `retry`, which counts from 1. `random` is in `[0, 1)` and new
    /// each time. A pause below a millisecond counts as a millisecond.
    fn pause(&self, retry: u32, random: f64) -> Duration;
}

impl Backoff {
    /// The same pause every time.
    pub fn fixed(pause: Duration) -> Self {
        Self::custom(FixedBackoff(pause))
    }

    /// At least `min` and up to `jitter` more, at random.
    pub fn jitter(min: Duration, jitter: Duration) -> Self {
        Self::custom(JitterBackoff { min, jitter })
    }

    /// `min`, then twice as much each time, up to `max`.
    pub fn exponential(min: Duration, max: Duration) -> Self {
        Self::exponential_by(min, max, 2.0)
    }

    /// `min`, then `factor` times as much each time, up to `max`. A factor below 1, or one that is
    /// not a number, counts as 1.
    pub fn exponential_by(min: Duration, max: Duration, factor: f64) -> Self {
        Self::custom(ExponentialBackoff { min, max, factor: factor.max(1.0) })
    }

    /// A rule of one's own.
    pub fn custom(pace: impl BackoffRule) -> Self {
        Self { pace: Arc::new(pace), max_retries: None }
    }

    /// Gives up after this many retries: 0 means a single attempt.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// The pause before retry number `retry`, or none if that is one too many.
    pub(crate) fn next(&self, retry: u32, random: f64) -> Option<Duration> {
        if self.max_retries.is_some_and(|max| retry > max) {
            return None;
        }
        Some(self.pace.pause(retry, random).max(BACKOFF_MIN))
    }
}

/// Doubling with full jitter: a crowd that was refused together does not come back together.
impl Default for Backoff {
    fn default() -> Self {
        Self::custom(CrowdBackoff(ExponentialBackoff {
            min: Duration::from_millis(20),
            max: Duration::from_millis(500),
            factor: 2.0,
        }))
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacing").field("max_retries", &self.max_retries).finish_non_exhaustive()
    }
}

struct FixedBackoff(Duration);

impl BackoffRule for FixedBackoff {
    fn pause(&self, _: u32, _: f64) -> Duration {
        self.0
    }
}

struct JitterBackoff {
    min: Duration,
    jitter: Duration,
}

impl BackoffRule for JitterBackoff {
    fn pause(&self, _: u32, random: f64) -> Duration {
        self.min.saturating_add(share(self.jitter, random))
    }
}

struct ExponentialBackoff {
    min: Duration,
    max: Duration,
    factor: f64,
}

impl BackoffRule for ExponentialBackoff {
    fn pause(&self, retry: u32, _: f64) -> Duration {
        // The cap comes before the conversion: factor^n leaves the range of a Duration long before
        // it leaves that of a float, and a wrapped pause would be a hot loop.
        let exponent = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.min.max(BACKOFF_MIN).as_secs_f64() * self.factor.powi(exponent);
        if seconds < self.max.as_secs_f64() { Duration::from_secs_f64(seconds) } else { self.max }
    }
}

struct CrowdBackoff(ExponentialBackoff);

impl BackoffRule for CrowdBackoff {
    fn pause(&self, retry: u32, random: f64) -> Duration {
        share(self.0.pause(retry, random), random)
    }
}

/// A part of a duration, `part` in `[0, 1)`.
fn share(whole: Duration, part: f64) -> Duration {
    Duration::try_from_secs_f64(whole.as_secs_f64() * part).unwrap_or(whole)
}

/// The pause after a number of faults in a row: from about 10 ms to 1 s, spread at random.
pub(crate) fn fault_pause(faults: u32, random: f64) -> Duration {
    let most = Duration::from_millis(20).saturating_mul(1 << faults.min(6)).min(FAULT_PAUSE_MAX);
    most.mul_f64(0.5 + random / 2.0)
}

/// A number in `[0, 1)` that differs by claim and attempt.
pub(crate) fn random(id: ClaimId, attempt: u32) -> f64 {
    let [.., a, b, c, d, e, f, g, h] = *id.as_bytes();
    let mut bits = u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ u64::from(attempt);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn exponential_pauses_double_up_to_the_cap() {
        let backoff = Backoff::exponential(MS(10), MS(100));
        let pauses: Vec<_> = (1..=6).map(|retry| backoff.next(retry, 0.5).unwrap()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 100, 100].map(MS));
    }

    #[test]
    fn the_cap_holds_for_any_number_of_retries() {
        let backoff = Backoff::exponential(MS(100), Duration::from_secs(60));
        for retry in [38, 64, 2_000, u32::MAX] {
            assert_eq!(backoff.next(retry, 0.5), Some(Duration::from_secs(60)), "retry {retry}");
        }
        let wild = Backoff::exponential_by(Duration::MAX, Duration::MAX, f64::NAN);
        assert!(wild.next(9, 0.0).is_some());
    }

    #[test]
    fn no_pause_is_zero() {
        for backoff in [Backoff::fixed(MS(0)), Backoff::jitter(MS(0), MS(0)), Backoff::default()] {
            assert!(backoff.next(1, 0.0).unwrap() >= MS(1));
        }
    }

    #[test]
    fn jitter_stays_in_its_range() {
        let backoff = Backoff::jitter(MS(100), MS(300));
        assert_eq!(backoff.next(1, 0.0), Some(MS(100)));
        let most = backoff.next(1, 0.999_999).unwrap();
        assert!(most > MS(399) && most < MS(400), "{most:?}");
        assert_eq!(Backoff::jitter(Duration::MAX, Duration::MAX).next(1, 0.9), Some(Duration::MAX));
    }

    #[test]
    fn retries_end_where_they_are_told_to() {
        let thrice = Backoff::fixed(MS(1)).max_retries(3);
        assert!((1..=3).all(|retry| thrice.next(retry, 0.0).is_some()));
        assert_eq!(thrice.next(4, 0.0), None);
        assert_eq!(Backoff::fixed(MS(1)).max_retries(0).next(1, 0.0), None);
        assert!(Backoff::fixed(MS(1)).next(u32::MAX, 0.0).is_some());
    }

    #[test]
    fn pauses_after_faults_grow_up_to_a_second() {
        for (faults, random) in [(1, 0.0), (3, 0.99), (60, 0.5), (u32::MAX, 0.99)] {
            let pause = fault_pause(faults, random);
            assert!(pause >= Duration::from_millis(10) && pause <= FAULT_PAUSE_MAX, "{pause:?}");
        }
        assert!(fault_pause(1, 0.5) < fault_pause(5, 0.5));
    }
}
