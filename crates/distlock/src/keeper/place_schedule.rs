//! When to send a heartbeat for a waiting claim: a state machine without a clock of its own.

use std::time::Duration;

use distlock_core::{Moment, QueuePosition, Ticket};

use crate::validity::Validity;

/// The schedule of one place in a queue.
#[derive(Clone, Debug)]
pub(super) struct PlaceSchedule {
    /// The ticket last acknowledged. A push with any other is an echo of the past.
    pub(super) ticket: Ticket,
    place: Duration,
    validity: Validity,
    /// When the last request that was answered with this ticket was sent. A grant to this place
    /// can only be later, so its validity may safely be counted from here.
    acknowledged: Moment,
    next: Moment,
    /// When the heartbeat was sent that is not answered yet.
    in_flight: Option<Moment>,
    /// Another heartbeat is wanted as soon as the one under way is answered.
    again: bool,
    /// No heartbeat was sent yet.
    fresh: bool,
    /// The store pushes grants, so waiters need not poll for them.
    pushed: bool,
}

/// How often the first in line looks where nothing is pushed.
const HEAD_POLL_EVERY: Duration = Duration::from_millis(50);

impl PlaceSchedule {
    /// A place acknowledged by the answer to a request sent at `sent_at`, seen at `now`.
    pub(super) fn new(
        place: Duration,
        validity: Validity,
        pushed: bool,
        standing: QueuePosition,
        sent_at: Moment,
        now: Moment,
    ) -> Self {
        let mut new = Self {
            pushed,
            ticket: standing.ticket,
            place,
            validity,
            acknowledged: sent_at,
            next: sent_at,
            in_flight: None,
            again: false,
            fresh: true,
        };
        new.confirmed(standing, sent_at, now);
        new
    }

    /// When the next heartbeat is wanted. One that is not answered is repeated a little later than
    /// it would have been without: so a slow store is not asked more often than a quick one.
    pub(super) fn next(&self) -> Moment {
        self.in_flight.map_or(self.next, |sent| sent.after(self.interval() * 5 / 4))
    }

    /// True if a heartbeat that goes out now anyway may take this place along.
    pub(super) fn can_join(&self, now: Moment) -> bool {
        self.in_flight.is_none() && self.next <= now.after(self.leeway())
    }

    /// True if a heartbeat of another place at the same key may take this one along. A place that
    /// was never heard of since it was taken always may, the others twice as often as they must: so
    /// all soon go together, and none goes out again and again because another is due.
    pub(super) fn can_join_its_key(&self, now: Moment) -> bool {
        self.in_flight.is_none() && (self.fresh || self.next <= now.after(self.interval() / 2))
    }

    /// True if it is time for a heartbeat, and not only for a look of the first in line.
    pub(super) fn beats(&self, now: Moment) -> bool {
        self.acknowledged.after(self.interval()) <= now.after(self.leeway())
    }

    /// How much earlier than wanted a heartbeat may go out.
    pub(super) fn leeway(&self) -> Duration {
        self.interval() / 4
    }

    /// Four heartbeats fit into the life of a place, so three can be lost.
    pub(super) fn interval(&self) -> Duration {
        self.place / 4
    }

    pub(super) fn span(&self) -> Duration {
        self.place
    }

