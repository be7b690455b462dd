//! The vocabulary of distlock and its law: who may hold what.
//!
//! This crate decides and does nothing else. It reads no clock, does no I/O and names no driver:
//! time, the store's record and the request come in, an answer and a list of pushes go out. A
//! backend either *runs* the [`law`] inside a transaction (memory, SQLite) or *restates* it in its
//! own language and is compared with it by random testing (Redis).
//!
//! Driver authors implement [`Backend`] and prove the driver with the conformance kit of
//! `distlock-testkit`. Everybody else wants the crate `distlock`.

mod answer;
mod ask;
mod backend;
mod claim;
mod extensions;
mod fault;
mod invalid;
mod journal;
mod key;
mod label;
pub mod law;
mod many;
mod note;
mod printable;
pub mod rows;
mod snapshot;
#[doc(hidden)]
pub mod sync;
mod time;
#[cfg(feature = "serde")]
mod written;

pub use answer::{Answer, Busy, Confirmed, Holder, QueuePosition, ReleaseOutcome, Standing};
pub use ask::{
    Ask, CAPACITY_MAX, Order, ReleaseOptions, Renewal, TTL_DEFAULT, TTL_MAX, TTL_MIN, Target, Wait,
};
pub use backend::{Backend, Capabilities, Health, NodeHealth, NodeState, Pending, Push, Streaming};
pub use claim::{AttemptId, Claim, ClaimId, ClientId, FENCE_MAX, ReentryId, Ticket};
pub use extensions::{Background, Extensions, Reconnecting, Replicated};
pub use fault::{Fault, FaultKind, NoQuorum};
pub use invalid::Invalid;
pub use journal::{EntryId, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Retention};
pub use key::Key;
pub use label::Label;
pub use many::{AcquireMany, ManyAnswer};
pub use note::{AcquisitionId, Mode, Note, NoteEvent};
pub use printable::Printable;
pub use snapshot::{Cursor, Page, SNAPSHOT_MAX, Snapshot, Waiter};
pub use time::{Clock, ManualClock, Moment};
