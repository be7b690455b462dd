//! What the table learns: answers to what was sent, and pushes.

use distlock_core::{Claim, ClaimId, Fault, Moment, Standing, Ticket};

use super::hold_schedule::{Due, HoldRisk};
use super::plan::{Effects, PlaceVerdict, RenewalKind};
use super::table::{ClaimEntry, ClaimPhase, ClaimTable};
use super::timers::TableIndex;
use crate::LossReason;
use crate::observe::WakeCause;

/// How many pushes are kept for claims whose first answer is still on its way.
const EARLY_MAX: usize = 1024;

/// A push for a claim that nothing is known of yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum EarlyPush {
    /// It was granted.
    Granted { ticket: Ticket, fence: u64 },
    /// The store is to be asked.
    Check,
}

impl ClaimTable {
    /// A renewal or heartbeat of a claim, sent at `sent_at` from this slot, was answered.
    pub(super) fn answered(
        &mut self,
        (claim, slot): (&Claim, TableIndex),
        asked: RenewalKind,
        sent_at: Moment,
        now: Moment,
        answer: Result<Standing, Fault>,
        effects: &mut Effects,
    ) {
        let Some(slot) = self.slot_from(claim, slot) else { return };
        match self.entries[slot].kind {
            ClaimPhase::Held { .. } => {
                self.answered_holder(slot, asked, sent_at, now, &answer, effects);
            }
            ClaimPhase::Waiting(_) => self.answered_waiter(slot, sent_at, now, answer),
            ClaimPhase::Leaving(_) => {}
        }
    }

    /// A renewal or heartbeat of a claim was not answered in time. It may still be.
    pub(super) fn is_slow(
        &mut self,
        (claim, slot): (&Claim, TableIndex),
        sent_at: Moment,
        now: Moment,
        fault: &Fault,
        effects: &mut Effects,
    ) {
        let Some(slot) = self.slot_from(claim, slot) else { return };
        match &mut self.entries[slot].kind {
            ClaimPhase::Held { hold, lease, .. } => {
                let risk = lease.is_slow(sent_at);
                if risk != HoldRisk::Known {
                    hold.set_failing(true);
                }
                effects.at_risk(hold, risk, fault);
            }
            ClaimPhase::Waiting(waiter) => {
                waiter.note_fault(fault);
                if waiter.is_out_of_patience(now) {
                    self.tell(claim, &PlaceVerdict::Failed(fault.clone()));
                }
            }
            ClaimPhase::Leaving(_) => {}
        }
    }

