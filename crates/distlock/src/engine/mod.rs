//! Getting a lock: the one waiting loop, its clean-up and its pacing.

mod acquire;
mod armed;
pub(crate) mod backoff;
mod kept_place;
mod many;
mod renew;
mod request;

use std::time::Duration;

use distlock_core::{AcquisitionId, AttemptId, Claim, Mode, Moment, Ticket};

pub(crate) use acquire::acquire;
pub(crate) use kept_place::KeptPlace;
pub(crate) use many::{Many, acquire_many};
pub(crate) use renew::{located, release, renew, silence};
pub(crate) use request::{AcquireRequest, WaitLimit};

/// A lock that was got, as plain data.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) claim: Claim,
    /// The call that got it, if the claim id is its caller's.
    pub(crate) attempt: Option<AttemptId>,
    pub(crate) fence: u64,
    /// When it was known here.
    pub(crate) at: Moment,
    /// Until when it can be relied upon.
    pub(crate) until: Moment,
    /// When to renew it first.
    pub(crate) renew_at: Moment,
    /// The place in the queue from which it was granted.
    pub(crate) ticket: Option<Ticket>,
    /// How many replicas of the store have it, as far as that was asked for.
    pub(crate) replicas: u32,
    pub(crate) waited: Duration,
    pub(crate) attempts: u32,
    /// Some acquire of this claim was never answered and may still arrive at the store.
    pub(crate) doubtful: bool,
    pub(crate) mode: Mode,
    /// The number of the acquisition in the journal, if there is one.
    pub(crate) acquisition: Option<AcquisitionId>,
}
