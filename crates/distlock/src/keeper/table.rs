//! Every claim in hand and when it is due: what the keeper knows, without doing anything.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Claim, ClaimId, Fault, Moment, Renewal, Standing, Ticket};
use tokio::sync::oneshot;

use super::hold::Hold;
use super::lease::{Due, Lease};
use super::leaving::Leaving;
use super::place::Place;
use super::plan::{Asked, Effect, LastFault, Plan, Verdict, lock};
use crate::Reason;

/// How many pushes are kept for claims whose first answer is still on its way.
const EARLY_MAX: usize = 1024;

/// Claims due within this time may go out with those due now.
const JOIN_WINDOW: Duration = Duration::from_secs(1);

/// How long the keeper stays around with nothing to do, so that a program which takes and releases
/// locks one after the other does not start a task for each.
const LINGER: Duration = Duration::from_secs(1);

/// A claim in hand.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) claim: Claim,
    pub(super) kind: Kind,
    timer: Option<Moment>,
}

/// What a claim in hand is doing.
#[derive(Debug)]
pub(super) enum Kind {
    Held { hold: Arc<Hold>, lease: Lease, weight: Option<u32> },
    Waiting(Waiter),
    Leaving(Leaving),
}

/// A call that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) place: Place,
    pub(super) reply: oneshot::Sender<Verdict>,
    pub(super) last_fault: LastFault,
    /// How long the store may be silent before the call fails.
    pub(super) patience: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<ClaimId, Entry>,
    timers: BTreeSet<(Moment, ClaimId)>,
    early: VecDeque<(ClaimId, Ticket, u64)>,
    idle_since: Option<Moment>,
    /// When the keeper will look again without being woken.
    pub(super) wake_at: Moment,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Puts a claim under its timer; the same claim in another role is replaced.
    pub(super) fn insert(&mut self, claim: Claim, kind: Kind, at: Moment) {
        self.remove(&claim.id);
        self.timers.insert((at, claim.id));
        self.entries.insert(claim.id, Entry { claim, kind, timer: Some(at) });
    }

    pub(super) fn remove(&mut self, id: &ClaimId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        if let Some(at) = entry.timer {
            self.timers.remove(&(at, *id));
        }
        Some(entry)
    }

    /// Takes out everybody who waits.
    pub(super) fn remove_waiters(&mut self) -> Vec<Waiter> {
        let waiting = |entry: &Entry| matches!(entry.kind, Kind::Waiting(_));
        let ids: Vec<_> =
            self.entries.iter().filter(|(_, entry)| waiting(entry)).map(|(id, _)| *id).collect();
        let removed = ids.iter().filter_map(|id| self.remove(id));
        removed
            .filter_map(|entry| match entry.kind {
                Kind::Waiting(waiter) => Some(waiter),
                Kind::Held { .. } | Kind::Leaving(_) => None,
            })
            .collect()
    }

    /// The keeper before this one is gone, and with it the calls it had under way.
    pub(super) fn revive(&mut self, now: Moment) {
        let ids: Vec<_> = self.entries.keys().copied().collect();
        for id in ids {
            match self.entries.get_mut(&id).map(|entry| &mut entry.kind) {
                Some(Kind::Held { lease, .. }) => lease.forgotten(),
                Some(Kind::Waiting(waiter)) => waiter.place.forgotten(),
                Some(Kind::Leaving(leaving)) => leaving.forgotten(),
                None => {}
            }
            self.set_timer(id, Some(now));
        }
    }

    fn set_timer(&mut self, id: ClaimId, at: Option<Moment>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut entry.timer, at) {
            self.timers.remove(&(before, id));
        }
        if let Some(at) = at {
            self.timers.insert((at, id));
        }
    }

    /// Everything that is due at `now`.
    pub(super) fn plan(&mut self, now: Moment, nap: Duration, busy: bool) -> Plan {
        let mut plan = Plan::default();
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.serve(id, now, &mut plan);
        }
        if !plan.renewals.is_empty() || !plan.heartbeats.is_empty() {
            self.join_others(now, &mut plan);
        }
        if self.entries.is_empty() && !busy {
            let since = *self.idle_since.get_or_insert(now);
            plan.stop = now.since(since) >= LINGER;
            plan.wake_at = since.after(LINGER).min(now.after(nap));
        } else {
            self.idle_since = None;
            let next = self.timers.first().map_or(Moment::from_micros(u64::MAX), |&(at, _)| at);
            plan.wake_at = next.min(now.after(nap));
        }
        self.wake_at = plan.wake_at;
        plan
    }

    /// Lets claims that are due soon go out with those that are due now: fewer, fuller batches.
    fn join_others(&mut self, now: Moment, plan: &mut Plan) {
        let soon = self.timers.range(..=(now.after(JOIN_WINDOW), ClaimId::from_bytes([0xff; 16])));
        let willing: Vec<_> = soon
            .map(|&(_, id)| id)
            .filter(|id| match &self.entries[id].kind {
                Kind::Held { lease, .. } => !plan.renewals.is_empty() && lease.can_join(now),
                Kind::Waiting(waiter) => !plan.heartbeats.is_empty() && waiter.place.can_join(now),
                Kind::Leaving(_) => false,
            })
            .collect();
        for id in willing {
            self.send(id, now, plan);
        }
    }

    /// A claim's timer has run out: does what is due for it and sets the next timer.
    fn serve(&mut self, id: ClaimId, now: Moment, plan: &mut Plan) {
        let Some(entry) = self.entries.get(&id) else { return };
        let due = match &entry.kind {
            Kind::Held { hold, lease, .. } => match hold.valid_until() {
                Ok(until) => lease.due(now, until),
                Err(_) => {
                    self.remove(&id);
                    return;
                }
            },
            Kind::Waiting(waiter) => due_at(waiter.place.next(), now),
            Kind::Leaving(leaving) => due_at(leaving.next(), now),
        };
        match due {
            Due::Later(at) => self.set_timer(id, Some(at)),
            Due::Renew => self.send(id, now, plan),
            Due::Lose(reason) => self.lose(id, reason, &mut plan.effects),
        }
    }

    /// Sends what keeps a claim alive, or lets go of it.
    fn send(&mut self, id: ClaimId, now: Moment, plan: &mut Plan) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let claim = entry.claim.clone();
        let next = match &mut entry.kind {
            Kind::Held { hold, lease, weight } => {
                let until = hold.valid_until().unwrap_or(now);
                plan.renewal_patience = least(plan.renewal_patience, lease.patience(now, until));
                let mut renewal = Renewal::hold(claim, hold.settings.lease());
                renewal.weight = *weight;
                plan.renewals.push(renewal);
                lease.sent();
                match lease.due(now, until) {
                    Due::Later(at) => Some(at),
                    Due::Renew | Due::Lose(_) => Some(until),
                }
            }
            Kind::Waiting(waiter) => {
                let place = &mut waiter.place;
                plan.heartbeat_patience = least(plan.heartbeat_patience, place.interval());
                plan.heartbeats.push(Renewal::place(claim, place.span(), place.ticket));
                place.sent();
                None
            }
            Kind::Leaving(leaving) => {
                plan.releases.push((claim, leaving.send(now)));
                None
            }
        };
        self.set_timer(id, next);
    }

    fn lose(&mut self, id: ClaimId, reason: Reason, effects: &mut Vec<Effect>) {
        if let Some(Entry { kind: Kind::Held { hold, .. }, .. }) = self.remove(&id) {
            effects.push(Effect::Lost(hold, reason));
        }
    }

    /// A renewal or heartbeat sent at `sent_at` was answered.
    pub(super) fn answered(
        &mut self,
        id: ClaimId,
        asked: Asked,
        sent_at: Moment,
        now: Moment,
        answer: Result<Standing, Fault>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        match self.entries.get(&id).map(|entry| &entry.kind) {
            Some(Kind::Held { .. }) => {
                self.answered_holder(id, asked, sent_at, now, &answer, &mut effects);
            }
            Some(Kind::Waiting(_)) => self.answered_waiter(id, sent_at, now, answer),
            Some(Kind::Leaving(_)) | None => {}
        }
        effects
    }

    fn answered_holder(
        &mut self,
        id: ClaimId,
        asked: Asked,
        sent_at: Moment,
        now: Moment,
        answer: &Result<Standing, Fault>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Entry { kind: Kind::Held { hold, lease, .. }, .. }) = self.entries.get_mut(&id)
        else {
            return;
        };
        let settings = &hold.settings;
        match (asked, answer) {
            (Asked::Ttl, Ok(Standing::Held { .. })) => {
                let margin = hold.valid_until().unwrap_or(now).since(now);
                if !hold.extend(settings.validity.until(sent_at, settings.ttl)) {
                    // Confirmed too late: our own clock has ended the hold, and lost is final.
                    return self.lose(id, Reason::Expired, effects);
                }
                lease.confirmed(sent_at);
                effects.push(Effect::Renewed(Arc::clone(hold), margin));
            }
            // A last heartbeat from the time of waiting: it asked for a place, not for a ttl.
            (Asked::Place, Ok(Standing::Held { .. })) => {
                hold.extend(settings.validity.until(sent_at, settings.wait.place));
            }
            (Asked::Place, Ok(Standing::Waiting(_)) | Err(_)) => return,
            (Asked::Ttl, Ok(Standing::Waiting(_))) | (_, Ok(_)) => {
                return self.lose(id, Reason::Gone, effects);
            }
            (Asked::Ttl, Err(_)) => {
                if lease.failed(now) {
                    effects.push(Effect::AtRisk(Arc::clone(hold)));
                }
            }
        }
        self.set_timer(id, Some(now));
    }

    fn answered_waiter(
        &mut self,
        id: ClaimId,
        sent_at: Moment,
        now: Moment,
        answer: Result<Standing, Fault>,
    ) {
        let Some(Entry { kind: Kind::Waiting(waiter), .. }) = self.entries.get_mut(&id) else {
            return;
        };
        let place = &mut waiter.place;
        let verdict = match answer {
            Ok(Standing::Waiting(standing)) => {
                if standing.ticket >= place.ticket {
                    place.confirmed(standing, sent_at, now);
                }
                let next = place.next();
                return self.set_timer(id, next);
            }
            Ok(Standing::Held { fence }) => {
                Verdict::Granted { fence, until: place.held_until(sent_at) }
            }
            Ok(_) => Verdict::Gone,
            Err(fault) => {
                *lock(&waiter.last_fault) = Some(fault.clone());
                if fault.is_transient() && place.silent_for(now) < waiter.patience {
                    place.failed(now);
                    let next = place.next();
                    return self.set_timer(id, next);
                }
                Verdict::Failed(fault)
            }
        };
        self.tell(id, verdict);
    }

    /// Ends a wait. If the call has gone meanwhile, its own clean-up releases the claim.
    fn tell(&mut self, id: ClaimId, verdict: Verdict) {
        if let Some(Entry { kind: Kind::Waiting(waiter), .. }) = self.remove(&id) {
            let _ = waiter.reply.send(verdict);
        }
    }

    /// A release was answered. True if it is done with, one way or the other.
    pub(super) fn released(&mut self, id: ClaimId, now: Moment, answer: &Result<(), Fault>) {
        let Some(Entry { kind: Kind::Leaving(leaving), .. }) = self.entries.get_mut(&id) else {
            return;
        };
        if answer.as_ref().is_err_and(Fault::is_transient) && leaving.failed(now) {
            let next = leaving.next();
            self.set_timer(id, next);
        } else {
            self.remove(&id);
        }
    }

    /// The store says that a waiting claim was granted.
    pub(super) fn granted(&mut self, id: ClaimId, ticket: Ticket, fence: u64) {
        match self.entries.get(&id).map(|entry| &entry.kind) {
            // A push is trusted only under the ticket last acknowledged: without this a delayed
            // push of an earlier grant, long expired, would make two holders.
            Some(Kind::Waiting(waiter)) if waiter.place.ticket == ticket => {
                let until = waiter.place.grant_until();
                self.tell(id, Verdict::Granted { fence, until });
            }
            Some(_) => {}
            // It may have overtaken the answer to its own ask.
            None => {
                if self.early.len() == EARLY_MAX {
                    self.early.pop_front();
                }
                self.early.push_back((id, ticket, fence));
            }
        }
    }

    /// The fence of a push that came before the place it belongs to was known.
    pub(super) fn take_early(&mut self, id: ClaimId, ticket: Ticket) -> Option<u64> {
        let at = self.early.iter().position(|&(early, ..)| early == id)?;
        let (_, pushed, fence) = self.early.remove(at)?;
        (pushed == ticket).then_some(fence)
    }

    /// An operator broke a hold.
    pub(super) fn broken(&mut self, id: ClaimId) -> Vec<Effect> {
        let mut effects = Vec::new();
        if matches!(self.entries.get(&id), Some(Entry { kind: Kind::Held { .. }, .. })) {
            self.lose(id, Reason::Broken, &mut effects);
        }
        effects
    }

    /// From now on every renewal asks for this weight.
    pub(super) fn lower_weight(&mut self, id: &ClaimId, to: u32) {
        if let Some(Entry { kind: Kind::Held { weight, .. }, .. }) = self.entries.get_mut(id) {
            *weight = Some(to);
        }
    }
}

fn due_at(next: Option<Moment>, now: Moment) -> Due {
    match next {
        Some(at) if at > now => Due::Later(at),
        Some(_) => Due::Renew,
        None => Due::Later(Moment::from_micros(u64::MAX)),
    }
}

fn least(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}
