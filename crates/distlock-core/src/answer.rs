//! What a backend answers: yes, not now, or gone. Not knowing is a [`Fault`](crate::Fault).

use std::time::Duration;

use crate::{Label, Mode, Ticket};

/// The answer to an [`Ask`](crate::Ask).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The claim holds.
    Granted {
        /// The fencing token: larger than every earlier one of this key.
        fence: u64,
    },
    /// Not now.
    Busy(Busy),
    /// The key is in use under another [`Order`](crate::Order).
    Conflict,
    /// The queue is as long as the ask tolerates.
    Full,
    /// The claim id was released or broken before; it can never hold again.
    Dead,
    /// The store has forgotten what it promised and abstains for this long.
    Quarantined(Duration),
    /// The [witness](crate::Ask::witness) does not hold: the store has forgotten what it promised.
    /// Nothing was changed.
    Forgot,
    /// The numbers that fences and tickets are made from are used up: a further one could not be
    /// larger and exact. Nothing was changed, and it does not pass.
    Spent,
    /// Refused for the reason inside, by a store of several nodes. Some of them may have granted
    /// the claim, or may still do so: it has to be released before it is asked for again.
    Outvoted(Box<Answer>),
}

/// Why an ask was not granted, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The place in the queue, if the ask took one.
    pub ticket: Option<Ticket>,
    /// How many waiters the order puts ahead.
    pub ahead: u64,
    /// When the first holder's lease ends unless it is renewed; unknown for a foreign holder that
    /// never expires.
    pub retry_after: Option<Duration>,
    /// The holder whose lease ends last.
    pub holder: Option<Holder>,
}

/// A holder as others may see it. The claim id is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The owner's label.
    pub owner: Label,
    /// What for.
    pub reason: Option<Label>,
    /// Its fencing token.
    pub fence: u64,
    /// How much it holds.
    pub weight: u32,
    /// How much there is in all, as its own ask said; none if the store did not say. A
    /// [snapshot](crate::Snapshot) of a hold that was made by distlock always has it.
    pub capacity: Option<u32>,
    /// True if it shares with no other claim.
    pub exclusive: bool,
    /// The group of a shared holder.
    pub group: Option<Label>,
    /// Since when it holds.
    pub held_for: Duration,
    /// When its lease ends unless renewed; none for a foreign holder that never expires.
    pub expires_in: Option<Duration>,
}

impl Holder {
    /// How it holds, as far as is known: without its capacity a semaphore looks like a reader.
    pub fn mode(&self) -> Mode {
        match (self.capacity, self.exclusive) {
            (Some(capacity), _) => Mode::of_shape(self.weight, capacity),
            (None, true) => Mode::Exclusive,
            (None, false) => Mode::Shared,
        }
    }

    /// The ttl of its lease, estimated from what is left of it: stores do not keep it. The estimate
    /// is exact for a lease that was never renewed, and never below the ttl for a holder that
    /// renews before two thirds of it have passed. None for a holder that never expires.
    pub fn ttl_estimate(&self) -> Option<Duration> {
        self.expires_in.map(|left| left.saturating_add(self.held_for).min(left.saturating_mul(3)))
    }
}

/// The answer to a [`Renewal`](crate::Renewal).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// The claim holds and will for the renewed span.
    Held {
        /// The fencing token.
        fence: u64,
    },
    /// The claim waits.
    Waiting(QueuePosition),
    /// The store does not know the claim: it expired, was released or was broken.
    Gone,
}

/// Where a waiting claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// The place.
    pub ticket: Ticket,
    /// How many waiters the order puts ahead.
    pub ahead: u64,
    /// When the first holder's lease ends unless it is renewed.
    pub retry_after: Option<Duration>,
}

/// How many replicas of the store know of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confirmed {
    /// The claim holds, and this many have it.
    By(u32),
    /// The store does not know the hold.
    Gone,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The claim held until now.
    WasHeld,
    /// The claim waited until now.
    WasWaiting,
    /// The store did not know the claim, so there was nothing to give up.
    Gone,
}
