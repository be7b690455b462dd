//! All that a store knows of one key, and the three verbs that change it.
//!
//! Long because the three verbs read one record and are read together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::attempts::Attempts;
use super::holders::{HeldClaim, Holders};
use super::queue::{Queue, WaitingClaim};
use crate::{
    Answer, Ask, AttemptId, Busy, ClaimId, ClientId, FENCE_MAX, Key, Moment, Order, Push,
    QueuePosition, ReleaseOptions, ReleaseOutcome, Renewal, SNAPSHOT_MAX, Snapshot, Standing,
    Target, Ticket,
};

/// How many dead claim ids a key remembers; beyond it the one that would be forgotten first goes.
pub const TOMBSTONES_MAX: usize = 10_000;

/// The present, as the store sees it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The time that leases are measured by.
    pub at: Moment,
    /// Wall-clock microseconds: the smallest fence worth minting. It lets fences grow even after
    /// the store has lost its data. Correctness never depends on it while the data lives.
    pub seed: u64,
}

/// A push and the client it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressedPush {
    /// The client to tell.
    pub to: ClientId,
    /// What to tell it.
    pub push: Push,
}

/// All that a store knows of one key.
///
/// ```
/// use std::time::Duration;
/// use distlock_core::law::{Now, Record};
/// use distlock_core::{Answer, Ask, Claim, ClaimId, ClientId, Key, Label, Moment};
///
/// let mut record = Record::new(0);
/// let now = Now { at: Moment::ORIGIN, seed: 1 };
/// let me = ClientId::from_bytes([1; 16]);
/// let claim = Claim::new(Key::new("k")?, ClaimId::random()?);
/// let ask = Ask::new(claim, Label::new("owner", "me")?, Duration::from_secs(30));
///
/// let (answer, _) = record.acquire(&ask, me, now);
/// assert_eq!(answer, Answer::Granted { fence: 1 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) holders: Holders,
    pub(super) queue: Queue,
    pub(super) tombstones: BTreeMap<ClaimId, Moment>,
    tombstones_by_end: BTreeSet<(Moment, ClaimId)>,
    /// The last fence or ticket.
    counter: u64,
}

impl Record {
    /// The record of a key that no client holds. `counter` is the largest fence or ticket it may
    /// ever have given out; all later ones are larger.
    pub fn new(counter: u64) -> Self {
        Self {
            holders: Holders::default(),
            queue: Queue::default(),
            tombstones: BTreeMap::new(),
            tombstones_by_end: BTreeSet::new(),
            counter,
        }
    }

    /// Asks once. See [`Ask`].
    pub fn acquire(
        &mut self,
        ask: &Ask,
        client: ClientId,
        now: Now,
    ) -> (Answer, Vec<AddressedPush>) {
        let mut notices = Vec::new();
        self.settle(now, &mut notices);
        let answer = self.answer(ask, client, now);
        (answer, notices)
    }

    fn answer(&mut self, ask: &Ask, client: ClientId, now: Now) -> Answer {
        let id = ask.claim.id;
        let tombstone = ask.attempt.map(|attempt| attempt.tombstone(&id));
        if [Some(id), tombstone].into_iter().flatten().any(|id| self.tombstones.contains_key(&id)) {
            return Answer::Dead;
        }
        if let Some(held) = self.holders.get(&id) {
            if held.kept {
                return Answer::Dead;
            }
            let fence = held.fence;
            self.holders.extend(&id, now.at.after(ask.ttl));
            self.holders.change_attempts(&id, |attempts| attempts.add(ask.attempt));
            return Answer::Granted { fence };
        }
        if let Some(ticket) = self.queue.ticket(&id) {
            if let Some(wait) = ask.wait {
                self.queue.hear(client, ticket, now.at.after(wait.place));
            }
            self.queue.change_attempts(ticket, |attempts| attempts.add(ask.attempt));
            return Answer::Busy(self.busy(ask, Some(ticket), now.at));
        }
        let order = self.order();
        if !ask.is_exclusive() && order.is_some_and(|order| order != ask.order) {
            return Answer::Conflict;
        }
        if let Some(fence) = ask.reentry.and_then(|id| self.holders.reentry_fence(&id)) {
            return self.grant(ask, client, fence, now.at);
        }
        let ahead = self.queue.ahead(order.unwrap_or(ask.order), ask.is_exclusive(), None);
        if ahead == 0 && self.fits(ask) {
            let Some(fence) = self.mint(ask.fence_floor.unwrap_or(now.seed)) else {
                return Answer::Spent;
            };
            return self.grant(ask, client, fence, now.at);
        }
        self.refuse(ask, client, now)
    }

