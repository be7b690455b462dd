//! How long a holder may believe in its lease: the one place where that is computed.

use std::time::Duration;

use distlock_core::Moment;

/// What is taken off every lease beside the drift, unless chosen otherwise: timer granularity and
/// rounding at the store.
pub(crate) const LEASE_MARGIN: Duration = Duration::from_millis(2);

/// The safety margin between the holder's belief and the store's lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Validity {
    /// How much faster the store's clock may run, as a fraction.
    pub(crate) drift: f64,
    /// What is taken off beside that.
    pub(crate) margin: Duration,
}

impl Validity {
    /// How much of a lease can be relied upon.
    pub(crate) fn of(self, lease: Duration) -> Duration {
        lease.saturating_sub(lease.mul_f64(self.drift)).saturating_sub(self.margin)
    }

    /// The moment by which a holder must consider itself lost.
    ///
    /// `sent_at` was read before the request left: the store started the lease then or later, so
    /// the holder's belief ends first, whatever happened to the reply.
    pub(crate) fn until(self, sent_at: Moment, lease: Duration) -> Moment {
        sent_at.after(self.of(lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_and_margin_come_off_the_lease() {
        let validity = Validity { drift: 0.01, margin: LEASE_MARGIN };
        assert_eq!(validity.of(Duration::from_secs(10)), Duration::from_millis(9_898));
        assert_eq!(validity.of(Duration::from_millis(2)), Duration::ZERO);
        let sent = Moment::from_micros(500);
        assert_eq!(validity.until(sent, Duration::from_secs(1)).as_micros(), 500 + 988_000);
    }

    #[test]
    fn a_short_lease_never_becomes_a_negative_one() {
        let validity = Validity { drift: 0.5, margin: LEASE_MARGIN };
        for lease in [0, 1, 2, 3].map(Duration::from_millis) {
            assert!(validity.of(lease) <= lease);
        }
    }
}
