//! A mutex that its owner may enter again, for threads.

use std::time::Duration;

use super::guard::{Guard, ReentrantGuard};
use super::runtime::BlockingRuntime;
use crate::options::Options;
use crate::{Error, Key, ReentryId};

/// A mutex for nested calls. See [`crate::ReentrantMutex`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let me = distlock::blocking::Locks::memory()?.reentrant("order/17")?.owner()?;
/// let outer = me.lock()?;
/// let inner = me.lock()?;
/// assert_eq!((me.holds(), inner.fence()), (2, outer.fence()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    pub(super) mutex: crate::ReentrantMutex,
    pub(super) runtime: BlockingRuntime,
}

impl ReentrantMutex {
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

    /// A new owner.
    ///
    /// # Errors
    ///
    /// As [`crate::ReentrantMutex::owner`].
    pub fn owner(&self) -> Result<ReentrantOwner, Error> {
        let (owner, runtime) = (self.mutex.owner()?, self.runtime.clone());
        Ok(ReentrantOwner { owner, runtime })
    }

    /// The owner that has a secret of the caller's.
    pub fn owner_as(&self, id: ReentryId) -> ReentrantOwner {
        ReentrantOwner { owner: self.mutex.owner_as(id), runtime: self.runtime.clone() }
    }
}

/// One thread of work that may enter its mutex again. See [`crate::ReentrantOwner`].
#[derive(Clone, Debug)]
pub struct ReentrantOwner {
    owner: crate::ReentrantOwner,
    runtime: BlockingRuntime,
}

impl ReentrantOwner {
    /// The secret that makes another process this owner.
    pub fn id(&self) -> ReentryId {
        self.owner.id()
    }

    /// How many guards this owner and its clones have now.
    pub fn holds(&self) -> usize {
        self.owner.holds()
    }

    /// Enters, waiting up to `max_wait` if another owner is inside.
    ///
    /// # Errors
    ///
    /// As [`crate::ReentrantOwner::lock`], and [`Error::AsyncContext`].
    pub fn lock(&self) -> Result<ReentrantGuard, Error> {
        self.guard(self.owner.lock())
    }

    /// Enters if no other owner is inside.
    ///
    /// # Errors
    ///
    /// As [`crate::ReentrantOwner::try_lock`], and [`Error::AsyncContext`].
    pub fn try_lock(&self) -> Result<ReentrantGuard, Error> {
        self.guard(self.owner.try_lock())
    }

    /// Enters, waiting at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::ReentrantOwner::try_lock_for`], and [`Error::AsyncContext`].
    pub fn try_lock_for(&self, max_wait: Duration) -> Result<ReentrantGuard, Error> {
        self.guard(self.owner.try_lock_for(max_wait))
    }

    /// Enters, runs `work` and leaves. See [`Mutex::with`](super::Mutex::with).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`].
    pub fn with<T>(&self, work: impl FnOnce(&ReentrantGuard) -> T) -> Result<T, Error> {
        self.lock()?.scope(work)
    }

    fn guard(
        &self,
        call: impl Future<Output = Result<crate::ReentrantGuard, Error>>,
    ) -> Result<ReentrantGuard, Error> {
        let guard = self.runtime.wait(call)?;
        Ok(Guard::new(guard, &self.runtime))
    }
}
