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
mod reentrant;
mod rwlock;
mod semaphore;
mod sync;
mod validity;

pub use distlock_core::{
    Backend, Capabilities, ClaimId, Clock, Cursor, Fault, FaultKind, Health, Holder, Invalid, Key,
    Label, ManualClock, Moment, Order, Page, ReentryId, Snapshot, Waiter,
};

pub use engine::pacing::{Pace, Pacing};
pub use error::{Error, NodeFaults, Reason};
pub use guard::{Guard, Watch};
pub use keeper::latch::End;
pub use lease::{Lease, Leases};
pub use locks::Locks;
pub use mutex::Mutex;
pub use observe::{Event, Stats};
pub use options::{Durability, Options, Waiting};
pub use reentrant::{ReentrantGuard, ReentrantMutex, ReentrantOwner};
pub use rwlock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
