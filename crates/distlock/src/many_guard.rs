//! Several keys that are held together.

use std::time::Duration;

use futures_util::future::{join_all, select_all};
use tokio_util::sync::CancellationToken;

use crate::{Error, Guard, HoldEnd, Key, LossReason};

/// Of each key how its hold ended, or why that is not known.
pub type ReleasedKeys = Vec<(Key, Result<HoldEnd, Error>)>;

/// Several keys that are held: each is renewed until all are released or dropped.
///
/// They are one lock as far as loss goes: when one of them is lost, the whole is
/// ([`lost`](Self::lost), [`is_held`](Self::is_held), [`cancellation`](Self::cancellation)). The
/// others stay held until the guard goes, so that work that is winding down keeps what it has.
///
/// Every key has a [`fence`](Self::fence) of its own. Dropping releases all in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{HoldEnd, Locks};
///
/// let guard = Locks::memory().all(["a", "b"])?.lock().await?;
/// assert!(guard.is_held());
/// for (key, released) in guard.release().await {
///     assert_eq!(released?, HoldEnd::Released, "{key}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "all keys are released as soon as their guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
    ended: CancellationToken,
}

impl MultiGuard {
    pub(crate) fn new(guards: Vec<Guard>) -> Self {
        let ended = CancellationToken::new();
        for guard in &guards {
            guard.cancel_at_end(&ended);
        }
        Self { guards, ended }
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.guards.iter().map(Guard::key)
    }

    /// The fencing token of each key, sorted by key.
    pub fn fences(&self) -> impl ExactSizeIterator<Item = (&Key, u64)> {
        self.guards.iter().map(|guard| (guard.key(), guard.fence()))
    }

    /// The fencing token of one key; none if it is not among those that are held.
    pub fn fence(&self, key: &str) -> Option<u64> {
        self.guards.iter().find(|guard| guard.key().as_str() == key).map(Guard::fence)
    }

    /// The guard of each key, sorted by key.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// One guard for each key, to be kept or released on its own.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// True if all keys are held right now. Reads the clock; sends nothing.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long all keys are sure to be held if no renewal succeeds from now on.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// How long the whole acquisition took, as far as its last key tells.
    pub fn waited(&self) -> Duration {
        self.guards.iter().map(Guard::waited).max().unwrap_or_default()
    }

    /// The first key that was lost, and why; none while all are held.
    pub fn loss(&self) -> Option<(Key, LossReason)> {
        first_loss(&self.guards)
    }

    /// Waits until one of the keys is lost, and says which and why.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Locks, LossReason};
    ///
    /// let locks = Locks::memory();
    /// let guard = locks.all(["a", "b"])?.lock().await?;
    /// locks.break_hold("b", guard.fence("b").expect("b is held")).await?;
    /// let (key, reason) = guard.lost().await;
    /// assert_eq!((key.as_str(), reason), ("b", LossReason::Broken));
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> (Key, LossReason) {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        let losses = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        let (reason, at, _) = select_all(losses).await;
        (self.guards[at].key().clone(), reason)
    }

    /// A token that is cancelled when the hold of one of the keys ends.
    pub fn cancellation(&self) -> CancellationToken {
        self.ended.child_token()
    }

    /// Runs `work` as long as all keys are held; when one is lost `work` is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], about that key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The keys stay with the guard.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let guard = distlock::Locks::memory().all(["a", "b"])?.lock().await?;
    /// assert_eq!(guard.run(async { 42 }).await?, 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            (key, reason) = self.lost() => Err(Error::Lost { key, reason }),
            done = work => Ok(done),
        }
    }

    /// Releases all keys at once, and tells of each what [`Guard::release`] tells. One that fails
    /// stops no other.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the releases to the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let guard = locks.all(["a", "b"])?.lock().await?;
    /// let released = guard.release().await;
    /// assert!(released.iter().all(|(_, end)| end.is_ok()));
    /// assert!(locks.inspect("a").await?.is_free());
    /// # Ok(()) }
    /// ```
    #[must_use = "each key says whether it was held until now"]
    pub async fn release(self) -> ReleasedKeys {
        release_all(self.guards).await
    }

    /// Runs `work` under all keys, then releases them; also if `work` panics or is cancelled.
    pub(crate) async fn scope<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let done = self.run(work(&self)).await?;
        for (key, released) in self.release().await {
            match released {
                Ok(HoldEnd::Lost(reason)) => return Err(Error::Lost { key, reason }),
                Ok(HoldEnd::Released) | Err(Error::ReleaseUncertain { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Releases all at once. What a store can take in one call goes out in one.
pub(crate) async fn release_all(guards: Vec<Guard>) -> ReleasedKeys {
    join_all(guards.into_iter().map(async |guard| {
        let key = guard.key().clone();
        (key, guard.release().await)
    }))
    .await
}

/// The first that was lost, and why.
pub(crate) fn first_loss(guards: &[Guard]) -> Option<(Key, LossReason)> {
    guards.iter().find_map(|guard| Some((guard.key().clone(), guard.loss()?)))
}