    fn answered_holder(
        &mut self,
        slot: TableIndex,
        asked: RenewalKind,
        sent_at: Moment,
        now: Moment,
        answer: &Result<Standing, Fault>,
        effects: &mut Effects,
    ) {
        let Some(ClaimEntry { kind: ClaimPhase::Held { hold, lease, ticket, .. }, .. }) =
            self.entries.get_mut(slot)
        else {
            return;
        };
        let settings = &*lease.settings;
        match (asked, answer) {
            (RenewalKind::Ttl, Ok(Standing::Held { .. })) => {
                let before = hold.valid_until().unwrap_or(now);
                if !hold.extend(settings.validity.until(sent_at, settings.ttl), now) {
                    // Confirmed too late: our own clock has ended the hold, and lost is final.
                    return self.lose(slot, LossReason::Expired, effects);
                }
                lease.confirmed(sent_at);
                hold.set_failing(false);
                effects.renewed(hold, before.since(now));
            }
            // A last heartbeat from the time of waiting: it asked for a place, not for a ttl.
            (RenewalKind::Place, Ok(Standing::Held { .. })) => {
                hold.extend(settings.validity.until(sent_at, settings.wait.place), now);
            }
            // The place was still there when this was sent, so the grant has inherited its life.
            (RenewalKind::Place, Ok(Standing::Waiting(waiting)))
                if *ticket == Some(waiting.ticket) =>
            {
                hold.extend(settings.validity.until(sent_at, settings.wait.place), now);
            }
            (RenewalKind::Place, Ok(Standing::Waiting(_)) | Err(_)) => return,
            (RenewalKind::Ttl, Ok(Standing::Waiting(_))) | (_, Ok(_)) => {
                return self.lose(slot, LossReason::Gone, effects);
            }
            (RenewalKind::Ttl, Err(fault)) => {
                hold.set_failing(true);
                effects.at_risk(hold, lease.failed(sent_at, now), fault);
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
        slot: TableIndex,
        sent_at: Moment,
        now: Moment,
        answer: Result<Standing, Fault>,
    ) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let claim = entry.claim();
        let ClaimPhase::Waiting(waiter) = &mut entry.kind else { return };
        let place = &mut waiter.place;
        let verdict = match answer {
            Ok(Standing::Waiting(standing)) => {
                if standing.ticket >= place.ticket {
                    place.confirmed(standing, sent_at, now);
                } else {
                    place.failed(sent_at, now);
                }
                let next = Some(place.next());
                return self.set_timer(slot, next);
            }
            Ok(Standing::Held { fence }) => {
                let (until, by) = (place.held_until(sent_at), WakeCause::Heartbeat);
                PlaceVerdict::Granted { fence, until, by }
            }
            Ok(_) => PlaceVerdict::Gone,
            Err(fault) => {
                waiter.note_fault(&fault);
                if fault.is_transient() && !waiter.is_out_of_patience(now) {
                    waiter.place.failed(sent_at, now);
                    let next = Some(waiter.place.next());
                    return self.set_timer(slot, next);
                }
                PlaceVerdict::Failed(fault)
            }
        };
        self.tell(&claim, &verdict);
    }

    /// A release was answered.
    pub(super) fn released(&mut self, claim: &Claim, now: Moment, answer: &Result<(), Fault>) {
        let Some(slot) = self.slot(claim) else { return };
        let ClaimPhase::Leaving(leaving) = &mut self.entries[slot].kind else { return };
        if answer.as_ref().is_err_and(Fault::is_transient) && leaving.failed(now) {
            let next = leaving.next();
            self.set_timer(slot, next);
        } else {
            self.remove(claim);
        }
    }

    /// The store says that a waiting claim was granted.
    pub(super) fn granted(&mut self, id: ClaimId, ticket: Ticket, fence: u64) {
        // A push is trusted only under the ticket last acknowledged: without this a delayed push of
        // an earlier grant, long expired, would make two holders.
        let meant = self.slots_of(id).find_map(|slot| match &self.entries.get(slot)?.kind {
            ClaimPhase::Waiting(waiter) if waiter.place.ticket == ticket => {
                Some((self.entries[slot].claim(), waiter.place.grant_until()))
            }
            _ => None,
        });
        if let Some((claim, until)) = meant {
            self.tell(&claim, &PlaceVerdict::Granted { fence, until, by: WakeCause::Push });
        } else if self.slots_of(id).next().is_none() {
            // It may have overtaken the answer to its own ask.
            if self.early.len() == EARLY_MAX {
                self.early.pop_front();
            }
            self.early.push_back((id, EarlyPush::Granted { ticket, fence }));
        }
    }

    /// A claim, held or waiting, is to be asked for at once.
    pub(super) fn check(&mut self, id: ClaimId, now: Moment) {
        let slots: Vec<_> = self.slots_of(id).collect();
        if slots.is_empty() {
            if self.early.len() == EARLY_MAX {
                self.early.pop_front();
            }
            self.early.push_back((id, EarlyPush::Check));
        }
        for slot in slots {
            match &mut self.entries[slot].kind {
                ClaimPhase::Waiting(waiter) => {
                    waiter.place.hurry(now);
                    let next = waiter.place.next();
                    self.set_timer(slot, Some(next));
                }
                ClaimPhase::Held { .. } => self.renew_now(slot, now),
                ClaimPhase::Leaving(_) => {}
            }
        }
    }

    /// Messages may have been lost: everybody who waits asks where it stands, and so does a claim
    /// whose first answer is still on its way.
    pub(super) fn hurry(&mut self, now: Moment) {
        self.interrupted_at = Some(now);
        for (slot, entry) in &mut self.entries {
            if let ClaimPhase::Waiting(waiter) = &mut entry.kind {
                waiter.place.hurry(now);
                self.timers.set(slot, waiter.place.next());
            }
        }
    }

    /// A push that came before the place it belongs to was known.
    pub(super) fn take_early(&mut self, id: ClaimId, ticket: Ticket) -> Option<EarlyPush> {
        let meant = |early: &EarlyPush| match early {
            EarlyPush::Granted { ticket: pushed, .. } => *pushed == ticket,
            EarlyPush::Check => true,
        };
        let mine = |(early, push): &&(ClaimId, EarlyPush)| *early == id && meant(push);
        let found = self.early.iter().find(mine).map(|&(_, push)| push);
        self.early.retain(|&(early, _)| early != id);
        found
    }

    /// An operator broke a hold.
    pub(super) fn broken(&mut self, id: ClaimId, now: Moment) -> Effects {
        let mut effects = Effects::default();
        let is_held =
            |slot: &TableIndex| matches!(self.entries[*slot].kind, ClaimPhase::Held { .. });
        let held: Vec<_> = self.slots_of(id).filter(is_held).collect();
        match held[..] {
            [slot] => self.lose(slot, LossReason::Broken, &mut effects),
            // The message does not name the key: a renewal tells which of them it is.
            _ => held.into_iter().for_each(|slot| self.renew_now(slot, now)),
        }
        effects
    }

    fn renew_now(&mut self, slot: TableIndex, now: Moment) {
        if let ClaimPhase::Held { lease, .. } = &mut self.entries[slot].kind {
            lease.hurry(now);
            self.set_timer(slot, Some(now));
        }
    }
}
