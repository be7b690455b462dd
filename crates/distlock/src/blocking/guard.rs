//! A lock that is held by a thread.

use std::ops::Deref;
use std::time::Duration;

use super::runtime::BlockingRuntime;
use crate::{Error, HoldEnd, Lease, LossReason};

/// What the guards of all kinds have in common. Sealed: the library's guards are all there are.
pub trait AnyGuard: Deref<Target = crate::Guard> + sealed::Release {}

impl<G: Deref<Target = crate::Guard> + sealed::Release> AnyGuard for G {}

mod sealed {
    use crate::{Error, HoldEnd, Lease};

    pub trait Release: Sized {
        fn release(self) -> impl Future<Output = Result<HoldEnd, Error>>;
        fn into_lease(self) -> Lease;
    }

    macro_rules! release {
        ($($guard:ty),*) => {
            $(impl Release for $guard {
                async fn release(self) -> Result<HoldEnd, Error> {
                    <$guard>::release(self).await
                }

                fn into_lease(self) -> Lease {
                    <$guard>::into_lease(self)
                }
            })*
        };
    }

    release!(crate::WriteGuard, crate::ReentrantGuard);

    impl Release for super::Plain {
        async fn release(self) -> Result<HoldEnd, Error> {
            self.0.release().await
        }

        fn into_lease(self) -> Lease {
            self.0.into_lease()
        }
    }
}

/// A [`crate::Guard`], in the shape of the guards around it.
#[derive(Debug)]
pub struct Plain(pub(super) crate::Guard);

impl Deref for Plain {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.0
    }
}

/// A guard of a writer.
pub type WriteGuard = Guard<crate::WriteGuard>;

/// A guard of one entry into a [`ReentrantMutex`](super::ReentrantMutex).
pub type ReentrantGuard = Guard<crate::ReentrantGuard>;

/// A lock that is held: it is renewed until it is released, dropped or lost.
///
/// Everything that a [`crate::Guard`] tells without waiting, this one tells, too: it dereferences
/// to one. Dropping it waits until the store has the release, for at most the option
/// [`release_timeout`](crate::Options::release_timeout), except inside an async task.
///
/// ```
/// use distlock::HoldEnd;
/// use distlock::blocking::Locks;
///
/// # fn main() -> Result<(), distlock::Error> {
/// let guard = Locks::memory()?.mutex("invoices")?.lock()?;
/// assert!(guard.is_held());
/// println!("writing with fence {}", guard.fence());
/// assert_eq!(guard.release()?, HoldEnd::Released);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard<G: AnyGuard = Plain> {
    /// Taken out when it is released.
    guard: Option<G>,
    runtime: BlockingRuntime,
}

impl<G: AnyGuard> Guard<G> {
    pub(super) fn new(guard: G, runtime: &BlockingRuntime) -> Self {
        Self { guard: Some(guard), runtime: runtime.clone() }
    }

    /// Waits until the lock is lost, at most this long, and says why; none if it is held still.
    ///
    /// # Errors
    ///
    /// [`Error::AsyncContext`] inside an async task.
    ///
    /// ```
    /// use std::time::Duration;
    /// use distlock::{LossReason, blocking::Locks};
    ///
    /// # fn main() -> Result<(), distlock::Error> {
    /// let locks = Locks::memory()?.configure(|o| o.max_hold(Duration::from_millis(20)))?;
    /// let guard = locks.mutex("shift")?.lock()?;
    /// assert_eq!(guard.lost_within(Duration::from_secs(5))?, Some(LossReason::MaxHold));
    /// # Ok(()) }
    /// ```
    pub fn lost_within(&self, at_most: Duration) -> Result<Option<LossReason>, Error> {
        let guard: &crate::Guard = self;
        self.runtime.wait(async { Ok(tokio::time::timeout(at_most, guard.lost()).await.ok()) })
    }

    /// Releases the lock. See [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseUncertain`] if the store could not be reached, [`Error::AsyncContext`]
    /// inside an async task. In both cases the release goes on in the background.
    pub fn release(mut self) -> Result<HoldEnd, Error> {
        let guard = self.guard.take();
        self.runtime.wait(sealed::Release::release(guard.expect(THERE)))
    }

    /// Hands the hold over as plain data. See [`crate::Guard::into_lease`].
    pub fn into_lease(mut self) -> Lease {
        sealed::Release::into_lease(self.guard.take().expect(THERE))
    }

    /// The async guard and what it ran on.
    pub(super) fn into_parts(mut self) -> (G, BlockingRuntime) {
        (self.guard.take().expect(THERE), self.runtime.clone())
    }

    /// Runs `work` under the lock, then releases it; also if `work` panics.
    pub(super) fn scope<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let done = work(&self);
        let key = self.key().clone();
        match self.release() {
            Ok(HoldEnd::Lost(reason)) => Err(Error::Lost { key, reason }),
            // The work was done while the lock was held; the release is repeated in the background.
            Ok(HoldEnd::Released) | Err(Error::ReleaseUncertain { .. }) => Ok(done),
            Err(error) => Err(error),
        }
    }
}

/// Why there is a guard inside.
const THERE: &str = "a guard is taken out only by what consumes it";

impl<G: AnyGuard> Deref for Guard<G> {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        self.guard.as_deref().expect(THERE)
    }
}

impl<G: AnyGuard> Drop for Guard<G> {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            // Where a thread must not block, the guard is dropped as an async one: the keeper
            // releases it.
            let _ = self.runtime.wait(sealed::Release::release(guard));
        }
    }
}
