//! Every claim in hand and when it is due: what the keeper knows, without doing anything.
//!
//! Long because the keeper changes all its state here, under one lock.

use std::collections::{HashMap, HashSet, VecDeque, hash_map};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Claim, ClaimId, Fault, Key, Moment, Renewal, Ticket};
use foldhash::fast::RandomState;
use slab::Slab;
use tokio::sync::oneshot;

use super::answers::EarlyPush;
use super::hold::Hold;
use super::hold_schedule::{Due, HoldSchedule};
use super::hold_state::HoldEnd;
use super::place_schedule::PlaceSchedule;
use super::plan::{Effect, Effects, KeeperPlan, LastFault, PlaceVerdict, Sender};
use super::release_schedule::ReleaseSchedule;
use super::timers::{TableIndex, Timers};
use crate::LossReason;
use distlock_core::sync::lock;

/// The most that any claim may go out before it is due, to be with those that are.
const LEEWAY_MAX: Duration = Duration::from_secs(1);

/// How long the keeper stays around with nothing to do, so that a program which takes and releases
/// locks one after the other does not start a task for each.
const LINGER: Duration = Duration::from_secs(1);

/// How late a timer may be without anything being wrong.
const TIMER_LATE_MAX: Duration = Duration::from_millis(10);

/// Later than anything that is due.
const NEVER: Moment = Moment::from_micros(u64::MAX);

/// A claim in hand.
#[derive(Debug)]
pub(super) struct ClaimEntry {
    pub(super) id: ClaimId,
    pub(super) key: Key,
    pub(super) kind: ClaimPhase,
}

/// What a claim in hand is doing.
#[derive(Debug)]
pub(super) enum ClaimPhase {
    Held {
        hold: Arc<Hold>,
        lease: HoldSchedule,
        /// Lower the weight to this with every renewal.
        weight: Option<u32>,
        /// The place from which it was granted.
        ticket: Option<Ticket>,
    },
    Waiting(QueuedClaim),
    Leaving(ReleaseSchedule),
}

/// A claim that waits for its turn, and the calls that wait for it: several if a caller repeats a
/// call under an id of its own.
#[derive(Debug)]
pub(super) struct QueuedClaim {
    pub(super) place: PlaceSchedule,
    pub(super) calls: Vec<(oneshot::Sender<PlaceVerdict>, LastFault)>,
    /// How long the store may be silent before the calls fail.
    pub(super) patience: Duration,
}

impl ClaimEntry {
    pub(super) fn claim(&self) -> Claim {
        Claim::new(self.key.clone(), self.id)
    }

    fn is(&self, claim: &Claim) -> bool {
        self.id == claim.id && self.key == claim.key
    }
}

impl QueuedClaim {
    pub(super) fn note_fault(&self, fault: &Fault) {
        for (_, last_fault) in &self.calls {
            *lock(last_fault) = Some(fault.clone());
        }
    }

    pub(super) fn is_out_of_patience(&self, now: Moment) -> bool {
        self.place.silent_for(now) >= self.patience
    }

    pub(super) fn tell(self, verdict: &PlaceVerdict) {
        for (reply, _) in self.calls {
            // If the call has gone meanwhile, its own clean-up releases the claim.
            let _ = reply.send(verdict.clone());
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    pub(super) entries: Slab<ClaimEntry>,
    /// Where each claim is among them. Timers and answers bring their index along. Most ids
    /// are random; how many of them callers may choose is limited where they come in.
    slots: HashMap<ClaimId, TableIndex, RandomState>,
    /// Where further claims are whose id, chosen by a caller, is that of another claim on another
    /// key. Hardly ever is there any.
    twins: Vec<TableIndex>,
    pub(super) timers: Timers,
    /// How far ahead it is worth looking for claims that may go out early: the most that any claim
    /// so far could.
    leeway: Duration,
    pub(super) early: VecDeque<(ClaimId, EarlyPush)>,
    /// When pushes were last interrupted.
    pub(super) interrupted_at: Option<Moment>,
    /// Something came in since the last plan, even if it has gone again.
    used: bool,
    idle_since: Option<Moment>,
    /// When the keeper will look again without being woken.
    pub(super) wake_at: Moment,
}

impl ClaimTable {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &ClaimEntry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Puts a claim under its timer; the same claim in another role is replaced.
    pub(super) fn insert(&mut self, claim: Claim, kind: ClaimPhase, at: Moment) {
        self.remove(&claim);
        self.used = true;
        let leeway = match &kind {
            ClaimPhase::Held { lease, .. } => lease.leeway(),
            ClaimPhase::Waiting(waiter) => waiter.place.leeway(),
            ClaimPhase::Leaving(_) => Duration::ZERO,
        };
        self.leeway = self.leeway.max(leeway.min(LEEWAY_MAX));
        let id = claim.id;
        let slot = self.entries.insert(ClaimEntry { id, key: claim.key, kind });
        match self.slots.entry(id) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(slot);
            }
            hash_map::Entry::Occupied(_) => self.twins.push(slot),
        }
        self.timers.set(slot, at);
    }

