//! One at a time.

use std::time::Duration;

use crate::engine::WaitLimit;
use crate::lock::{Lock, Shape};
use crate::options::Options;
use crate::{Error, Guard, Key};

/// One holder at a time, first come, first served.
///
/// A mutex is a key and options: cheap to make and to clone, and no call to the store. Every
/// acquisition is a claim of its own, so two tasks that share one `Mutex` exclude each other as two
/// machines do, and a task that locks twice waits for itself: see
/// [`ReentrantMutex`](crate::ReentrantMutex) for nested calls.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let locks = distlock::Locks::memory();
/// let mutex = locks.mutex("deploy/prod")?;
///
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await.is_err());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    lock: Lock,
}

impl Mutex {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.lock.key
    }

    /// Changes the options of this mutex.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.configure(change)? })
    }

    /// Waits for the lock, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] after `max_wait`; [`Error::Backend`] if the store stays out of reach for
    /// longer than `patience`, or refuses; [`Error::TooManyWaiters`], [`Error::Conflict`],
    /// [`Error::Closed`], [`Error::NoRuntime`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, and the lock if it was granted meanwhile is released.
    /// The place in the queue is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let guard = distlock::Locks::memory().mutex("deploy")?.lock().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn lock(&self) -> Result<Guard, Error> {
        self.lock.guard(Shape::MUTEX, self.lock.limit()).await
    }

    /// Takes the lock if it is free and no client waits for it: one attempt, no queueing.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if it is not; [`Error::Backend`] if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock if it was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::Error;
    /// let mutex = distlock::Locks::memory().mutex("deploy")?;
    /// let guard = mutex.try_lock().await?;
    /// assert!(matches!(mutex.try_lock().await, Err(Error::Held { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn try_lock(&self) -> Result<Guard, Error> {
        self.lock.guard(Shape::MUTEX, WaitLimit::Once).await
    }

    /// Waits for the lock at most this long. Zero makes it [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it is still held then, with the last fault if the store was out of
    /// reach; otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// use distlock::Error;
    /// let mutex = distlock::Locks::memory().mutex("deploy")?;
    /// let guard = mutex.lock().await?;
    /// let late = mutex.try_lock_for(Duration::from_millis(5)).await;
    /// assert!(matches!(late, Err(Error::Timeout { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn try_lock_for(&self, max_wait: Duration) -> Result<Guard, Error> {
        self.lock.guard(Shape::MUTEX, WaitLimit::from_max_wait(Some(max_wait))).await
    }

    /// Waits for the lock, runs `work` under it and releases it.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`] if the lock was lost meanwhile; then `work` was
    /// dropped where it stood, or had gone on without protection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the lock in the background; so does a panic.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let mutex = distlock::Locks::memory().mutex("deploy")?;
    /// let fence = mutex.with(async |guard| guard.fence()).await?;
    /// assert!(mutex.try_lock().await?.fence() > fence);
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        self.lock().await?.scope(work).await
    }
}
