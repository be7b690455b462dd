//! When to renew a held claim: a state machine without a clock of its own.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::Moment;

use crate::LossReason;
use crate::options::Settings;

/// The schedule of one held claim.
///
/// A claim is renewed at a fraction of its ttl after the last confirmed renewal was *sent*. A fault
/// keeps the lease as it is and is retried, spaced, until the lease ends by our own clock.
#[derive(Clone, Debug)]
pub(super) struct HoldSchedule {
    /// Those of the hold, here as well: so a renewal has nothing to look up elsewhere.
    pub(super) settings: Arc<Settings>,
    next: Moment,
    /// The hold is valid until then or later, or has ended: a copy, for the same reason.
    pub(super) valid_until: Moment,
    /// When the hold must end, renewed or not.
    ends: Option<Moment>,
    /// When the latest renewal that was confirmed had been sent.
    confirmed_at: Moment,
    /// When the renewal was sent that is not answered yet.
    in_flight: Option<Moment>,
    faulted: bool,
    /// When the latest renewal was sent whose failure was told.
    risk_told: Moment,
}

/// What is to be told of a renewal that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldRisk {
    /// Nothing: it was told that it is slow, or a later one was confirmed.
    Known,
    /// It is the first fault since a renewal was confirmed.
    First,
    /// It is a further one.
    Again,
}

/// What is to be done for a claim now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before that moment.
    Later(Moment),
    /// Ask for a renewal.
    Renew,
    /// Tell the holder.
    Lose(LossReason),
}

impl HoldSchedule {
    /// A claim granted at `since`, whose first renewal is wanted at `next`.
    pub(super) fn new(
        settings: &Arc<Settings>,
        since: Moment,
        next: Moment,
        valid_until: Moment,
    ) -> Self {
        let ends = settings.max_hold.map(|max_hold| since.after(max_hold));
        Self {
            settings: Arc::clone(settings),
            next,
            valid_until,
            ends,
            confirmed_at: Moment::ORIGIN,
            in_flight: None,
            faulted: false,
            risk_told: Moment::ORIGIN,
        }
    }

    /// The time between two renewals.
    pub(super) fn every(&self) -> Duration {
        self.settings.renew_every
    }

    /// What to do at `now` for a claim that is valid until `until`.
    pub(super) fn due(&self, now: Moment, until: Moment) -> Due {
        if self.ends.is_some_and(|ends| ends <= now) {
            return Due::Lose(LossReason::MaxHold);
        }
        if self.settings.is_cancelled() {
            return Due::Lose(LossReason::Cancelled);
        }
        if until <= now {
            let unheard = self.faulted || self.in_flight.is_some();
            return Due::Lose(if unheard { LossReason::Unreachable } else { LossReason::Expired });
        }
        let next = self.in_flight.map_or(self.next, |sent| self.send_again_at(sent, until));
        if next <= now {
            return Due::Renew;
        }
        let next = next.min(until);
        Due::Later(self.ends.map_or(next, |ends| ends.min(next)))
    }

    /// True if a renewal that goes out now anyway may take this claim along.
    pub(super) fn can_join(&self, now: Moment) -> bool {
        self.in_flight.is_none() && self.next <= now.after(self.leeway())
    }

    /// How much earlier than wanted it may be renewed.
    pub(super) fn leeway(&self) -> Duration {
        self.every() / 8
    }

    /// How long to wait for the answer to a renewal.
    pub(super) fn patience(&self, now: Moment, until: Moment) -> Duration {
        (self.every() / 2).max(Duration::from_millis(1)).min(until.since(now))
    }

    /// The next renewal is wanted now.
    pub(super) fn hurry(&mut self, now: Moment) {
        self.next = self.next.min(now);
    }

    /// When to send another renewal beside one that is not answered: not before the lease is about
    /// to end, so that a slow store is not asked more often than a quick one, but in time for the
    /// answer. An answer to either counts.
    fn send_again_at(&self, sent: Moment, until: Moment) -> Moment {
        let (every, left) = (self.every(), until.since(sent));
        let last_chance = left.saturating_sub(every * 3 / 4);
        let wait = if last_chance >= every { last_chance } else { left / 2 };
        sent.after(wait.max(Duration::from_millis(1)))
    }

    pub(super) fn sent(&mut self, now: Moment) {
        self.in_flight = Some(now);
    }

    /// An answer to what was sent then has come, or is not waited for any more. An earlier one says
    /// nothing about what is under way now.
    fn landed(&mut self, sent_at: Moment) {
        if self.in_flight.is_some_and(|latest| latest <= sent_at) {
            self.in_flight = None;
        }
    }

    /// The call that was to answer is gone.
    pub(super) fn forgotten(&mut self) {
        self.in_flight = None;
    }