    pub(super) fn remove(&mut self, claim: &Claim) -> Option<ClaimEntry> {
        let slot = self.slot(claim)?;
        let of_id = |twin: &TableIndex| self.entries.get(*twin).is_some_and(|e| e.id == claim.id);
        if let Some(at) = self.twins.iter().position(|twin| *twin == slot) {
            self.twins.swap_remove(at);
        } else if let Some(at) = self.twins.iter().position(of_id) {
            self.slots.insert(claim.id, self.twins.swap_remove(at));
        } else {
            self.slots.remove(&claim.id);
        }
        self.timers.unset(slot);
        self.entries.try_remove(slot)
    }

    /// Where the claims of this id are: more than one if a caller uses it for several keys.
    pub(super) fn slots_of(&self, id: ClaimId) -> impl Iterator<Item = TableIndex> {
        let twins = self.twins.iter().copied();
        let twins = twins.filter(move |twin| self.entries.get(*twin).is_some_and(|e| e.id == id));
        self.slots.get(&id).copied().into_iter().chain(twins)
    }

    pub(super) fn slot(&self, claim: &Claim) -> Option<TableIndex> {
        self.slots_of(claim.id).find(|slot| self.entries[*slot].is(claim))
    }

    /// Where a claim is that was there when it was sent. Most still are.
    pub(super) fn slot_from(&self, claim: &Claim, there: TableIndex) -> Option<TableIndex> {
        match self.entries.get(there) {
            Some(entry) if entry.is(claim) => Some(there),
            _ => self.slot(claim),
        }
    }

    pub(super) fn kind(&self, claim: &Claim) -> Option<&ClaimPhase> {
        Some(&self.entries.get(self.slot(claim)?)?.kind)
    }

    pub(super) fn holds(&self, claim: &Claim) -> bool {
        matches!(self.kind(claim), Some(ClaimPhase::Held { .. }))
    }

    /// True if a claim has a place here and every call that waited for it is over.
    pub(super) fn waits_for_nothing(&self, claim: &Claim) -> bool {
        matches!(self.kind(claim), Some(ClaimPhase::Waiting(waiter))
            if waiter.calls.iter().all(|(reply, _)| reply.is_closed()))
    }

    /// Takes out a claim that is held or waits; a release under way goes on.
    pub(super) fn forget(&mut self, claim: &Claim) {
        if !matches!(self.kind(claim), Some(ClaimPhase::Leaving(_))) {
            self.remove(claim);
        }
    }

    /// Is told, by the end of the channel, when the release under way has ended; none if there is
    /// none.
    pub(super) fn left(&mut self, claim: &Claim) -> Option<oneshot::Receiver<()>> {
        let slot = self.slot(claim)?;
        match &mut self.entries.get_mut(slot)?.kind {
            ClaimPhase::Leaving(leaving) => Some(leaving.when_done()),
            ClaimPhase::Held { .. } | ClaimPhase::Waiting(_) => None,
        }
    }

