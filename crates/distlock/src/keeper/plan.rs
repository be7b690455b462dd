//! What the table tells others: what is due, what has happened, how a wait ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{Claim, Fault, Key, Moment, ReleaseOptions, Renewal, Target};

use super::hold::Hold;
use super::hold_schedule::HoldRisk;
use super::timers::TableIndex;
use crate::LossReason;
use crate::observe::WakeCause;

/// How many held claims go into one call, and share its fate. What a store does in one go is for
/// its driver to bound.
pub(super) const RENEWALS_MAX: usize = 1_000;

/// What became of a place in the queue.
#[derive(Clone, Debug)]
pub(crate) enum PlaceVerdict {
    /// It is one's turn.
    Granted { fence: u64, until: Moment, by: WakeCause },
    /// The place is gone; queue again.
    Gone,
    /// The backend cannot be reached, or refuses.
    Failed(Fault),
    /// The locks were closed.
    Closed,
}

/// The last fault seen while waiting, shared with the call that waits.
pub(crate) type LastFault = Arc<Mutex<Option<Fault>>>;

/// Things to be told to others once the table is no longer locked.
#[derive(Debug)]
pub(super) enum Effect {
    Lost(Arc<Hold>, LossReason),
    Renewed(Arc<Hold>, Duration),
    /// A renewal failed.
    AtRisk(Arc<Hold>, HoldRisk, Fault),
    /// A client waits behind this many.
    Waits(Key, u64),
}

/// All of them, in their order.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) all: Vec<Effect>,
    /// No listener wants an event for each renewal: they are only counted.
    pub(super) quiet: bool,
    pub(super) renewals: u64,
}

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.all.push(effect);
    }

    pub(super) fn at_risk(&mut self, hold: &Arc<Hold>, risk: HoldRisk, fault: &Fault) {
        if risk != HoldRisk::Known {
            self.push(Effect::AtRisk(Arc::clone(hold), risk, fault.clone()));
        }
    }

    pub(super) fn renewed(&mut self, hold: &Arc<Hold>, margin: Duration) {
        self.renewals += 1;
        if !self.quiet {
            self.push(Effect::Renewed(Arc::clone(hold), margin));
        }
    }
}

/// What the keeper shall do now.
#[derive(Debug, Default)]
pub(super) struct KeeperPlan {
    /// Everything in it is sent later than this.
    pub(super) made_at: Moment,
    pub(super) renewals: Vec<Batch>,
    pub(super) heartbeats: Vec<(Renewal, Sender)>,
    /// By the id of the entry in the table.
    pub(super) releases: Vec<(Claim, Target, ReleaseOptions)>,
    pub(super) effects: Effects,
    pub(super) wake_at: Moment,
    pub(super) stop: bool,
}

impl KeeperPlan {
    /// Adds the renewal of a hold to the last call, or to another if that is full.
    pub(super) fn renew(&mut self, renewal: Renewal, sender: Sender) {
        match self.renewals.last_mut() {
            Some(batch) if batch.renewals.len() < RENEWALS_MAX => batch.push(renewal, sender),
            last => {
                // Where one call was full, the next is likely to be.
                let room = if last.is_some() { RENEWALS_MAX } else { 1 };
                let mut batch = Batch::with_room(room);
                batch.push(renewal, sender);
                self.renewals.push(batch);
            }
        }
    }
}

/// The sender of a renewal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    /// Where it is in the table.
    pub(super) slot: TableIndex,
    /// After so long without an answer the store counts as slow.
    pub(super) slow_after: Duration,
}

/// What goes out in one call.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) renewals: Vec<Renewal>,
    /// Of each.
    pub(super) senders: Vec<Sender>,
}

impl Batch {
    fn with_room(room: usize) -> Self {
        Self { renewals: Vec::with_capacity(room), senders: Vec::with_capacity(room) }
    }

    fn push(&mut self, renewal: Renewal, sender: Sender) {
        self.renewals.push(renewal);
        self.senders.push(sender);
    }
}

impl Extend<(Renewal, Sender)> for Batch {
    fn extend<I: IntoIterator<Item = (Renewal, Sender)>>(&mut self, more: I) {
        for (renewal, sender) in more {
            self.push(renewal, sender);
        }
    }
}

/// What a renewal that was answered had asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenewalKind {
    Ttl,
    Place,
}
