//! At most n threads at once.

use std::time::Duration;

use super::guard::{Guard, Plain};
use super::runtime::BlockingRuntime;
use crate::options::Options;
use crate::{Error, Key};

/// A number of permits for a key. See [`crate::Semaphore`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let uploads = distlock::blocking::Locks::memory()?.semaphore("uploads", 2)?;
/// let (one, two) = (uploads.acquire()?, uploads.acquire()?);
/// assert!(uploads.try_acquire().is_err());
/// # let _ = (one, two);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(super) semaphore: crate::Semaphore,
    pub(super) runtime: BlockingRuntime,
}

impl Semaphore {
    /// The key.
    pub fn key(&self) -> &Key {
        self.semaphore.key()
    }

    /// How many permits there are, as far as this semaphore is concerned.
    pub fn permits(&self) -> u32 {
        self.semaphore.permits()
    }

    /// How many permits are free at this moment.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::available`], and [`Error::AsyncContext`].
    pub fn available(&self) -> Result<u32, Error> {
        self.runtime.wait(self.semaphore.available())
    }

    /// Changes the options of this semaphore.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { semaphore: self.semaphore.configure(change)?, ..self })
    }

    /// Waits for a permit, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::acquire`], and [`Error::AsyncContext`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1)
    }

    /// Waits for several permits at once.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::acquire_many`], and [`Error::AsyncContext`].
    pub fn acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.guard(self.semaphore.acquire_many(n))
    }

    /// Takes a permit if one is free and no client waits.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::try_acquire`], and [`Error::AsyncContext`].
    pub fn try_acquire(&self) -> Result<Guard, Error> {
        self.try_acquire_many(1)
    }

    /// Takes several permits if they are free and no client waits.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::try_acquire_many`], and [`Error::AsyncContext`].
    pub fn try_acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.guard(self.semaphore.try_acquire_many(n))
    }

    /// Waits for a permit at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::try_acquire_for`], and [`Error::AsyncContext`].
    pub fn try_acquire_for(&self, max_wait: Duration) -> Result<Guard, Error> {
        self.try_acquire_many_for(1, max_wait)
    }

    /// Waits for several permits at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::try_acquire_many_for`], and [`Error::AsyncContext`].
    pub fn try_acquire_many_for(&self, n: u32, max_wait: Duration) -> Result<Guard, Error> {
        self.guard(self.semaphore.try_acquire_many_for(n, max_wait))
    }

    /// Waits for a permit, runs `work` under it and gives it back. See
    /// [`Mutex::with`](super::Mutex::with).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`].
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.acquire()?.scope(work)
    }

    fn guard(
        &self,
        call: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Guard, Error> {
        let guard = self.runtime.wait(call)?;
        Ok(Guard::new(Plain(guard), &self.runtime))
    }
}
