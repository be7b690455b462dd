//! The seam: what a store has to offer to carry locks.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;

use crate::{
    Answer, Ask, ClaimId, Cursor, Extensions, Fault, Key, Page, ReleaseOptions, ReleaseOutcome,
    Renewal, Snapshot, Standing, Target, Ticket,
};

/// A call to a backend that is under way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Items that a backend delivers one by one.
pub type Streaming<'a, T> = Pin<Box<dyn Stream<Item = T> + Send + 'a>>;

/// A store that carries locks. One value is one client of the store.
///
/// # Contract
///
/// - **Atomic.** Each acquire, each renewed claim and each release is one indivisible step at the
///   store, decided by the [law](crate::law) and by the store's own time.
/// - **Idempotent by claim.** The same claim asked again gets the same grant with the same fence,
///   and its lease is refreshed. Releasing twice answers [`ReleaseOutcome::Gone`]. Renewing never
///   creates and never shortens.
/// - **One attempt.** A driver never sleeps, waits for a lock or retries. It may own I/O tasks that
///   end with it. Every call ends by a deadline of its own with an answer or a [`Fault`].
/// - **Cancel safe.** Any returned future or stream may be dropped at any time. The store may or
///   may not have executed the call; the caller then releases the claim with
///   [`ReleaseOptions::bury`] set, and a claim buried so can never be granted, however late its
///   acquire arrives.
/// - **Three outcomes.** Busy and gone are answers. A fault means that the outcome is unknown, and
///   says whether trying again can help.
/// - **Declared.** What [`capabilities`](Self::capabilities) does not declare is refused with
///   [`Fault::unsupported`], never approximated.
/// - **Discreet.** Claim ids appear in no snapshot, log or error.
///
/// Callers hand in only values that passed [`Ask::check`] and [`Renewal::check`].
///
/// There are no default methods: a wrapper that forgets one does not compile.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this backend can do. Constant over its life, but for pushes that turn out to be denied.
    fn capabilities(&self) -> Capabilities;

    /// Tries once to get what is asked, taking a place in the queue if the ask says so.
    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer>;

    /// Keeps claims alive, held or waiting, and says of each by its index where it stands. Answers
    /// come in any order and as soon as they are known, so one hung shard delays only its own. The
    /// stream ends after the last answer.
    fn renew<'a>(&'a self, batch: &'a [Renewal])
    -> Streaming<'a, (usize, Result<Standing, Fault>)>;

    /// Gives up a claim, held or waiting, and admits the next waiter in the same step.
    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome>;

    /// Looks at one key without changing anything.
    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot>;

    /// Looks at the keys that begin with `prefix` and are held or waited for, page by page.
    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page>;

    /// Looks at the store itself.
    fn probe(&self) -> Pending<'_, Health>;

    /// Messages for claims of this client. A push is a shortcut: it may come late, twice or never.
    /// Every stream gets every push from the moment it was made on.
    fn pushes(&self) -> Streaming<'static, Push>;

    /// The optional traits that this store implements, and where it is.
    fn extensions(&self) -> Extensions<'_>;
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Grants carry fences that grow.
    pub fencing: bool,
    /// Claims can wait in a queue at the store.
    pub queue: bool,
    /// Grants to waiters are pushed.
    pub push: bool,
    /// Holders are told by a push that an operator broke their hold. Others find out at their next
    /// renewal.
    pub push_breaks: bool,
    /// Claims other than 1 of 1, readers and writers: n of N.
    pub counting: bool,
    /// Readers and writers.
    pub sharing: bool,
    /// Groups of readers.
    pub groups: bool,
    /// The orders offered to readers and writers.
    pub orders: &'static [crate::Order],
    /// A claim can enter again where its reentry id already holds.
    pub reentry: bool,
    /// A writer can turn into a reader.
    pub downgrade: bool,
    /// Keys can be listed.
    pub listing: bool,
    /// Holds can be confirmed by replicas.
    pub durability: bool,
    /// All keys share one fence counter, so that any grant tells what was given out before,
    /// whatever for.
    pub one_counter: bool,
    /// An ask can be made to depend on another claim: [`Ask::witness`].
    pub witness: bool,
}