    pub(super) fn sent(&mut self, now: Moment) {
        self.in_flight = Some(now);
        self.fresh = false;
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

    pub(super) fn confirmed(&mut self, standing: QueuePosition, sent_at: Moment, now: Moment) {
        self.landed(sent_at);
        self.ticket = standing.ticket;
        // A late answer to an earlier heartbeat proves no less than what is known already.
        self.acknowledged = self.acknowledged.max(sent_at);
        self.next = self.acknowledged.after(self.interval());
        // The first in line also looks exactly when the holder's lease can end, because no other
        // client may notice it; and again and again where no push announces a release.
        if standing.ahead == 0 {
            let ends = standing.retry_after.unwrap_or(Duration::MAX);
            let look = if self.pushed { ends } else { ends.min(HEAD_POLL_EVERY) };
            self.next = self.next.min(now.after(look.max(Duration::from_millis(1))));
        }
        self.ask_again(now);
    }

    /// What was answered may be older than the interruption that asked for another heartbeat.
    fn ask_again(&mut self, now: Moment) {
        if std::mem::take(&mut self.again) {
            self.next = self.next.min(now);
        }
    }

    /// No answer. The next heartbeat is due when it would have been anyway, so that a silent store
    /// costs one try an interval, and at once if that has passed.
    pub(super) fn failed(&mut self, sent_at: Moment, now: Moment) {
        self.landed(sent_at);
        self.next = sent_at.after(self.interval()).max(now.after(Duration::from_millis(1)));
        // A connection that fails interrupts the pushes, too: one try an interval is enough.
        self.again = false;
    }

    /// A heartbeat is wanted now: one under way may have been answered before.
    pub(super) fn hurry(&mut self, now: Moment) {
        if self.in_flight.is_some() {
            self.again = true;
        } else {
            self.next = self.next.min(now);
        }
    }

    /// Until when a grant to this place can be relied upon: what is left of the place.
    pub(super) fn grant_until(&self) -> Moment {
        self.validity.until(self.acknowledged, self.place)
    }

    /// Until when a claim that was found to hold by a heartbeat can rely on it: the heartbeat asked
    /// for a place, not for a ttl.
    pub(super) fn held_until(&self, sent_at: Moment) -> Moment {
        self.validity.until(sent_at, self.place)
    }

    /// How long nothing was heard from the store.
    pub(super) fn silent_for(&self, now: Moment) -> Duration {
        now.since(self.acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Moment = |ms| Moment::from_micros(ms * 1000);
    const VALIDITY: Validity = Validity { drift: 0.01, margin: Duration::from_millis(2) };

    fn standing(ahead: u64, retry_after_ms: Option<u64>) -> QueuePosition {
        QueuePosition { ticket: 7, ahead, retry_after: retry_after_ms.map(Duration::from_millis) }
    }

    fn place(ahead: u64, retry_after_ms: Option<u64>) -> PlaceSchedule {
        let span = Duration::from_secs(4);
        PlaceSchedule::new(span, VALIDITY, true, standing(ahead, retry_after_ms), AT(100), AT(110))
    }

    #[test]
    fn without_pushes_the_first_in_line_looks_often() {
        let place = |ahead| {
            let standing = standing(ahead, Some(9_000));
            PlaceSchedule::new(Duration::from_secs(4), VALIDITY, false, standing, AT(100), AT(110))
        };
        assert_eq!(place(0).next(), AT(160));
        assert_eq!(place(1).next(), AT(1_100), "those behind go by their heartbeats");
    }

    #[test]
    fn heartbeats_go_out_four_times_a_place_counted_from_the_send() {
        assert_eq!(place(1, Some(200)).next(), AT(1_100));
        assert_eq!(place(0, Some(9_000)).next(), AT(1_100));
    }

    #[test]
    fn the_first_in_line_looks_when_the_lease_ahead_can_end() {
        assert_eq!(place(0, Some(200)).next(), AT(310));
        assert_eq!(place(0, Some(0)).next(), AT(111), "never a hot loop");
        assert_eq!(place(0, None).next(), AT(1_100));
    }

    #[test]
    fn a_grant_counts_from_the_last_acknowledged_send() {
        let mut place = place(1, None);
        assert_eq!(place.grant_until(), AT(100 + 4_000 - 40 - 2));
        place.sent(AT(1_100));
        assert_eq!(place.grant_until(), AT(100 + 4_000 - 40 - 2), "a mere send proves nothing");
        place.failed(AT(1_100), AT(2_100));
        assert_eq!(place.grant_until(), AT(100 + 4_000 - 40 - 2));
        place.confirmed(standing(0, None), AT(2_500), AT(2_600));
        assert_eq!(place.grant_until(), AT(2_500 + 4_000 - 40 - 2));
    }

    #[test]
    fn an_interruption_during_a_heartbeat_asks_for_another_one_after_its_answer() {
        let mut place = place(1, None);
        place.sent(AT(1_100));
        place.hurry(AT(1_150));
        assert_eq!(place.next(), AT(2_350), "not beside the one under way");
        place.confirmed(standing(1, None), AT(1_100), AT(1_200));
        assert_eq!(place.next(), AT(1_200));
        place.sent(AT(1_200));
        place.confirmed(standing(1, None), AT(1_200), AT(1_210));
        assert_eq!(place.next(), AT(2_200), "once");
    }

    #[test]
    fn one_heartbeat_at_a_time() {
        let mut place = place(1, None);
        place.sent(AT(1_100));
        assert_eq!(place.next(), AT(2_350), "one that is lost is repeated");
        assert!(!place.can_join(AT(9_999)));
        place.failed(AT(1_100), AT(1_200));
        assert_eq!(place.next(), AT(2_100), "a quick refusal waits for the next beat");
        place.failed(AT(2_100), AT(3_100));
        assert_eq!(place.next(), AT(3_101), "a hung one has waited long enough");
    }
}