    /// The same for every release in hand.
    pub(super) fn leaving(&mut self) -> Vec<oneshot::Receiver<()>> {
        let done = |(_, entry): (_, &mut ClaimEntry)| match &mut entry.kind {
            ClaimPhase::Leaving(leaving) => Some(leaving.when_done()),
            ClaimPhase::Held { .. } | ClaimPhase::Waiting(_) => None,
        };
        self.entries.iter_mut().filter_map(done).collect()
    }

    /// Takes out everybody who waits.
    pub(super) fn remove_waiters(&mut self) -> Vec<QueuedClaim> {
        let waiting = |entry: &ClaimEntry| matches!(entry.kind, ClaimPhase::Waiting(_));
        let waiting = self.entries().filter(|entry| waiting(entry));
        let claims: Vec<_> = waiting.map(ClaimEntry::claim).collect();
        claims.iter().filter_map(|claim| self.take_waiter(claim)).collect()
    }

    /// The keeper before this one is gone, and with it the calls it had under way.
    pub(super) fn revive(&mut self, now: Moment) {
        self.idle_since = None;
        for (slot, entry) in &mut self.entries {
            match &mut entry.kind {
                ClaimPhase::Held { lease, .. } => lease.forgotten(),
                ClaimPhase::Waiting(waiter) => waiter.place.forgotten(),
                ClaimPhase::Leaving(leaving) => leaving.forgotten(),
            }
            self.timers.set(slot, now);
        }
    }

