//! A claim on its way out: released until the store has acknowledged it.

use std::time::Duration;

use distlock_core::{AttemptId, Claim, ClaimId, Moment, ReleaseOptions, Target};
use tokio::sync::oneshot;

/// The pause after the first fault; it doubles up to [`RELEASE_PAUSE_MAX`].
const RELEASE_PAUSE_MIN: Duration = Duration::from_millis(50);
const RELEASE_PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long to go on beyond the lease. After that the store has forgotten the claim by itself.
const RETRY_BEYOND_LEASE: Duration = Duration::from_secs(60);

/// How long an acquire that no caller waits for any more can still arrive at the store.
pub(crate) const LATE_ACQUIRE_MAX: Duration = Duration::from_secs(60);

/// The schedule of one release.
#[derive(Debug)]
pub(super) struct ReleaseSchedule {
    keep_until: Moment,
    bury: Duration,
    give_up: Moment,
    next: Moment,
    pause: Duration,
    in_flight: bool,
    /// Calls that wait for the end; the channel ends with this value.
    told: Vec<oneshot::Sender<()>>,
    /// The claim and the attempt for it, if no more than that is given up.
    attempt: Option<(ClaimId, AttemptId)>,
}

impl ReleaseSchedule {
    /// Released from `now` on. The key stays taken until `keep_until`; the claim id is remembered
    /// as dead if an acquire of it may still be on its way.
    pub(super) fn new(now: Moment, lease: Duration, keep_until: Moment, doubtful: bool) -> Self {
        Self {
            keep_until,
            bury: if doubtful { LATE_ACQUIRE_MAX } else { Duration::ZERO },
            give_up: now.after(lease).after(RETRY_BEYOND_LEASE),
            next: now,
            pause: RELEASE_PAUSE_MIN,
            in_flight: false,
            told: Vec::new(),
            attempt: None,
        }
    }

    /// Only this attempt for that claim is given up.
    pub(super) fn of_attempt(self, claim: ClaimId, attempt: AttemptId) -> Self {
        Self { attempt: Some((claim, attempt)), ..self }
    }

    /// What to release, for the table's entry `own`.
    pub(super) fn target(&self, own: Claim) -> Target {
        match self.attempt {
            Some((id, attempt)) => Target::Attempt { claim: Claim::new(own.key, id), attempt },
            None => Target::Claim(own),
        }
    }

    /// A channel that ends when the release is acknowledged or given up.
    pub(super) fn when_done(&mut self) -> oneshot::Receiver<()> {
        let (told, done) = oneshot::channel();
        self.told.push(told);
        done
    }

    /// When to send it; none while it is under way.
    pub(super) fn next(&self) -> Option<Moment> {
        (!self.in_flight).then_some(self.next)
    }

    /// The release as it has to be sent now.
    pub(super) fn send(&mut self, now: Moment) -> ReleaseOptions {
        self.in_flight = true;
        ReleaseOptions { keep: self.keep_until.since(now), bury: self.bury }
    }

    /// The call that was to answer is gone.
    pub(super) fn forgotten(&mut self) {
        self.in_flight = false;
    }

    /// Not acknowledged. False if there is no point in going on.
    pub(super) fn failed(&mut self, now: Moment) -> bool {
        self.in_flight = false;
        self.next = now.after(self.pause);
        self.pause = (self.pause * 2).min(RELEASE_PAUSE_MAX);
        self.next < self.give_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_repeated_until_the_lease_is_surely_over() {
        let mut leaving =
            ReleaseSchedule::new(Moment::ORIGIN, Duration::from_secs(30), Moment::ORIGIN, false);
        let mut tries = 0;
        let now = loop {
            let now = leaving.next().unwrap();
            leaving.send(now);
            tries += 1;
            if !leaving.failed(now) {
                break now;
            }
        };
        assert!(now.as_micros() > 80_000_000 && now.as_micros() < 90_000_000, "{now:?}");
        assert!(tries < 60, "{tries} tries");
    }

    #[test]
    fn what_is_left_to_keep_shrinks_with_every_try() {
        let at = Moment::from_micros(1_000_000);
        let mut leaving = ReleaseSchedule::new(Moment::ORIGIN, Duration::from_secs(1), at, true);
        let how = leaving.send(Moment::ORIGIN);
        assert_eq!(how, ReleaseOptions { keep: Duration::from_secs(1), bury: LATE_ACQUIRE_MAX });
        leaving.failed(Moment::ORIGIN);
        assert_eq!(leaving.send(at).keep, Duration::ZERO);
    }
}