    fn grant(&mut self, ask: &Ask, client: ClientId, fence: u64, now: Moment) -> Answer {
        let held = HeldClaim::new(ask, client, fence, now, now.after(ask.ttl));
        self.holders.insert(ask.claim.id, held);
        Answer::Granted { fence }
    }

    /// Not now: takes a place in the queue if the ask says so.
    fn refuse(&mut self, ask: &Ask, client: ClientId, now: Now) -> Answer {
        let Some(wait) = ask.wait else { return Answer::Busy(self.busy(ask, None, now.at)) };
        if self.queue.len() >= wait.waiters_max as usize {
            return Answer::Full;
        }
        let Some(ticket) = self.mint(now.seed) else { return Answer::Spent };
        let attempts = Attempts::of(ask.attempt);
        let place = WaitingClaim { ask: ask.clone(), client, since: now.at, attempts };
        self.queue.push(ticket, place, now.at.after(wait.place));
        Answer::Busy(self.busy(ask, Some(ticket), now.at))
    }

    fn busy(&self, ask: &Ask, ticket: Option<Ticket>, now: Moment) -> Busy {
        let order = self.order().unwrap_or(ask.order);
        Busy {
            ticket,
            ahead: self.queue.ahead(order, ask.is_exclusive(), ticket) as u64,
            retry_after: self.holders.first_end(now),
            holder: self.holders.latest_first().next().map(|(_, held)| held.view(now)),
        }
    }

    /// The order in force: that of the claims that share, or else of those that wait to share. A
    /// claim on the whole capacity asks for none, and those wait in sequence whatever the order is.
    pub(super) fn order(&self) -> Option<Order> {
        self.holders.order().or_else(|| self.queue.order())
    }

    /// Keeps a claim alive. See [`Renewal`].
    pub fn renew(
        &mut self,
        renewal: &Renewal,
        client: ClientId,
        now: Now,
    ) -> (Standing, Vec<AddressedPush>) {
        let mut notices = Vec::new();
        // An exclusive hold depends on no other claim, so it touches nothing but itself. That keeps
        // held locks alive where the rest of a record is out of reach for a while.
        let alone = |held: &HeldClaim| held.is_exclusive() && held.until > now.at;
        if renewal.weight.is_some() || !self.holders.get(&renewal.claim.id).is_some_and(alone) {
            self.settle(now, &mut notices);
        }
        let standing = self.stand(renewal, client, now);
        if renewal.weight.is_some() {
            self.admit(now, &mut notices);
        }
        (standing, notices)
    }

    fn stand(&mut self, renewal: &Renewal, client: ClientId, now: Now) -> Standing {
        let id = renewal.claim.id;
        let until = now.at.after(renewal.span);
        if let Some(ticket) = self.queue.ticket(&id) {
            self.queue.hear(client, ticket, until);
            let exclusive = self.queue.get(ticket).is_some_and(|place| place.ask.is_exclusive());
            let order = self.order().unwrap_or_default();
            return Standing::Waiting(QueuePosition {
                ticket,
                ahead: self.queue.ahead(order, exclusive, Some(ticket)) as u64,
                retry_after: self.holders.first_end(now.at),
            });
        }
        let Some(held) = self.holders.get(&id).filter(|held| !held.kept) else {
            return Standing::Gone;
        };
        let mut fence = held.fence;
        self.holders.extend(&id, until);
        if let Some(floor) = renewal.fence_floor {
            fence = fence.max(floor);
            self.counter = self.counter.max(fence);
            self.holders.raise_fence(&id, fence);
        }
        if let Some(weight) = renewal.weight {
            self.holders.change(&id, |held| held.weight = held.weight.min(weight));
        }
        Standing::Held { fence }
    }