impl Capabilities {
    /// The order of readers and writers unless one is chosen: writers first where the store offers
    /// that, or else the first order that it does offer.
    pub fn default_order(&self) -> crate::Order {
        let preferred = crate::Order::PreferWriters;
        let offered = self.orders.iter().find(|order| **order == preferred);
        offered.or(self.orders.first()).copied().unwrap_or(preferred)
    }

    /// Everything there is.
    pub const ALL: Self = Self {
        fencing: true,
        queue: true,
        push: true,
        push_breaks: true,
        counting: true,
        sharing: true,
        groups: true,
        orders: &[crate::Order::Fifo, crate::Order::PreferWriters, crate::Order::PreferReaders],
        reentry: true,
        downgrade: true,
        listing: true,
        durability: true,
        one_counter: true,
        witness: true,
    };

    /// The first thing that this ask needs and the backend lacks.
    pub fn missing_for(&self, ask: &Ask) -> Option<&'static str> {
        let shares = ask.capacity == crate::CAPACITY_MAX;
        if shares && !self.sharing {
            return Some("readers and writers");
        }
        if shares && !self.orders.contains(&ask.order) {
            return Some(match ask.order {
                crate::Order::Fifo => "the order fifo for readers and writers",
                crate::Order::PreferWriters => "the order prefer-writers",
                crate::Order::PreferReaders => "the order prefer-readers",
            });
        }
        if !shares && ask.capacity > 1 && !self.counting {
            return Some("semaphores");
        }
        if ask.group.is_some() && !self.groups {
            return Some("groups of readers");
        }
        if ask.reentry.is_some() && !self.reentry {
            return Some("reentry");
        }
        if ask.wait.is_some() && !self.queue {
            return Some("a queue");
        }
        if ask.witness.is_some() && !self.witness {
            return Some("witnesses");
        }
        None
    }
}

/// A message from the store to one of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Push {
    /// A waiting claim was granted.
    Granted {
        /// The claim.
        id: ClaimId,
        /// The place it had. The grant is to be trusted only if this is the last one acknowledged.
        ticket: Ticket,
        /// The fencing token.
        fence: u64,
    },
    /// Messages may have been lost: a client that waits should ask where it stands.
    Interrupted,
    /// Something may have happened to a claim: ask the store where it stands. Nothing else follows
    /// from it, so it may come from anywhere.
    Check {
        /// The claim.
        id: ClaimId,
    },
    /// An operator broke a held claim. Goes to the client that asked for it; a client that keeps
    /// the claim alive since finds out at the next renewal.
    Broken {
        /// The claim.
        id: ClaimId,
    },
}

/// The state of a store, for the curious and for a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Which store this is: the same for every address that leads to it.
    pub identity: String,
    /// Changes whenever the store starts with its memory lost.
    pub incarnation: String,
    /// True if grants survive a restart of the store.
    pub persistent: bool,
    /// The wall clock of the store, in microseconds since 1970, if it tells.
    pub clock_us: Option<u64>,
    /// What else an operator may want to know, as names and values: version, role, replicas.
    pub facts: Vec<(&'static str, String)>,
    /// True if the store only copies another one.
    pub replica: bool,
    /// What an operator should mend, each a sentence that says how.
    pub warnings: Vec<String>,
    /// The nodes of a quorum, each with how it is; empty for a store that is one.
    pub nodes: Vec<NodeHealth>,
}

/// How one node of a quorum is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Its name, without secrets.
    pub name: String,
    /// Whether it answers and votes.
    pub state: NodeState,
}

/// Whether a node of a quorum answers and votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It answers.
    Up,
    /// It does not.
    Down,
    /// It answers, but it has lost its memory, and its votes do not count for so long.
    Quarantined(Duration),
}

impl NodeHealth {
    /// A node with how it is.
    pub fn new(name: impl Into<String>, state: NodeState) -> Self {
        Self { name: name.into(), state }
    }
}

impl Health {
    /// A healthy store that forgets everything when it stops.
    pub fn new(identity: impl Into<String>, incarnation: impl Into<String>) -> Self {
        Self {
            identity: identity.into(),
            incarnation: incarnation.into(),
            persistent: false,
            clock_us: None,
            facts: Vec::new(),
            replica: false,
            warnings: Vec::new(),
            nodes: Vec::new(),
        }
    }
}
