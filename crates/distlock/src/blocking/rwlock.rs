//! Many threads that read or one that writes.

use std::time::Duration;

use super::guard::{Guard, Plain, WriteGuard};
use super::runtime::BlockingRuntime;
use crate::options::Options;
use crate::{Error, Key, Order};

/// Many readers or one writer. See [`crate::RwLock`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let config = distlock::blocking::Locks::memory()?.rwlock("config")?;
/// let (one, two) = (config.read()?, config.read()?);
/// assert!(config.try_write().is_err());
/// # let _ = (one, two);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(super) rwlock: crate::RwLock,
    pub(super) runtime: BlockingRuntime,
}

impl RwLock {
    /// The key.
    pub fn key(&self) -> &Key {
        self.rwlock.key()
    }

    /// Changes the options of this lock.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { rwlock: self.rwlock.configure(change)?, ..self })
    }

    /// Who goes first. See [`crate::RwLock::order`].
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { rwlock: self.rwlock.order(order), ..self }
    }

    /// Readers of one group share, those of different groups exclude each other. See
    /// [`crate::RwLock::group`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is empty, too long or not printable.
    pub fn group(self, name: impl AsRef<str>) -> Result<Self, Error> {
        Ok(Self { rwlock: self.rwlock.group(name)?, ..self })
    }

    /// Waits to read.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::read`], and [`Error::AsyncContext`].
    pub fn read(&self) -> Result<Guard, Error> {
        self.reader(self.rwlock.read())
    }

    /// Reads if that is possible at once.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::try_read`], and [`Error::AsyncContext`].
    pub fn try_read(&self) -> Result<Guard, Error> {
        self.reader(self.rwlock.try_read())
    }

    /// Waits to read at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::try_read_for`], and [`Error::AsyncContext`].
    pub fn try_read_for(&self, max_wait: Duration) -> Result<Guard, Error> {
        self.reader(self.rwlock.try_read_for(max_wait))
    }

    /// Waits to write.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::write`], and [`Error::AsyncContext`].
    pub fn write(&self) -> Result<WriteGuard, Error> {
        self.writer(self.rwlock.write())
    }

    /// Writes if that is possible at once.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::try_write`], and [`Error::AsyncContext`].
    pub fn try_write(&self) -> Result<WriteGuard, Error> {
        self.writer(self.rwlock.try_write())
    }

    /// Waits to write at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::try_write_for`], and [`Error::AsyncContext`].
    pub fn try_write_for(&self, max_wait: Duration) -> Result<WriteGuard, Error> {
        self.writer(self.rwlock.try_write_for(max_wait))
    }

    /// Waits to read, runs `work` and releases. See [`Mutex::with`](super::Mutex::with).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and [`Error::Lost`].
    pub fn with_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.read()?.scope(work)
    }

    /// Waits to write, runs `work` and releases. See [`Mutex::with`](super::Mutex::with).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), and [`Error::Lost`].
    pub fn with_write<T>(&self, work: impl FnOnce(&WriteGuard) -> T) -> Result<T, Error> {
        self.write()?.scope(work)
    }

    fn reader(
        &self,
        call: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Guard, Error> {
        let guard = self.runtime.wait(call)?;
        Ok(Guard::new(Plain(guard), &self.runtime))
    }

    fn writer(
        &self,
        call: impl Future<Output = Result<crate::WriteGuard, Error>>,
    ) -> Result<WriteGuard, Error> {
        let guard = self.runtime.wait(call)?;
        Ok(Guard::new(guard, &self.runtime))
    }
}

impl WriteGuard {
    /// Turns the writer into a reader without releasing the lock. See
    /// [`crate::WriteGuard::downgrade`].
    ///
    /// # Errors
    ///
    /// As [`crate::WriteGuard::downgrade`], and [`Error::AsyncContext`]; then the lock is released.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// let config = distlock::blocking::Locks::memory()?.rwlock("config")?;
    /// let reader = config.write()?.downgrade()?;
    /// assert!(config.try_read().is_ok());
    /// # let _ = reader;
    /// # Ok(()) }
    /// ```
    pub fn downgrade(self) -> Result<Guard, Error> {
        let (writer, background) = self.into_parts();
        let reader = background.wait(writer.downgrade())?;
        Ok(Guard::new(Plain(reader), &background))
    }
}
