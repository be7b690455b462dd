//! What the table learns: answers to what was sent, and pushes.

use std::sync::Arc;

use distlock_core::{ClaimId, Fault, Moment, Standing, Ticket};

use super::lease::Due;
use super::plan::{Asked, Effect, Effects, Verdict};
use super::table::{Entry, Kind, Table};
use super::timers::Slot;
use crate::Reason;
use crate::observe::Wake;
use crate::sync::lock;

/// How many pushes are kept for claims whose first answer is still on its way.
const EARLY_MAX: usize = 1024;

impl Table {
    /// A renewal or heartbeat of a claim, sent at `sent_at` from this slot, was answered.
    pub(super) fn answered(
        &mut self,
        (id, slot): (&ClaimId, Slot),
        asked: Asked,
        sent_at: Moment,
        now: Moment,
        answer: Result<Standing, Fault>,
        effects: &mut Effects,
    ) {
        let Some(slot) = self.slot_from(id, slot) else { return };
        match self.entries[slot].kind {
            Kind::Held { .. } => {
                self.answered_holder(slot, asked, sent_at, now, &answer, effects);
            }
            Kind::Waiting(_) => self.answered_waiter(slot, sent_at, now, answer),
            Kind::Leaving(_) => {}
        }
    }

    fn answered_holder(
        &mut self,
        slot: Slot,
        asked: Asked,
        sent_at: Moment,
        now: Moment,
        answer: &Result<Standing, Fault>,
        effects: &mut Effects,
    ) {
        let Some(Entry { kind: Kind::Held { hold, lease, ticket, .. }, .. }) =
            self.entries.get_mut(slot)
        else {
            return;
        };
        let settings = &*lease.settings;
        match (asked, answer) {
            (Asked::Ttl, Ok(Standing::Held { .. })) => {
                let before = hold.valid_until().unwrap_or(now);
                if !hold.extend(settings.validity.until(sent_at, settings.ttl), now) {
                    // Confirmed too late: our own clock has ended the hold, and lost is final.
                    return self.lose(slot, Reason::Expired, effects);
                }
                lease.confirmed(sent_at);
                hold.set_failing(false);
                effects.renewed(hold, before.since(now));
            }
            // A last heartbeat from the time of waiting: it asked for a place, not for a ttl.
            (Asked::Place, Ok(Standing::Held { .. })) => {
                hold.extend(settings.validity.until(sent_at, settings.wait.place), now);
            }
            // The place was still there when this was sent, so the grant has inherited its life.
            (Asked::Place, Ok(Standing::Waiting(waiting))) if *ticket == Some(waiting.ticket) => {
                hold.extend(settings.validity.until(sent_at, settings.wait.place), now);
            }
            (Asked::Place, Ok(Standing::Waiting(_)) | Err(_)) => return,
            (Asked::Ttl, Ok(Standing::Waiting(_))) | (_, Ok(_)) => {
                return self.lose(slot, Reason::Gone, effects);
            }
            (Asked::Ttl, Err(_)) => {
                hold.set_failing(true);
                if lease.failed(now) {
                    effects.push(Effect::AtRisk(Arc::clone(hold)));
                }
            }
        }
        let until = hold.valid_until();
        lease.valid_until = until.unwrap_or(now);
        let next = match until.map(|until| lease.due(now, until)) {
            Ok(Due::Later(at)) => at,
            // Whatever is due is done with all that is due now.
            _ => now,
        };
        self.set_timer(slot, Some(next));
    }

    fn answered_waiter(
        &mut self,
        slot: Slot,
        sent_at: Moment,
        now: Moment,
        answer: Result<Standing, Fault>,
    ) {
        let Some(Entry { kind: Kind::Waiting(waiter), id, .. }) = self.entries.get_mut(slot) else {
            return;
        };
        let (id, place) = (*id, &mut waiter.place);
        let verdict = match answer {
            Ok(Standing::Waiting(standing)) => {
                if standing.ticket >= place.ticket {
                    place.confirmed(standing, sent_at, now);
                } else {
                    place.failed(sent_at, now);
                }
                let next = place.next();
                return self.set_timer(slot, next);
            }
            Ok(Standing::Held { fence }) => {
                let (until, by) = (place.held_until(sent_at), Wake::Heartbeat);
                Verdict::Granted { fence, until, by }
            }
            Ok(_) => Verdict::Gone,
            Err(fault) => {
                for (_, last_fault) in &waiter.calls {
                    *lock(last_fault) = Some(fault.clone());
                }
                if fault.is_transient() && place.silent_for(now) < waiter.patience {
                    place.failed(sent_at, now);
                    let next = place.next();
                    return self.set_timer(slot, next);
                }
                Verdict::Failed(fault)
            }
        };
        self.tell(id, &verdict);
    }

    /// A release was answered. True if it is done with, one way or the other.
    pub(super) fn released(&mut self, id: ClaimId, now: Moment, answer: &Result<(), Fault>) {
        let Some(slot) = self.slot(&id) else { return };
        let Kind::Leaving(leaving) = &mut self.entries[slot].kind else { return };
        if answer.as_ref().is_err_and(Fault::is_transient) && leaving.failed(now) {
            let next = leaving.next();
            self.set_timer(slot, next);
        } else {
            self.remove(&id);
        }
    }

    /// The store says that a waiting claim was granted.
    pub(super) fn granted(&mut self, id: ClaimId, ticket: Ticket, fence: u64) {
        match self.kind(&id) {
            // A push is trusted only under the ticket last acknowledged: without this a delayed
            // push of an earlier grant, long expired, would make two holders.
            Some(Kind::Waiting(waiter)) if waiter.place.ticket == ticket => {
                let until = waiter.place.grant_until();
                self.tell(id, &Verdict::Granted { fence, until, by: Wake::Push });
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

    /// Messages may have been lost: everybody who waits asks where it stands.
    pub(super) fn hurry(&mut self, now: Moment) {
        let idle =
            |entry: &Entry| matches!(&entry.kind, Kind::Waiting(w) if w.place.next().is_some());
        let slots: Vec<_> =
            self.entries.iter().filter(|(_, entry)| idle(entry)).map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Kind::Waiting(waiter) = &mut self.entries[slot].kind {
                waiter.place.hurry(now);
            }
            self.set_timer(slot, Some(now));
        }
    }

    /// The fence of a push that came before the place it belongs to was known.
    pub(super) fn take_early(&mut self, id: ClaimId, ticket: Ticket) -> Option<u64> {
        let mine = |&&(early, pushed, _): &&(ClaimId, Ticket, u64)| early == id && pushed == ticket;
        let fence = self.early.iter().find(mine).map(|&(.., fence)| fence);
        self.early.retain(|&(early, ..)| early != id);
        fence
    }

    /// An operator broke a hold.
    pub(super) fn broken(&mut self, id: ClaimId) -> Effects {
        let mut effects = Effects::default();
        if let Some(slot) = self.slot(&id)
            && self.holds(&id)
        {
            self.lose(slot, Reason::Broken, &mut effects);
        }
        effects
    }
}
