//! The clean-up of an acquisition, armed before the first byte leaves.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Answer, Claim, Fault};

use crate::keeper::{Asking, Ending, Keeper};

/// Releases a claim unless it is disarmed.
///
/// From the moment an ask may have left, something may be at the store: a hold, a place, or an ask
/// that is still on its way. Whatever ends the acquisition, be it an error, a deadline or a dropped
/// future, hands the claim to the keeper, which releases it until that is acknowledged.
#[derive(Debug)]
pub(super) struct Armed {
    keeper: Arc<Keeper>,
    _asking: Asking,
    claim: Claim,
    lease: Duration,
    /// The id is the caller's, who may have other calls under way under it.
    shared: bool,
    /// Something may be at the store.
    out: bool,
    /// The last ask has not been answered yet.
    unanswered: bool,
    /// An earlier ask was never answered.
    doubtful: bool,
}

impl Armed {
    pub(super) fn new(keeper: &Arc<Keeper>, claim: Claim, lease: Duration, shared: bool) -> Self {
        let asking = Asking::new(keeper);
        if shared {
            keeper.call_begins(&claim);
        }
        Self {
            keeper: Arc::clone(keeper),
            _asking: asking,
            claim,
            lease,
            shared,
            out: false,
            unanswered: false,
            doubtful: false,
        }
    }

    /// An ask is about to leave.
    pub(super) fn ask(&mut self) {
        self.out = true;
        self.unanswered = true;
    }

    /// An ask was answered, or failed.
    pub(super) fn answered(&mut self, answer: &Result<Answer, Fault>) {
        self.unanswered = false;
        match answer {
            Ok(Answer::Granted { .. }) => {}
            Ok(Answer::Busy(busy)) if busy.ticket.is_some() => {}
            // Some node may have it, or may still get it.
            Ok(Answer::Outvoted(_)) => {}
            // Nothing is left of it at the store, if all earlier ones were answered, too.
            Ok(_) => self.out = self.doubtful,
            Err(fault) => {
                let unknown = fault.kind() != distlock_core::FaultKind::Unsupported;
                self.doubtful |= unknown;
                self.out = self.doubtful;
            }
        }
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Gives up the claim and goes on with another.
    pub(super) fn replace(&mut self, claim: Claim) {
        self.give_up();
        self.claim = claim;
        self.doubtful = false;
    }

    /// The claim belongs to somebody else: to the grant, or to a caller who is left in doubt.
    pub(super) fn disarm(mut self) {
        self.out = false;
        if std::mem::take(&mut self.shared) {
            self.keeper.call_ends(&self.claim, Ending::Taken);
        }
    }

    fn give_up(&mut self) {
        let out = std::mem::take(&mut self.out);
        let ending = if out { Ending::Out } else { Ending::Clean };
        let give_up = match std::mem::take(&mut self.shared) {
            true => self.keeper.call_ends(&self.claim, ending),
            false => out,
        };
        if give_up {
            let doubtful = self.doubtful || self.unanswered;
            let now = self.keeper.clock.now();
            self.keeper.leave(self.claim.clone(), self.lease, now, doubtful);
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.give_up();
    }
}