    pub(super) fn confirmed(&mut self, sent_at: Moment) {
        self.landed(sent_at);
        self.faulted = false;
        self.next = self.confirmed_at.max(sent_at).after(self.every());
        self.confirmed_at = self.confirmed_at.max(sent_at);
    }

    /// No answer yet to what was sent then. One that was sent later may have been confirmed.
    pub(super) fn is_slow(&mut self, sent_at: Moment) -> HoldRisk {
        if sent_at <= self.confirmed_at { HoldRisk::Known } else { self.risk(sent_at) }
    }

    /// A renewal that was sent then has failed: each is reported once, also if it is slow at first.
    fn risk(&mut self, sent_at: Moment) -> HoldRisk {
        let again = std::mem::replace(&mut self.faulted, true);
        if sent_at <= self.risk_told {
            return HoldRisk::Known;
        }
        self.risk_told = sent_at;
        if again { HoldRisk::Again } else { HoldRisk::First }
    }

    /// Tries again after a pause: an outage of any length short of the lease is ridden out, and a
    /// server that comes back is not met by a burst.
    pub(super) fn failed(&mut self, sent_at: Moment, now: Moment) -> HoldRisk {
        self.landed(sent_at);
        self.next = now.after((self.every() / 4).max(Duration::from_millis(1)));
        self.risk(sent_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    const AT: fn(u64) -> Moment = |ms| Moment::from_micros(ms * 1000);

    fn lease(ttl_ms: u64) -> HoldSchedule {
        let options = Options::default().ttl(Duration::from_millis(ttl_ms)).renew_at(0.5);
        let settings = Arc::new(options.check().unwrap());
        HoldSchedule::new(&settings, AT(0), AT(0).after(settings.renew_every), AT(ttl_ms))
    }

    #[test]
    fn a_claim_is_renewed_exactly_at_its_fraction() {
        for ttl in [10, 1_000, 3_600_000] {
            let lease = lease(ttl);
            let almost = Moment::from_micros(ttl * 500 - 1);
            assert_eq!(lease.due(almost, AT(ttl)), Due::Later(AT(ttl / 2)), "ttl {ttl}");
            assert_eq!(lease.due(AT(ttl / 2), AT(ttl)), Due::Renew, "ttl {ttl}");
        }
    }

    #[test]
    fn a_renewal_that_is_not_answered_is_repeated_only_when_the_lease_is_about_to_end() {
        let mut lease = lease(1_000);
        lease.sent(AT(500));
        assert_eq!(lease.due(AT(700), AT(1_000)), Due::Later(AT(750)), "the last chance");
        assert_eq!(lease.due(AT(700), AT(1_500)), Due::Later(AT(1_125)), "not before it");
        assert!(!lease.can_join(AT(700)));
        assert_eq!(lease.due(AT(1_000), AT(1_000)), Due::Lose(LossReason::Unreachable));
    }

    #[test]
    fn a_lease_that_nobody_tried_to_renew_has_expired() {
        assert_eq!(lease(1_000).due(AT(1_000), AT(1_000)), Due::Lose(LossReason::Expired));
    }

    #[test]
    fn the_next_renewal_counts_from_the_send_of_the_last() {
        let mut lease = lease(1_000);
        lease.sent(AT(500));
        lease.confirmed(AT(500));
        assert_eq!(lease.due(AT(600), AT(1_500)), Due::Later(AT(1_000)));
    }

    #[test]
    fn faults_are_retried_spaced_until_the_lease_ends() {
        let mut lease = lease(1_000);
        let (mut now, mut tries) = (AT(500), 0);
        loop {
            match lease.due(now, AT(1_000)) {
                Due::Renew => {
                    lease.sent(now);
                    let told = if tries == 0 { HoldRisk::First } else { HoldRisk::Again };
                    assert_eq!(lease.failed(now, now), told);
                    assert_eq!(lease.failed(now, now), HoldRisk::Known, "once for each attempt");
                    tries += 1;
                }
                Due::Later(next) => {
                    assert!(next > now);
                    now = next;
                }
                Due::Lose(reason) => {
                    assert_eq!(reason, LossReason::Unreachable);
                    break;
                }
            }
        }
        assert_eq!(now, AT(1_000), "lost before or after the lease ended");
        assert!((2..=8).contains(&tries), "{tries} tries");
    }

    #[test]
    fn a_hold_ends_at_max_hold_with_a_reason_of_its_own() {
        let options = Options::default().max_hold(Duration::from_millis(100));
        let settings = Arc::new(options.check().unwrap());
        let lease = HoldSchedule::new(&settings, AT(0), AT(10_000), AT(30_000));
        assert_eq!(lease.due(AT(0), AT(30_000)), Due::Later(AT(100)));
        assert_eq!(lease.due(AT(100), AT(30_000)), Due::Lose(LossReason::MaxHold));
    }
}