    /// Gives up a claim, or breaks a hold. See [`Target`] and [`ReleaseOptions`].
    pub fn release(
        &mut self,
        target: &Target,
        how: ReleaseOptions,
        now: Now,
    ) -> (ReleaseOutcome, Vec<AddressedPush>) {
        let mut notices = Vec::new();
        self.settle(now, &mut notices);
        let outcome = match target {
            Target::Claim(claim) => self.give_up(&claim.id, how, now.at),
            Target::Attempt { claim, attempt } => {
                self.give_up_attempt(&claim.id, attempt, how, now.at)
            }
            Target::Fence { fence, .. } => self.break_holds(*fence, how, now.at, &mut notices),
        };
        self.admit(now, &mut notices);
        (outcome, notices)
    }

    fn give_up(&mut self, id: &ClaimId, how: ReleaseOptions, now: Moment) -> ReleaseOutcome {
        let until = now.after(how.bury);
        if until > now {
            self.bury(*id, until);
        }
        if let Some(ticket) = self.queue.ticket(id) {
            self.queue.remove(ticket);
            return ReleaseOutcome::WasWaiting;
        }
        if self.holders.get(id).is_none_or(|held| held.kept) {
            return ReleaseOutcome::Gone;
        }
        let kept_until = now.after(how.keep);
        if kept_until > now {
            self.holders.change(id, |held| {
                held.kept = true;
                held.until = kept_until;
            });
        } else {
            self.holders.remove(id);
        }
        ReleaseOutcome::WasHeld
    }

    /// Gives up one attempt, and the claim if it was the last. A claim that does not know the
    /// attempt is left alone: it belongs to others.
    fn give_up_attempt(
        &mut self,
        id: &ClaimId,
        attempt: &AttemptId,
        how: ReleaseOptions,
        now: Moment,
    ) -> ReleaseOutcome {
        let until = now.after(how.bury);
        if until > now {
            self.bury(attempt.tombstone(id), until);
        }
        let mut last = false;
        let remove = |attempts: &mut Attempts| last = attempts.remove(attempt);
        match self.queue.ticket(id) {
            Some(ticket) => self.queue.change_attempts(ticket, remove),
            None => self.holders.change_attempts(id, remove),
        }
        let how = ReleaseOptions { bury: Duration::ZERO, ..how };
        if last { self.give_up(id, how, now) } else { ReleaseOutcome::Gone }
    }

    /// Ends every hold with this fence; reentrant siblings share one. The claims are buried for
    /// the rest of their lease, so a retry that is on its way cannot bring them back.
    fn break_holds(
        &mut self,
        fence: u64,
        how: ReleaseOptions,
        now: Moment,
        notices: &mut Vec<AddressedPush>,
    ) -> ReleaseOutcome {
        let mut broken: Vec<_> = self
            .holders
            .latest_first()
            .filter(|(_, held)| held.fence == fence)
            .map(|(id, held)| (*id, held.client, held.until))
            .collect();
        broken.sort_unstable();
        for &(id, to, until) in &broken {
            self.holders.remove(&id);
            self.bury(id, until.max(now.after(how.bury)));
            notices.push(AddressedPush { to, push: Push::Broken { id } });
        }
        if broken.is_empty() { ReleaseOutcome::Gone } else { ReleaseOutcome::WasHeld }
    }

    /// Notices what has ended meanwhile, without a request: for stores that tidy up.
    pub fn settle_at(&mut self, now: Now) -> Vec<AddressedPush> {
        let mut notices = Vec::new();
        self.settle(now, &mut notices);
        notices
    }

