//! The clean-up of an acquisition, armed before the first byte leaves.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Answer, AttemptId, Claim, Fault};

use crate::keeper::{CallInProgress, Keeper};

/// Releases a claim unless it is disarmed.
///
/// From the moment an ask may have left, something may be at the store: a hold, a place, or an ask
/// that is still on its way. Whatever ends the acquisition, be it an error, a deadline or a dropped
/// future, hands the claim to the keeper, which releases it until that is acknowledged.
#[derive(Debug)]
pub(super) struct Armed {
    keeper: Arc<Keeper>,
    _asking: CallInProgress,
    claim: Claim,
    lease: Duration,
    /// The id is the caller's, who may have other calls under way under it: only what this call got
    /// is given up.
    attempt: Option<AttemptId>,
    /// Something may be at the store.
    out: bool,
    /// The last ask has not been answered yet.
    unanswered: bool,
    /// An earlier ask was never answered.
    doubtful: bool,
}

impl Armed {
    pub(super) fn new(
        keeper: &Arc<Keeper>,
        claim: Claim,
        attempt: Option<AttemptId>,
        lease: Duration,
    ) -> Self {
        let asking = CallInProgress::new(keeper);
        Self {
            keeper: Arc::clone(keeper),
            _asking: asking,
            claim,
            lease,
            attempt,
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

    /// Goes on with the same claim in another attempt. The one before was released, or is given up.
    pub(super) fn attempt_again(&mut self, attempt: AttemptId, released: bool) {
        self.out &= !released;
        self.give_up();
        self.attempt = Some(attempt);
        self.doubtful = false;
    }

    /// The claim belongs to the grant, or to a caller who is left in doubt.
    pub(super) fn disarm(mut self) {
        self.out = false;
    }

    /// Under which claim the keeper releases what this call got.
    pub(super) fn leaving(&self) -> Claim {
        match self.attempt {
            Some(attempt) => Keeper::attempt_of(&self.claim, attempt),
            None => self.claim.clone(),
        }
    }

    /// Releases what may be at the store.
    pub(super) fn give_up(&mut self) {
        let out = std::mem::take(&mut self.out);
        let doubtful = self.doubtful || self.unanswered;
        match self.attempt {
            Some(attempt) => {
                self.keeper.stop_waiting(&self.claim);
                if out {
                    self.keeper.leave_attempt(&self.claim, attempt, self.lease, doubtful);
                }
            }
            None if out => {
                let now = self.keeper.clock.now();
                self.keeper.leave(self.claim.clone(), self.lease, now, doubtful);
            }
            None => {}
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.give_up();
    }
}
