//! What a client asks of a backend: to acquire, to renew, to release.

use std::fmt;
use std::time::Duration;

use crate::{AttemptId, Claim, FENCE_MAX, Invalid, Key, Label, ReentryId, Ticket};

/// The largest capacity. A reader takes 1 of it, a writer all of it.
pub const CAPACITY_MAX: u32 = u32::MAX;

/// The shortest lease. Anything shorter would be truncated to none at all by some store.
pub const TTL_MIN: Duration = Duration::from_millis(1);

/// How long a lease lasts unless its owner chooses.
pub const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// The longest lease: a year.
pub const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// One attempt to hold `weight` out of `capacity` at a key.
///
/// Every lock kind is a pair of numbers: a mutex asks for 1 of 1, a reader for 1 of
/// [`CAPACITY_MAX`], a writer for all of it, a semaphore for n of N. An ask for the whole capacity
/// is *exclusive*: it shares with no other claim, whatever capacity others believe in.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who asks for what. The same claim asked again gets the same answer.
    pub claim: Claim,
    /// The call that asks, if the claim id is one that its caller chose. The claim is then given up
    /// by the clean-up of its last attempt ([`Target::Attempt`]).
    pub attempt: Option<AttemptId>,
    /// The label shown to those who wait.
    pub owner: Label,
    /// What for, if the owner says so.
    pub reason: Option<Label>,
    /// How much of the capacity this claim takes, at least 1.
    pub weight: u32,
    /// How much there is, as far as this claim is concerned.
    pub capacity: u32,
    /// Who goes first. All live claims of a key agree on it.
    pub order: Order,
    /// Shared claims of one group hold together; different groups exclude each other.
    pub group: Option<Label>,
    /// The thread of work that may enter again while it is inside.
    pub reentry: Option<ReentryId>,
    /// How long the grant lasts without a renewal.
    pub ttl: Duration,
    /// Mint at least this fence instead of one from the store's clock.
    pub fence_floor: Option<u64>,
    /// Answer [`Forgot`](crate::Answer::Forgot) unless this claim holds its key: a mark that a
    /// store loses together with all that it has promised.
    pub witness: Option<Claim>,
    /// Take a place in the queue if it cannot be granted now. Without it the ask is one-shot and
    /// leaves nothing behind when it is refused.
    pub wait: Option<Wait>,
}

impl Ask {
    /// A one-shot ask for 1 of 1 in FIFO order: a mutex.
    pub fn new(claim: Claim, owner: Label, ttl: Duration) -> Self {
        Self {
            claim,
            attempt: None,
            owner,
            reason: None,
            weight: 1,
            capacity: 1,
            order: Order::Fifo,
            group: None,
            reentry: None,
            ttl,
            fence_floor: None,
            witness: None,
            wait: None,
        }
    }

    /// True if the ask shares with no other claim.
    pub fn is_exclusive(&self) -> bool {
        self.weight == self.capacity
    }

    /// Checks everything a backend may rely on.
    ///
    /// # Errors
    ///
    /// [`Invalid`], naming the first value that is out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.weight == 0 {
            return Err(Invalid::new("weight", self.weight, "must be at least 1"));
        }
        if self.weight > self.capacity {
            return Err(Invalid::new("weight", self.weight, "must not exceed the capacity"));
        }
        check_span("ttl", self.ttl)?;
        if let Some(wait) = &self.wait {
            check_span("place", wait.place)?;
        }
        if let Some(floor) = self.fence_floor
            && floor > FENCE_MAX / 2
        {
            return Err(Invalid::new("fence floor", floor, "must be below 2^52"));
        }
        if self.reentry.is_some() && self.capacity != 1 {
            return Err(Invalid::new("capacity", self.capacity, "must be 1 to enter again"));
        }
        Ok(())
    }
}

/// Checks that a lease can be this long.
fn check_span(what: &'static str, span: Duration) -> Result<(), Invalid> {
    if span < TTL_MIN {
        return Err(Invalid::new(what, format_args!("{span:?}"), "must be at least 1 ms"));
    }
    if span > TTL_MAX {
        return Err(Invalid::new(what, format_args!("{span:?}"), "must be at most 365 days"));
    }
    Ok(())
}

/// How a claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long the place lives without a heartbeat of its client at this key. A grant made to the
    /// waiter inherits what is left of it, so a waiter that died costs this long and not a ttl.
    pub place: Duration,
    /// Refuse to queue behind this many.
    pub waiters_max: u32,
}

/// Who goes first when several want the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served, readers and writers alike.
    #[default]
    Fifo,
    /// No reader enters while a writer holds or waits. A steady stream of writers starves readers.
    PreferWriters,
    /// Readers enter whenever no writer holds. A steady stream of readers starves writers.
    PreferReaders,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::PreferWriters => "prefer-writers",
            Self::PreferReaders => "prefer-readers",
        })
    }
}

/// Keeps a claim alive, whether it holds or waits.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The claim to keep.
    pub claim: Claim,
    /// How long it shall live from now on: waiters ask for their place, holders for their ttl. A
    /// renewal never shortens and never creates.
    pub span: Duration,
    /// The ticket under which the client believes it is waiting; none if it believes it holds.
    pub ticket: Option<Ticket>,
    /// Lower the weight to this: a writer turns into a reader without letting go.
    pub weight: Option<u32>,
    /// Raise the fence to at least this, while still holding. Sharers may end up with equal fences.
    pub fence_floor: Option<u64>,
}

impl Renewal {
    /// Keeps a hold for `ttl`.
    pub fn hold(claim: Claim, ttl: Duration) -> Self {
        Self { claim, span: ttl, ticket: None, weight: None, fence_floor: None }
    }

    /// Keeps a place in the queue for `place`.
    pub fn place(claim: Claim, place: Duration, ticket: Ticket) -> Self {
        Self { claim, span: place, ticket: Some(ticket), weight: None, fence_floor: None }
    }

    /// Checks everything a backend may rely on.
    ///
    /// # Errors
    ///
    /// [`Invalid`], naming the first value that is out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        check_span("renewal", self.span)?;
        match (self.weight, self.fence_floor) {
            (Some(0), _) => Err(Invalid::new("weight", 0, "must be at least 1")),
            (_, Some(floor)) if floor > FENCE_MAX / 2 => {
                Err(Invalid::new("fence floor", floor, "must be below 2^52"))
            }
            _ => Ok(()),
        }
    }
}

/// What a release takes away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// One's own claim, held or waiting.
    Claim(Claim),
    /// One attempt for a claim: the claim itself, held or waiting, only if no other attempt of it
    /// is left. What [`ReleaseOptions::bury`] remembers as dead is the attempt alone.
    Attempt {
        /// The claim that was asked for.
        claim: Claim,
        /// The call that is over.
        attempt: AttemptId,
    },
    /// An operator's break: the holder of `key`, if its fence is still `fence`.
    Fence {
        /// The key to free.
        key: Key,
        /// The fence the holder was seen with, so that a newer holder is never hit.
        fence: u64,
    },
}

impl Target {
    /// The key concerned.
    pub fn key(&self) -> &Key {
        match self {
            Self::Claim(claim) | Self::Attempt { claim, .. } => &claim.key,
            Self::Fence { key, .. } => key,
        }
    }
}

/// How a release leaves the key behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseOptions {
    /// Keep the key taken, unrenewable, for this long more. Zero frees it at once.
    pub keep: Duration,
    /// Remember for this long that the claim id is dead, so that an acquire of it which is still
    /// on its way cannot take the lock. Zero if every acquire of it has been answered.
    pub bury: Duration,
}
