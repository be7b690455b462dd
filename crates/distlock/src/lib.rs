#![doc = include_str!("../README.md")]

pub mod backends;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod clock;
mod draining;
mod election;
mod engine;
mod error;
mod extending;
mod guard;
pub mod guide;
mod history;
mod hold_records;
mod keeper;
mod lease;
mod lock;
mod locks;
mod many_guard;
mod many_keys;
mod mutex;
mod observe;
mod open;
mod options;
mod reentrant;
mod rwlock;
mod semaphore;
mod validity;

pub use distlock_core::{
    AcquisitionId, Backend, Capabilities, ClaimId, Clock, Cursor, EntryId, Fault, FaultKind,
    Health, Holder, Invalid, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Key, Label,
    ManualClock, Mode, Moment, NoQuorum, NodeHealth, NodeState, Note, NoteEvent, Order, Page,
    Printable, ReentryId, Retention, Snapshot, TTL_DEFAULT, Waiter,
};

pub use election::{Election, Leader, Leadership};
pub use engine::backoff::{Backoff, BackoffRule};
pub use error::{Error, LossReason, NodeFaults};
pub use guard::{Guard, HoldWatcher};
pub use history::{FeedItem, StartAt};
pub use hold_records::{HoldRecord, HoldRecordState};
pub use keeper::hold_state::HoldEnd;
pub use lease::{Lease, Leases, QueueOutcome};
pub use locks::Locks;
pub use many_guard::{MultiGuard, ReleasedKeys};
pub use many_keys::MultiLock;
pub use mutex::Mutex;
#[cfg(feature = "metrics")]
pub use observe::HeldCount;
pub use observe::{Event, Stats};
pub use options::{Durability, Options, WaitMode};
pub use reentrant::{ReentrantGuard, ReentrantMutex, ReentrantOwner};
pub use rwlock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
