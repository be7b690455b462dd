//! What the table tells others: what is due, what has happened, how a wait ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{Claim, Fault, How, Key, Moment, Renewal};

use super::hold::Hold;
use crate::Reason;
use crate::observe::Wake;

/// What became of a place in the queue.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// It is one's turn.
    Granted { fence: u64, until: Moment, by: Wake },
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
    Lost(Arc<Hold>, Reason),
    Renewed(Arc<Hold>, Duration),
    AtRisk(Arc<Hold>),
    /// Somebody waits behind this many.
    Waits(Key, u64),
}

/// What the keeper shall do now.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Each with how long to wait for its answer.
    pub(super) renewals: Vec<(Renewal, Duration)>,
    pub(super) heartbeats: Vec<(Renewal, Duration)>,
    pub(super) releases: Vec<(Claim, How)>,
    pub(super) effects: Vec<Effect>,
    pub(super) wake_at: Moment,
    pub(super) stop: bool,
}

/// What a renewal that was answered had asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Ttl,
    Place,
}
