#![doc = include_str!("../README.md")]

pub mod backends;
pub mod clock;
mod engine;
mod error;
mod guard;
pub mod guide;
mod keeper;
mod lease;
mod lock;
mod locks;
mod mutex;
mod observe;
mod open;
mod options;
mod past;
mod reentrant;
mod rwlock;
mod semaphore;
mod validity;
mod visits;

pub use distlock_core::{
    Backend, Capabilities, ClaimId, Clock, Cursor, Entry, EntryId, Fault, FaultKind, Health,
    Holder, Invalid, JOURNAL_PAGE_MAX, Journal, JournalPage, Key, Label, ManualClock, Mode, Moment,
    NoQuorum, NodeHealth, NodeState, Note, Order, Page, Printable, ReentryId, Retention, Snapshot,
    VisitId, Waiter, What,
};

pub use engine::pacing::{Pace, Pacing};
pub use error::{Error, NodeFaults, Reason};
pub use guard::{Guard, Watch};
pub use keeper::latch::End;
pub use lease::{Lease, Leases, Turn};
pub use locks::Locks;
pub use mutex::Mutex;
#[cfg(feature = "metrics")]
pub use observe::HeldCount;
pub use observe::{Event, Stats};
pub use options::{Durability, Options, Waiting};
pub use past::{News, Since};
pub use reentrant::{ReentrantGuard, ReentrantMutex, ReentrantOwner};
pub use rwlock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
pub use visits::{Visit, VisitState};