    pub(super) fn set_timer(&mut self, slot: TableIndex, at: Option<Moment>) {
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
    pub(super) fn plan(&mut self, now: Moment, nap: Duration, busy: bool) -> KeeperPlan {
        let mut plan = KeeperPlan { made_at: now, ..KeeperPlan::default() };
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
    fn join_others(&mut self, now: Moment, plan: &mut KeeperPlan) {
        let (keys, interval) = self.keys_that_beat(now, plan);
        let soon = now.after(self.leeway.max(interval));
        let willing = |slot: &TableIndex| match &self.entries[*slot] {
            ClaimEntry { kind: ClaimPhase::Held { lease, .. }, .. } => {
                !plan.renewals.is_empty() && lease.can_join(now)
            }
            ClaimEntry { kind: ClaimPhase::Waiting(QueuedClaim { place, .. }), key, .. } => {
                let soon = !plan.heartbeats.is_empty() && place.can_join(now);
                soon || place.can_join_its_key(now) && keys.contains(key)
            }
            ClaimEntry { kind: ClaimPhase::Leaving(_), .. } => false,
        };
        let willing: Vec<_> = self.timers.due(soon).filter(willing).collect();
        for slot in willing {
            self.send(slot, now, plan);
        }
    }

    /// The keys at which a heartbeat is due, not counting looks of those who are first in line, and
    /// the longest time between two.
    fn keys_that_beat(&self, now: Moment, plan: &KeeperPlan) -> (HashSet<Key>, Duration) {
        let (mut keys, mut longest) = (HashSet::new(), Duration::ZERO);
        for (_, Sender { slot, .. }) in &plan.heartbeats {
            if let Some(ClaimEntry { kind: ClaimPhase::Waiting(waiter), key, .. }) =
                self.entries.get(*slot)
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
    pub(super) fn look_at(&self, slots: impl Iterator<Item = TableIndex>) {
        let held = |slot| match &self.entries.get(slot)?.kind {
            ClaimPhase::Held { hold, .. } => Some(hold.valid_until().is_ok()),
            ClaimPhase::Waiting(_) | ClaimPhase::Leaving(_) => None,
        };
        black_box(slots.filter_map(held).filter(|held| *held).count());
    }

    /// A claim's timer has run out: does what is due for it and sets the next timer.
    fn serve(&mut self, slot: TableIndex, now: Moment, plan: &mut KeeperPlan) {
        let Some(entry) = self.entries.get(slot) else { return };
        let due = match &entry.kind {
            ClaimPhase::Held { hold, lease, .. } => match valid_until(hold, lease, now) {
                Ok(until) => lease.due(now, until),
                Err(_) => {
                    let claim = entry.claim();
                    self.remove(&claim);
                    return;
                }
            },
            ClaimPhase::Waiting(waiter) => due_at(Some(waiter.place.next()), now),
            ClaimPhase::Leaving(leaving) => due_at(leaving.next(), now),
        };
        match due {
            Due::Later(at) => self.timers.set(slot, at),
            Due::Renew => self.send(slot, now, plan),
            Due::Lose(reason) => self.lose(slot, reason, &mut plan.effects),
        }
    }

    /// Sends what keeps a claim alive, or releases it.
    fn send(&mut self, slot: TableIndex, now: Moment, plan: &mut KeeperPlan) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let claim = Claim::new(entry.key.clone(), entry.id);
        let next = match &mut entry.kind {
            ClaimPhase::Held { hold, lease, weight, .. } => {
                let until = valid_until(hold, lease, now).unwrap_or(now);
                let patience = lease.patience(now, until);
                if patience + TIMER_LATE_MAX >= until.since(now) {
                    // Should there be no answer, the lease ends before a caller learns of that.
                    hold.set_failing(true);
                }
                let mut renewal = Renewal::hold(claim, lease.settings.lease());
                renewal.weight = *weight;
                plan.renew(renewal, Sender { slot, slow_after: patience });
                lease.sent(now);
                match lease.due(now, until) {
                    Due::Later(at) => Some(at),
                    Due::Renew | Due::Lose(_) => Some(until),
                }
            }
            ClaimPhase::Waiting(waiter) => {
                let place = &mut waiter.place;
                let renewal = Renewal::place(claim, place.span(), place.ticket);
                plan.heartbeats.push((renewal, Sender { slot, slow_after: place.interval() }));
                place.sent(now);
                Some(place.next())
            }
            ClaimPhase::Leaving(leaving) => {
                plan.releases.push((claim.clone(), leaving.target(claim), leaving.send(now)));
                None
            }
        };
        self.set_timer(slot, next);
    }

    pub(super) fn lose(&mut self, slot: TableIndex, reason: LossReason, effects: &mut Effects) {
        let Some(claim) = self.entries.get(slot).map(ClaimEntry::claim) else { return };
        if let Some(ClaimEntry { kind: ClaimPhase::Held { hold, .. }, .. }) = self.remove(&claim) {
            effects.push(Effect::Lost(hold, reason));
        }
    }

    pub(super) fn tell(&mut self, claim: &Claim, verdict: &PlaceVerdict) {
        if let Some(waiter) = self.take_waiter(claim) {
            waiter.tell(verdict);
        }
    }

    /// Takes out one who waits.
    pub(super) fn take_waiter(&mut self, claim: &Claim) -> Option<QueuedClaim> {
        match self.kind(claim)? {
            ClaimPhase::Waiting(_) => self.remove(claim).and_then(waiter),
            ClaimPhase::Held { .. } | ClaimPhase::Leaving(_) => None,
        }
    }

    /// From now on every renewal asks for this weight.
    pub(super) fn lower_weight(&mut self, claim: &Claim, to: u32) {
        let entry = self.slot(claim).and_then(|slot| self.entries.get_mut(slot));
        if let Some(ClaimEntry { kind: ClaimPhase::Held { weight, .. }, .. }) = entry {
            *weight = Some(to);
        }
    }
}

/// Until when a hold is valid, or how it has ended. A look at the hold itself, which lies elsewhere
/// in the memory, is needed only if it may be over.
fn valid_until(hold: &Hold, lease: &HoldSchedule, now: Moment) -> Result<Moment, HoldEnd> {
    if lease.valid_until > now { Ok(lease.valid_until) } else { hold.valid_until() }
}

fn waiter(entry: ClaimEntry) -> Option<QueuedClaim> {
    match entry.kind {
        ClaimPhase::Waiting(waiter) => Some(waiter),
        ClaimPhase::Held { .. } | ClaimPhase::Leaving(_) => None,
    }
}

fn due_at(next: Option<Moment>, now: Moment) -> Due {
    match next {
        Some(at) if at > now => Due::Later(at),
        Some(_) => Due::Renew,
        None => Due::Later(NEVER),
    }
}
