//! Several keys at once, for threads.

use std::ops::Deref;
use std::time::Duration;

use super::runtime::BlockingRuntime;
use crate::options::Options;
use crate::{Error, Key, ReleasedKeys};

/// Several keys that are locked together. See [`crate::MultiLock`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let locks = distlock::blocking::Locks::memory()?;
/// let both = locks.all(["account/7", "account/3"])?.lock()?;
/// assert!(locks.mutex("account/3")?.try_lock().is_err());
/// drop(both); // released when this returns
/// assert!(locks.mutex("account/3")?.try_lock().is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    pub(super) all: crate::MultiLock,
    pub(super) runtime: BlockingRuntime,
}

impl MultiLock {
    /// The keys, sorted.
    pub fn keys(&self) -> &[Key] {
        self.all.keys()
    }

    /// Changes the options of all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { all: self.all.configure(change)?, ..self })
    }

    /// Waits for all keys, up to `max_wait` for all of them if that is set.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiLock::lock`], and [`Error::AsyncContext`].
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        self.guard(self.all.lock())
    }

    /// Takes all keys if they are free and no client waits for one of them.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiLock::try_lock`], and [`Error::AsyncContext`].
    pub fn try_lock(&self) -> Result<MultiGuard, Error> {
        self.guard(self.all.try_lock())
    }

    /// Waits for all keys, at most this long for all of them.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiLock::try_lock_for`], and [`Error::AsyncContext`].
    pub fn try_lock_for(&self, max_wait: Duration) -> Result<MultiGuard, Error> {
        self.guard(self.all.try_lock_for(max_wait))
    }

    fn guard(
        &self,
        call: impl Future<Output = Result<crate::MultiGuard, Error>>,
    ) -> Result<MultiGuard, Error> {
        let guard = self.runtime.wait(call)?;
        Ok(MultiGuard { guard: Some(guard), runtime: self.runtime.clone() })
    }
}

/// Several keys that are held. It dereferences to a [`crate::MultiGuard`]; dropping it waits for
/// the releases, as dropping a [`Guard`](super::Guard) does.
#[derive(Debug)]
#[must_use = "all keys are released as soon as their guard is dropped"]
pub struct MultiGuard {
    /// Taken out when it is released.
    guard: Option<crate::MultiGuard>,
    runtime: BlockingRuntime,
}

impl MultiGuard {
    /// Releases all keys, and tells of each how its hold ended. See [`crate::MultiGuard::release`].
    ///
    /// # Errors
    ///
    /// [`Error::AsyncContext`] inside an async task; then the releases go on in the background.
    pub fn release(mut self) -> Result<ReleasedKeys, Error> {
        let guard = self.guard.take();
        self.runtime.wait(async {
            Ok(match guard {
                Some(guard) => guard.release().await,
                None => Vec::new(),
            })
        })
    }
}

impl Deref for MultiGuard {
    type Target = crate::MultiGuard;

    fn deref(&self) -> &crate::MultiGuard {
        self.guard.as_ref().expect("a guard is taken out only by what consumes it")
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            // Where a thread must not block, dropping the future drops the guard inside.
            let _ = self.runtime.wait(async { Ok(guard.release().await) });
        }
    }
}
