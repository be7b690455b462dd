//! The same locks for programs without a runtime of their own.
//!
//! Every type here is a shell over its async twin of the same name, and every call runs that one to
//! its end on the calling thread. Network and timers are served by one background runtime, which
//! all blocking locks of the process share; it starts with the first of them and ends with the
//! last. Renewals run on the library's own thread, as for the async locks, so a thread that blocks
//! for long in its work loses no lease.
//!
//! - **Dropping a guard waits** until the store has the release, for at most the option
//!   [`release_timeout`](crate::Options::release_timeout); then the release goes on in the
//!   background. A guard that is dropped at the end of `main` is therefore released. Inside an
//!   async task the drop does not wait.
//! - **Inside an async task** every call fails with [`Error::AsyncContext`](crate::Error) and sends
//!   nothing. `tokio::task::spawn_blocking` and `block_in_place` are the places for blocking calls.
//! - **Cancellation.** A call on a thread cannot be dropped: bound it with `try_lock_for`, the
//!   option [`max_wait`](crate::Options::max_wait), or stop it from another thread with
//!   [`cancel_on`](crate::Options::cancel_on).
//!
//! ```
//! use distlock::blocking::Locks;
//!
//! # fn main() -> Result<(), distlock::Error> {
//! let locks = Locks::memory()?;
//! let guard = locks.mutex("deploy/prod")?.lock()?;
//! println!("deploying with fence {}", guard.fence());
//! drop(guard); // released when this returns
//! assert!(locks.mutex("deploy/prod")?.try_lock().is_ok());
//! # Ok(()) }
//! ```

mod guard;
mod leases;
mod locks;
mod many_keys;
mod mutex;
mod reentrant;
mod runtime;
mod rwlock;
mod semaphore;

pub use guard::{AnyGuard, Guard, ReentrantGuard, WriteGuard};
pub use leases::Leases;
pub use locks::Locks;
pub use many_keys::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use reentrant::{ReentrantMutex, ReentrantOwner};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