    /// Looks without touching. What is past its time is not shown, though it may still be stored.
    pub fn inspect(&self, key: &Key, now: Moment) -> Snapshot {
        let holders_total = self.holders.live(now).count() as u64;
        let waiters_total = self.queue.live_len(now) as u64;
        if holders_total + waiters_total == 0 {
            return Snapshot::free(key.clone());
        }
        let sharer = self.holders.live(now).next().and_then(HeldClaim::shared_order);
        let order = sharer.or_else(|| self.queue.order());
        let holders = self.holders.live(now).map(|held| held.view(now));
        let waiters = self.queue.live(order.unwrap_or_default(), now).map(|place| place.view(now));
        Snapshot {
            key: key.clone(),
            order,
            holders: holders.take(SNAPSHOT_MAX).collect(),
            holders_total,
            waiters: waiters.take(SNAPSHOT_MAX).collect(),
            waiters_total,
        }
    }

    /// True if this claim holds the key.
    pub fn is_held_by(&self, id: &ClaimId, now: Moment) -> bool {
        self.holders.get(id).is_some_and(|held| held.until > now && !held.kept)
    }

    /// The largest fence or ticket given out. A store that forgets an [idle](Self::is_idle) record
    /// hands it to the next one.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// True if nothing but the counter is left, so that the record can be dropped.
    pub fn is_idle(&self) -> bool {
        !self.is_live() && self.tombstones.is_empty()
    }

    /// True if a client holds or waits, as of the last verb.
    fn is_live(&self) -> bool {
        !self.holders.is_empty() || !self.queue.is_empty()
    }

    /// The next number of the one counter behind fences and tickets. None at its end: fences stay
    /// exact in every language.
    pub(super) fn mint(&mut self, at_least: u64) -> Option<u64> {
        let next = self.counter.saturating_add(1).max(at_least);
        if next > FENCE_MAX {
            return None;
        }
        self.counter = next;
        Some(next)
    }

    pub(super) fn bury(&mut self, id: ClaimId, until: Moment) {
        // A second burial never shortens the first.
        let before = self.tombstones.get(&id).copied();
        let until = before.map_or(until, |before| before.max(until));
        if let Some(before) = before {
            self.tombstones_by_end.remove(&(before, id));
        }
        self.tombstones.insert(id, until);
        self.tombstones_by_end.insert((until, id));
        if self.tombstones.len() > TOMBSTONES_MAX
            && let Some((_, first)) = self.tombstones_by_end.pop_first()
        {
            self.tombstones.remove(&first);
        }
    }

    pub(super) fn purge_tombstones(&mut self, now: Moment) {
        while let Some(&(until, id)) = self.tombstones_by_end.first()
            && until <= now
        {
            self.tombstones_by_end.pop_first();
            self.tombstones.remove(&id);
        }
    }

    /// Checks the invariants that hold after every verb at `now`.
    ///
    /// # Panics
    ///
    /// If one is broken: for tests.
    pub fn verify(&self, now: Moment) {
        self.holders.verify(now);
        self.queue.verify(now);
        assert_eq!(self.tombstones.len(), self.tombstones_by_end.len(), "a grave without an end");
        let order = self.order().unwrap_or_default();
        if let Some(first) = self.queue.first(order).and_then(|ticket| self.queue.get(ticket)) {
            let spent = self.counter >= FENCE_MAX;
            assert!(spent || !self.fits(&first.ask), "the first in line fits and is not let in");
            assert!(
                first.ask.reentry.is_none_or(|id| self.holders.reentry_fence(&id).is_none()),
                "a thread of work waits for itself"
            );
        }
        let holders: Vec<_> = self.holders.latest_first().map(|(_, held)| held).collect();
        if holders.iter().any(|held| held.is_exclusive()) {
            let one = holders.iter().all(|held| {
                held.fence == holders[0].fence && held.is_exclusive() && held.reentry.is_some()
            });
            assert!(one || holders.len() == 1, "an exclusive holder is not alone");
        }
    }
}
