//! Many readers or one writer.

use std::ops::Deref;
use std::time::Duration;

use distlock_core::{Label, Order};

use crate::engine::WaitLimit;
use crate::lock::{Lock, Shape};
use crate::options::Options;
use crate::{Error, Guard, HoldEnd, Key, Lease};

/// Many readers at once, or one writer.
///
/// Every reader has a lease of its own: one that dies stops counting when its lease ends, and the
/// last one alive frees the key at once. By default writers go first
/// ([`Order::PreferWriters`]): once a writer waits, later readers wait behind it.
///
/// There is no upgrade from reader to writer: two readers that both tried would wait for each other
/// for ever. For the same reason a task must not call [`write`](Self::write) while it holds a read
/// guard of the same key. A writer may turn into a reader with [`WriteGuard::downgrade`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let config = distlock::Locks::memory().rwlock("config")?;
///
/// let (one, two) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await.is_err());
/// one.release().await?;
/// two.release().await?;
/// assert!(config.try_write().await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    lock: Lock,
    order: Order,
    group: Option<Label>,
}

impl RwLock {
    pub(crate) fn new(lock: Lock) -> Self {
        let order = lock.keeper.backend.capabilities().default_order();
        Self { lock, order, group: None }
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.lock.key
    }

    /// Changes the options of this lock.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.configure(change)?, ..self.clone() })
    }

    /// Who goes first. All readers of a key must agree; while others hold or wait under another
    /// order, reading fails with [`Error::Conflict`]. Writers and mutexes work beside any order.
    ///
    /// Default: [`Order::PreferWriters`], or what the store offers instead, for the library, the
    /// command and the HTTP service alike.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Readers of one group hold together; different groups exclude each other. By default there
    /// is one group.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is empty or longer than 256 bytes.
    pub fn group(self, name: impl AsRef<str>) -> Result<Self, Error> {
        Ok(Self { group: Some(Label::new("group", name)?), ..self })
    }

    /// Waits to read, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock), and [`Error::Conflict`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let guard = distlock::Locks::memory().rwlock("config")?.read().await?;
    /// # let _ = guard;
    /// # Ok(()) }
    /// ```
    pub async fn read(&self) -> Result<Guard, Error> {
        self.lock.guard(self.reader(), self.lock.limit()).await
    }

    /// Reads if that is possible now: one attempt, no queueing.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if a writer holds, or waits and goes first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let writer = config.write().await?;
    /// assert!(config.try_read().await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn try_read(&self) -> Result<Guard, Error> {
        self.lock.guard(self.reader(), WaitLimit::Once).await
    }

    /// Waits to read at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it was not possible.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let guard = config.try_read_for(Duration::from_millis(5)).await?;
    /// # let _ = guard;
    /// # Ok(()) }
    /// ```
    pub async fn try_read_for(&self, max_wait: Duration) -> Result<Guard, Error> {
        self.lock.guard(self.reader(), WaitLimit::from_max_wait(Some(max_wait))).await
    }

    /// Waits to write, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, so that readers behind it enter at once, and gives
    /// back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let guard = distlock::Locks::memory().rwlock("config")?.write().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.lock.guard(self.writer(), self.lock.limit()).await.map(WriteGuard)
    }

    /// Writes if that is possible now: one attempt, no queueing, and no reader is kept waiting by
    /// an attempt that failed.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if anybody holds, or waits and goes first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let reader = config.read().await?;
    /// assert!(config.try_write().await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn try_write(&self) -> Result<WriteGuard, Error> {
        self.lock.guard(self.writer(), WaitLimit::Once).await.map(WriteGuard)
    }

    /// Waits to write at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it was not possible.
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let guard = config.try_write_for(Duration::from_millis(5)).await?;
    /// # let _ = guard;
    /// # Ok(()) }
    /// ```
    pub async fn try_write_for(&self, max_wait: Duration) -> Result<WriteGuard, Error> {
        let limit = WaitLimit::from_max_wait(Some(max_wait));
        self.lock.guard(self.writer(), limit).await.map(WriteGuard)
    }

    /// Waits to read, runs `work` and releases.
    ///
    /// # Errors
    ///
    /// As [`Mutex::with`](crate::Mutex::with).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::with`](crate::Mutex::with).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let seen = config.with_read(async |_| "v7").await?;
    /// assert_eq!(seen, "v7");
    /// # Ok(()) }
    /// ```
    pub async fn with_read<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        self.read().await?.scope(work).await
    }

    /// Waits to write, runs `work` and releases.
    ///
    /// # Errors
    ///
    /// As [`Mutex::with`](crate::Mutex::with).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::with`](crate::Mutex::with).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let fence = config.with_write(async |guard| guard.fence()).await?;
    /// assert!(fence > 0);
    /// # Ok(()) }
    /// ```
    pub async fn with_write<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        self.write().await?.0.scope(work).await
    }

    fn reader(&self) -> Shape {
        Shape::read(self.order, self.group.clone())
    }

    fn writer(&self) -> Shape {
        Shape::write(self.order, self.group.clone())
    }
}

/// A [`Guard`] of a writer, which can turn into a reader.
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Turns the writer into a reader without letting go: readers that wait are let in, as far as
    /// the order allows, and no other writer gets in between. The fence stays.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost; [`Error::Unsupported`] if the backend cannot do it,
    /// and then the lock is released. If the store cannot be reached right now, the guard is
    /// returned all the same, and the next renewal lets the readers in.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the guard, which releases the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let config = distlock::Locks::memory().rwlock("config")?;
    /// let writer = config.write().await?;
    /// let reader = writer.downgrade().await?;
    /// assert!(config.try_read().await.is_ok());
    /// assert!(config.try_write().await.is_err());
    /// # let _ = reader;
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Guard, Error> {
        self.0.lower(1).await
    }

    /// Hands the hold over as plain data. See [`Guard::into_lease`].
    pub fn into_lease(self) -> Lease {
        self.0.into_lease()
    }

    /// Releases the lock. See [`Guard::release`].
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseUncertain`] if the store could not be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::HoldEnd;
    /// let writer = distlock::Locks::memory().rwlock("config")?.write().await?;
    /// assert_eq!(writer.release().await?, HoldEnd::Released);
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<HoldEnd, Error> {
        self.0.release().await
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
