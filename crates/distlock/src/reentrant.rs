//! A mutex that its owner may enter again.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock_core::ReentryId;

use crate::engine::WaitLimit;
use crate::lock::{Lock, Shape};
use crate::options::Options;
use crate::{Error, Guard, HoldEnd, Key, Lease};

/// A mutex for nested calls: the task that holds it may enter again.
///
/// Who is inside is said explicitly, by a [`ReentrantOwner`] that is passed down the call chain:
/// there are no threads to go by among tasks and machines. Every entry has a lease of its own, so
/// an inner one never shortens an outer one, and the mutex is free when the last of them goes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let mutex = distlock::Locks::memory().reentrant("order/17")?;
/// let me = mutex.owner()?;
///
/// let outer = me.lock().await?;
/// let inner = me.lock().await?;
/// assert_eq!((me.holds(), inner.fence()), (2, outer.fence()));
/// assert!(mutex.owner()?.try_lock().await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    lock: Lock,
}

impl ReentrantMutex {
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

    /// A new owner, equal to no other.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the operating system has no random bytes to give.
    pub fn owner(&self) -> Result<ReentrantOwner, Error> {
        ReentryId::random().map(|id| self.owner_as(id)).map_err(Error::from_fault)
    }

    /// The owner that goes by a secret of the caller's, so that a call chain may span processes.
    pub fn owner_as(&self, id: ReentryId) -> ReentrantOwner {
        ReentrantOwner { lock: self.lock.clone(), id, holds: Arc::default() }
    }
}

/// One thread of work that may enter its mutex again. Clones are the same owner.
#[derive(Clone, Debug)]
pub struct ReentrantOwner {
    lock: Lock,
    id: ReentryId,
    holds: Arc<AtomicUsize>,
}

impl ReentrantOwner {
    /// The secret that makes another process this owner, with [`ReentrantMutex::owner_as`].
    pub fn id(&self) -> ReentryId {
        self.id
    }

    /// How many guards this owner and its clones have now.
    pub fn holds(&self) -> usize {
        self.holds.load(Ordering::Acquire)
    }

    /// Enters, waiting up to `max_wait` if another owner is inside.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up this entry only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let me = distlock::Locks::memory().reentrant("order/17")?.owner()?;
    /// let outer = me.lock().await?;
    /// let inner = me.lock().await?;
    /// # let _ = (outer, inner);
    /// # Ok(()) }
    /// ```
    pub async fn lock(&self) -> Result<ReentrantGuard, Error> {
        self.enter(self.lock.limit()).await
    }

    /// Enters if no other owner is inside: one attempt, no queueing.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if one is.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let me = distlock::Locks::memory().reentrant("order/17")?.owner()?;
    /// assert!(me.try_lock().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn try_lock(&self) -> Result<ReentrantGuard, Error> {
        self.enter(WaitLimit::Once).await
    }

    /// Enters, waiting at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if another owner stays inside.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let mutex = distlock::Locks::memory().reentrant("order/17")?;
    /// let other = mutex.owner()?.lock().await?;
    /// let me = mutex.owner()?;
    /// assert!(me.try_lock_for(Duration::from_millis(5)).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn try_lock_for(&self, max_wait: Duration) -> Result<ReentrantGuard, Error> {
        self.enter(WaitLimit::from_max_wait(Some(max_wait))).await
    }

    /// Enters, runs `work` and leaves.
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
    /// let me = distlock::Locks::memory().reentrant("order/17")?.owner()?;
    /// let nested = me.with(async |_| me.with(async |_| me.holds()).await).await??;
    /// assert_eq!(nested, 2);
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let ReentrantGuard { guard, count } = self.lock().await?;
        let done = guard.scope(work).await;
        drop(count);
        done
    }

    async fn enter(&self, limit: WaitLimit) -> Result<ReentrantGuard, Error> {
        let guard = self.lock.guard(Shape::reentrant(self.id), limit).await?;
        self.holds.fetch_add(1, Ordering::AcqRel);
        Ok(ReentrantGuard { guard, count: Count(Arc::clone(&self.holds)) })
    }
}

/// A [`Guard`] of one entry into a [`ReentrantMutex`].
#[derive(Debug)]
#[must_use = "the entry is left as soon as its guard is dropped"]
pub struct ReentrantGuard {
    guard: Guard,
    count: Count,
}

impl ReentrantGuard {
    /// How many guards the owner and its clones have now.
    pub fn holds(&self) -> usize {
        self.count.0.load(Ordering::Acquire)
    }

    /// Hands the entry over as plain data. See [`Guard::into_lease`].
    pub fn into_lease(self) -> Lease {
        self.guard.into_lease()
    }

    /// Leaves. The mutex is free when the last entry was left. See [`Guard::release`].
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
    /// let me = distlock::Locks::memory().reentrant("order/17")?.owner()?;
    /// let (outer, inner) = (me.lock().await?, me.lock().await?);
    /// inner.release().await?;
    /// assert!(outer.is_held());
    /// assert_eq!(me.holds(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<HoldEnd, Error> {
        let Self { guard, count } = self;
        let end = guard.release().await;
        drop(count);
        end
    }
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Counts one guard as long as it lives.
#[derive(Debug)]
struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
