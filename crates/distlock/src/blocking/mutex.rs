//! One thread at a time.

use std::time::Duration;

use super::guard::{Guard, Plain};
use super::runtime::BlockingRuntime;
use crate::options::Options;
use crate::{Error, Key};

/// One holder at a time, first come, first served. See [`crate::Mutex`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let mutex = distlock::blocking::Locks::memory()?.mutex("deploy/prod")?;
/// let guard = mutex.lock()?;
/// assert!(mutex.try_lock().is_err());
/// guard.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) mutex: crate::Mutex,
    pub(super) runtime: BlockingRuntime,
}

impl Mutex {
    /// The key.
    pub fn key(&self) -> &Key {
        self.mutex.key()
    }

    /// Changes the options of this mutex.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { mutex: self.mutex.configure(change)?, ..self })
    }

    /// Waits for the lock, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and [`Error::AsyncContext`].
    pub fn lock(&self) -> Result<Guard, Error> {
        self.guard(self.mutex.lock())
    }

    /// Takes the lock if it is free and no client waits for it.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::try_lock`], and [`Error::AsyncContext`].
    pub fn try_lock(&self) -> Result<Guard, Error> {
        self.guard(self.mutex.try_lock())
    }

    /// Waits for the lock at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::try_lock_for`], and [`Error::AsyncContext`].
    pub fn try_lock_for(&self, max_wait: Duration) -> Result<Guard, Error> {
        self.guard(self.mutex.try_lock_for(max_wait))
    }

    /// Waits for the lock, runs `work` under it and releases it. `work` is not stopped at loss: it
    /// has to look at [`is_held`](crate::Guard::is_held).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`] if the lock was lost meanwhile.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// let mutex = distlock::blocking::Locks::memory()?.mutex("deploy")?;
    /// let fence = mutex.with(|guard| guard.fence())?;
    /// assert!(mutex.try_lock()?.fence() > fence);
    /// # Ok(()) }
    /// ```
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.lock()?.scope(work)
    }

    fn guard(
        &self,
        call: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Guard, Error> {
        let guard = self.runtime.wait(call)?;
        Ok(Guard::new(Plain(guard), &self.runtime))
    }
}
