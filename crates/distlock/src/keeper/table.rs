//! Every claim in hand and when it is due: what the keeper knows, without doing anything.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Claim, ClaimId, Key, Moment, Renewal, Ticket};
use foldhash::fast::RandomState;
use slab::Slab;
use tokio::sync::oneshot;

use super::callers::Callers;
use super::hold::Hold;
use super::latch::End;
use super::lease::{Due, Lease};
use super::leaving::Leaving;
use super::place::Place;
use super::plan::{Effect, Effects, LastFault, Plan, Verdict};
use super::timers::{Slot, Timers};
use crate::Reason;

/// The most that any claim may go out before it is due, to be with those that are.
const LEEWAY_MAX: Duration = Duration::from_secs(1);

/// How long the keeper stays around with nothing to do, so that a program which takes and releases
/// locks one after the other does not start a task for each.
const LINGER: Duration = Duration::from_secs(1);

/// How late a timer may be without anything being wrong.
const LATE_MAX: Duration = Duration::from_millis(10);

/// Later than anything that is due.
const NEVER: Moment = Moment::from_micros(u64::MAX);

/// A claim in hand.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: ClaimId,
    pub(super) key: Key,
    pub(super) kind: Kind,
}

/// What a claim in hand is doing.
#[derive(Debug)]
pub(super) enum Kind {
    Held {
        hold: Arc<Hold>,
        lease: Lease,
        /// Lower the weight to this with every renewal.
        weight: Option<u32>,
        /// The place from which it was granted.
        ticket: Option<Ticket>,
    },
    Waiting(Waiter),
    Leaving(Leaving),
}

/// A claim that waits for its turn, and the calls that wait for it: several if a caller repeats a
/// call under an id of its own.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) place: Place,
    pub(super) calls: Vec<(oneshot::Sender<Verdict>, LastFault)>,
    /// How long the store may be silent before the calls fail.
    pub(super) patience: Duration,
}

