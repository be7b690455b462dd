//! At most n at once.

use std::time::Duration;

use distlock_core::{CAPACITY_MAX, Invalid};

use crate::engine::WaitLimit;
use crate::lock::{Lock, Shape};
use crate::options::Options;
use crate::{Error, Guard, Key};

/// A number of permits for a key: at most that many holders at once, first come, first served.
///
/// Every acquisition counts by the number of permits it was made with, so that a fleet may change
/// the number while it is deployed: no holder is evicted, and no claim overtakes another. A client
/// that takes all the permits it knows of holds alone, whatever number others believe in.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let uploads = distlock::Locks::memory().semaphore("uploads", 2)?;
/// let (one, two) = (uploads.acquire().await?, uploads.acquire().await?);
/// assert!(uploads.try_acquire().await.is_err());
/// # let _ = (one, two);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    lock: Lock,
    permits: u32,
}

impl Semaphore {
    pub(crate) fn new(lock: Lock, permits: u32) -> Result<Self, Error> {
        if permits == 0 {
            return Err(Invalid::new("permits", permits, "must be at least 1").into());
        }
        if permits == CAPACITY_MAX {
            return Err(Invalid::new("permits", permits, "must be below 2^32 - 1").into());
        }
        Ok(Self { lock, permits })
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.lock.key
    }

    /// How many permits there are, as far as this semaphore is concerned.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// How many permits are free at this moment, as far as this semaphore is concerned. It may be
    /// different as soon as it is known; waiters that were there before take theirs first. Of more
    /// than [`SNAPSHOT_MAX`](distlock_core::SNAPSHOT_MAX) holders those that are not shown count
    /// as one permit each.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let uploads = distlock::Locks::memory().semaphore("uploads", 3)?;
    /// let one = uploads.acquire().await?;
    /// assert_eq!(uploads.available().await?, 2);
    /// # let _ = one;
    /// # Ok(()) }
    /// ```
    pub async fn available(&self) -> Result<u32, Error> {
        let seen = self.lock.keeper.inspect(self.key()).await?;
        if seen.holders.iter().any(|holder| holder.exclusive) {
            return Ok(0);
        }
        let shown = seen.holders.iter().map(|holder| u64::from(holder.weight)).sum::<u64>();
        let taken = shown + seen.holders_total.saturating_sub(seen.holders.len() as u64);
        Ok(self.permits.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)))
    }

    /// Changes the options of this semaphore.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.configure(change)?, ..self.clone() })
    }

    /// Waits for a permit, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let permit = distlock::Locks::memory().semaphore("uploads", 3)?.acquire().await?;
    /// # let _ = permit;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1).await
    }

    /// Waits for several permits at once. Smaller requests do not overtake it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Invalid`] if there are not that many.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let uploads = distlock::Locks::memory().semaphore("uploads", 3)?;
    /// let two = uploads.acquire_many(2).await?;
    /// assert!(uploads.try_acquire_many(2).await.is_err());
    /// # let _ = two;
    /// # Ok(()) }
    /// ```
    pub async fn acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.take(n, self.lock.limit()).await
    }

    /// Takes a permit if one is free and no client waits: one attempt, no queueing.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let permit = distlock::Locks::memory().semaphore("uploads", 3)?.try_acquire().await?;
    /// # let _ = permit;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Guard, Error> {
        self.take(1, WaitLimit::Once).await
    }

    /// Takes several permits if they are free and no client waits.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if they are not, [`Error::Invalid`] if there are not that many.
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let uploads = distlock::Locks::memory().semaphore("uploads", 3)?;
    /// let all = uploads.try_acquire_many(3).await?;
    /// assert!(uploads.try_acquire_many(4).await.is_err());
    /// # let _ = all;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.take(n, WaitLimit::Once).await
    }

    /// Waits for a permit at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if none came free.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let uploads = distlock::Locks::memory().semaphore("uploads", 3)?;
    /// let permit = uploads.try_acquire_for(Duration::from_millis(5)).await?;
    /// # let _ = permit;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_for(&self, max_wait: Duration) -> Result<Guard, Error> {
        self.try_acquire_many_for(1, max_wait).await
    }

    /// Waits for several permits at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if they did not come free, [`Error::Invalid`] if there are not that many.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let uploads = distlock::Locks::memory().semaphore("uploads", 3)?;
    /// let two = uploads.try_acquire_many_for(2, Duration::from_millis(5)).await?;
    /// # let _ = two;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_many_for(&self, n: u32, max_wait: Duration) -> Result<Guard, Error> {
        self.take(n, WaitLimit::from_max_wait(Some(max_wait))).await
    }

    /// Waits for a permit, runs `work` under it and gives it back.
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
    /// let uploads = distlock::Locks::memory().semaphore("uploads", 3)?;
    /// uploads.with(async |_| println!("one of three")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        self.acquire().await?.scope(work).await
    }

    async fn take(&self, n: u32, limit: WaitLimit) -> Result<Guard, Error> {
        if n == 0 || n > self.permits {
            return Err(Invalid::new("permits", n, "must be between 1 and all there are").into());
        }
        self.lock.guard(Shape::permits(n, self.permits), limit).await
    }
}