impl Waiter {
    pub(super) fn tell(self, verdict: &Verdict) {
        for (reply, _) in self.calls {
            // If the call has gone meanwhile, its own clean-up releases the claim.
            let _ = reply.send(verdict.clone());
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Slab<Entry>,
    /// Where each claim is among them. Whoever comes from a timer or with an answer knows. Most ids
    /// are random; how many of them callers may choose is limited where they come in.
    slots: HashMap<ClaimId, Slot, RandomState>,
    timers: Timers,
    /// How far ahead it is worth looking for claims that may go out early: the most that any claim
    /// so far could.
    leeway: Duration,
    pub(super) early: VecDeque<(ClaimId, Ticket, u64)>,
    /// Calls under way under ids of their callers'.
    pub(super) callers: Callers,
    /// Something came in since the last plan, even if it has gone again.
    used: bool,
    idle_since: Option<Moment>,
    /// When the keeper will look again without being woken.
    pub(super) wake_at: Moment,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Puts a claim under its timer; the same claim in another role is replaced.
    pub(super) fn insert(&mut self, claim: Claim, kind: Kind, at: Moment) {
        self.remove(&claim.id);
        self.used = true;
        let leeway = match &kind {
            Kind::Held { lease, .. } => lease.leeway(),
            Kind::Waiting(waiter) => waiter.place.leeway(),
            Kind::Leaving(_) => Duration::ZERO,
        };
        self.leeway = self.leeway.max(leeway.min(LEEWAY_MAX));
        let id = claim.id;
        let slot = self.entries.insert(Entry { id, key: claim.key, kind });
        self.slots.insert(id, slot);
        self.timers.set(slot, at);
    }

    pub(super) fn remove(&mut self, id: &ClaimId) -> Option<Entry> {
        let slot = self.slots.remove(id)?;
        self.timers.unset(slot);
        self.entries.try_remove(slot)
    }

    pub(super) fn slot(&self, id: &ClaimId) -> Option<Slot> {
        self.slots.get(id).copied()
    }

    /// Where a claim is that was there when it was sent. Most still are.
    pub(super) fn slot_from(&self, id: &ClaimId, there: Slot) -> Option<Slot> {
        match self.entries.get(there) {
            Some(entry) if entry.id == *id => Some(there),
            _ => self.slot(id),
        }
    }

    pub(super) fn kind(&self, id: &ClaimId) -> Option<&Kind> {
        Some(&self.entries.get(self.slot(id)?)?.kind)
    }

    pub(super) fn holds(&self, id: &ClaimId) -> bool {
        matches!(self.kind(id), Some(Kind::Held { .. }))
    }

    /// Takes out a claim that is held or waits; a release under way goes on.
    pub(super) fn forget(&mut self, id: &ClaimId) {
        if !matches!(self.kind(id), Some(Kind::Leaving(_))) {
            self.remove(id);
        }
    }

    /// Takes out everybody who waits.
    pub(super) fn remove_waiters(&mut self) -> Vec<Waiter> {
        let waiting = |entry: &Entry| matches!(entry.kind, Kind::Waiting(_));
        let waiting = self.entries().filter(|entry| waiting(entry));
        let ids: Vec<_> = waiting.map(|entry| entry.id).collect();
        ids.iter().filter_map(|id| self.take_waiter(id)).collect()
    }

    /// The keeper before this one is gone, and with it the calls it had under way.
    pub(super) fn revive(&mut self, now: Moment) {
        self.idle_since = None;
        for (slot, entry) in &mut self.entries {
            match &mut entry.kind {
                Kind::Held { lease, .. } => lease.forgotten(),
                Kind::Waiting(waiter) => waiter.place.forgotten(),
                Kind::Leaving(leaving) => leaving.forgotten(),
            }
            self.timers.set(slot, now);
        }
    }

    pub(super) fn set_timer(&mut self, slot: Slot, at: Option<Moment>) {
        match at {
            Some(at) => self.timers.set(slot, at),
            None => self.timers.unset(slot),
        }
    }

    /// True if something is due before the keeper would look again by itself.
    pub(super) fn is_pressing(&self) -> bool {
        self.timers.soonest().is_some_and(|soonest| soonest < self.wake_at)
    }

    /// Everything that is due at `now`.
    pub(super) fn plan(&mut self, now: Moment, nap: Duration, busy: bool) -> Plan {
        let mut plan = Plan { made_at: now, ..Plan::default() };
        for slot in self.timers.take_due(now) {
            self.serve(slot, now, &mut plan);
        }
        if !plan.renewals.is_empty() || !plan.heartbeats.is_empty() {
            self.join_others(now, &mut plan);
        }
        if std::mem::take(&mut self.used) {
            self.idle_since = None;
        }
        if self.entries.is_empty() {
            if busy {
                self.idle_since = None;
            }
            let since = *self.idle_since.get_or_insert(now);
            plan.stop = now.since(since) >= LINGER;
            plan.wake_at = since.after(LINGER).min(now.after(nap));
        } else {
            self.idle_since = None;
            let next = self.timers.soonest().unwrap_or(NEVER);
            plan.wake_at = next.min(now.after(nap));
        }
        self.wake_at = plan.wake_at;
        plan
    }

    /// Lets claims that are due soon go out with those that are due now: fewer, fuller batches. A
    /// heartbeat takes along all that wait at its key, because a store can tell at a glance whether
    /// all of them are still there, but not whether some are.
    fn join_others(&mut self, now: Moment, plan: &mut Plan) {
        let (keys, interval) = self.keys_that_beat(now, plan);
        let soon = now.after(self.leeway.max(interval));
        let willing = |slot: &Slot| match &self.entries[*slot] {
            Entry { kind: Kind::Held { lease, .. }, .. } => {
                !plan.renewals.is_empty() && lease.can_join(now)
            }
            Entry { kind: Kind::Waiting(Waiter { place, .. }), key, .. } => {
                let soon = !plan.heartbeats.is_empty() && place.can_join(now);
                soon || place.can_join_its_key(now) && keys.contains(key)
            }
            Entry { kind: Kind::Leaving(_), .. } => false,
        };
        let willing: Vec<_> = self.timers.due(soon).filter(willing).collect();
        for slot in willing {
            self.send(slot, now, plan);
        }
    }

    /// The keys at which a heartbeat is due, not counting looks of those who are first in line, and
    /// the longest time between two.
    fn keys_that_beat(&self, now: Moment, plan: &Plan) -> (HashSet<Key>, Duration) {
        let (mut keys, mut longest) = (HashSet::new(), Duration::ZERO);
        for (_, (slot, _)) in &plan.heartbeats {
            if let Some(Entry { kind: Kind::Waiting(waiter), key, .. }) = self.entries.get(*slot)
                && waiter.place.beats(now)
            {
                keys.insert(key.clone());
                longest = longest.max(waiter.place.interval());
            }
        }
        (keys, longest)
    }

    /// Has those who hold ready for what is to be done with them. They lie all over the memory: to
    /// look at many without doing anything else takes hardly longer than to look at one.
    pub(super) fn look_at(&self, slots: impl Iterator<Item = Slot>) {
        let held = |slot| match &self.entries.get(slot)?.kind {
            Kind::Held { hold, .. } => Some(hold.valid_until().is_ok()),
            Kind::Waiting(_) | Kind::Leaving(_) => None,
        };
        black_box(slots.filter_map(held).filter(|held| *held).count());
    }

    /// A claim's timer has run out: does what is due for it and sets the next timer.
    fn serve(&mut self, slot: Slot, now: Moment, plan: &mut Plan) {
        let Some(entry) = self.entries.get(slot) else { return };
        let due = match &entry.kind {
            Kind::Held { hold, lease, .. } => match valid_until(hold, lease, now) {
                Ok(until) => lease.due(now, until),
                Err(_) => {
                    let id = entry.id;
                    self.remove(&id);
                    return;
                }
            },
            Kind::Waiting(waiter) => due_at(waiter.place.next(), now),
            Kind::Leaving(leaving) => due_at(leaving.next(), now),
        };
        match due {
            Due::Later(at) => self.timers.set(slot, at),
            Due::Renew => self.send(slot, now, plan),
            Due::Lose(reason) => self.lose(slot, reason, &mut plan.effects),
        }
    }

    /// Sends what keeps a claim alive, or lets go of it.
    fn send(&mut self, slot: Slot, now: Moment, plan: &mut Plan) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let claim = Claim::new(entry.key.clone(), entry.id);
        let next = match &mut entry.kind {
            Kind::Held { hold, lease, weight, .. } => {
                let until = valid_until(hold, lease, now).unwrap_or(now);
                let patience = lease.patience(now, until);
                if patience + LATE_MAX >= until.since(now) {
                    // Should there be no answer, the lease ends before anybody hears of that.
                    hold.set_failing(true);
                }
                let mut renewal = Renewal::hold(claim, lease.settings.lease());
                renewal.weight = *weight;
                plan.renew(renewal, (slot, patience));
                lease.sent();
                match lease.due(now, until) {
                    Due::Later(at) => Some(at),
                    Due::Renew | Due::Lose(_) => Some(until),
                }
            }
            Kind::Waiting(waiter) => {
                let place = &mut waiter.place;
                let renewal = Renewal::place(claim, place.span(), place.ticket);
                plan.heartbeats.push((renewal, (slot, place.interval())));
                place.sent();
                None
            }
            Kind::Leaving(leaving) => {
                plan.releases.push((claim, leaving.send(now)));
                None
            }
        };
        self.set_timer(slot, next);
    }

    pub(super) fn lose(&mut self, slot: Slot, reason: Reason, effects: &mut Effects) {
        let Some(id) = self.entries.get(slot).map(|entry| entry.id) else { return };
        if let Some(Entry { kind: Kind::Held { hold, .. }, .. }) = self.remove(&id) {
            effects.push(Effect::Lost(hold, reason));
        }
    }

    pub(super) fn tell(&mut self, id: ClaimId, verdict: &Verdict) {
        if let Some(waiter) = self.take_waiter(&id) {
            waiter.tell(verdict);
        }
    }

    /// Takes out one who waits.
    pub(super) fn take_waiter(&mut self, id: &ClaimId) -> Option<Waiter> {
        match self.kind(id)? {
            Kind::Waiting(_) => self.remove(id).and_then(waiter),
            Kind::Held { .. } | Kind::Leaving(_) => None,
        }
    }

    /// From now on every renewal asks for this weight.
    pub(super) fn lower_weight(&mut self, id: &ClaimId, to: u32) {
        let entry = self.slots.get(id).and_then(|slot| self.entries.get_mut(*slot));
        if let Some(Entry { kind: Kind::Held { weight, .. }, .. }) = entry {
            *weight = Some(to);
        }
    }
}

/// Until when a hold is valid, or how it has ended. A look at the hold itself, which lies elsewhere
/// in the memory, is needed only if it may be over.
fn valid_until(hold: &Hold, lease: &Lease, now: Moment) -> Result<Moment, End> {
    if lease.valid_until > now { Ok(lease.valid_until) } else { hold.valid_until() }
}

fn waiter(entry: Entry) -> Option<Waiter> {
    match entry.kind {
        Kind::Waiting(waiter) => Some(waiter),
        Kind::Held { .. } | Kind::Leaving(_) => None,
    }
}

fn due_at(next: Option<Moment>, now: Moment) -> Due {
    match next {
        Some(at) if at > now => Due::Later(at),
        Some(_) => Due::Renew,
        None => Due::Later(NEVER),
    }
}
