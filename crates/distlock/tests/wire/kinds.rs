//! All the ways to hold a key with us.

use std::time::Duration;

use distlock::{Error, Guard, HoldEnd, Locks, ReentrantGuard, WriteGuard};

/// What to hold a key as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Reader,
    Writer,
    /// One permit of three.
    Permit,
    /// Three permits of three.
    AllPermits,
    /// Entered twice.
    Reentrant,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Mutex, Self::Reader, Self::Writer, Self::Permit, Self::AllPermits, Self::Reentrant];

    /// One attempt.
    pub(crate) async fn try_take(self, locks: &Locks, key: &str) -> Result<Hold, Error> {
        Ok(match self {
            Self::Mutex => Hold::Plain(locks.mutex(key)?.try_lock().await?),
            Self::Reader => Hold::Plain(locks.rwlock(key)?.try_read().await?),
            Self::Writer => Hold::Writer(locks.rwlock(key)?.try_write().await?),
            Self::Permit => Hold::Plain(locks.semaphore(key, 3)?.try_acquire().await?),
            Self::AllPermits => Hold::Plain(locks.semaphore(key, 3)?.try_acquire_many(3).await?),
            Self::Reentrant => {
                let me = locks.reentrant(key)?.owner()?;
                Hold::Twice(me.try_lock().await?, me.try_lock().await?)
            }
        })
    }

    /// Waits at most this long.
    pub(crate) async fn wait(
        self,
        locks: &Locks,
        key: &str,
        max_wait: Duration,
    ) -> Result<Hold, Error> {
        let semaphore = locks.semaphore(key, 3)?;
        Ok(match self {
            Self::Mutex => Hold::Plain(locks.mutex(key)?.try_lock_for(max_wait).await?),
            Self::Reader => Hold::Plain(locks.rwlock(key)?.try_read_for(max_wait).await?),
            Self::Writer => Hold::Writer(locks.rwlock(key)?.try_write_for(max_wait).await?),
            Self::Permit => Hold::Plain(semaphore.try_acquire_for(max_wait).await?),
            Self::AllPermits => Hold::Plain(semaphore.try_acquire_many_for(3, max_wait).await?),
            Self::Reentrant => {
                let me = locks.reentrant(key)?.owner()?;
                Hold::Twice(me.try_lock_for(max_wait).await?, me.try_lock().await?)
            }
        })
    }
}

/// A key that is held.
#[derive(Debug)]
pub(crate) enum Hold {
    Plain(Guard),
    Writer(WriteGuard),
    Twice(ReentrantGuard, ReentrantGuard),
}

impl Hold {
    pub(crate) fn guard(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Writer(guard) => guard,
            Self::Twice(outer, _) => outer,
        }
    }

    /// No client renews it and no client releases it, as if the process had died.
    pub(crate) fn crash(self) {
        match self {
            Self::Plain(guard) => drop(guard.into_lease()),
            Self::Writer(guard) => drop(guard.into_lease()),
            Self::Twice(outer, inner) => drop((outer.into_lease(), inner.into_lease())),
        }
    }

    /// Releases it; a second entry first.
    pub(crate) async fn release(self) -> HoldEnd {
        match self {
            Self::Plain(guard) => guard.release().await.unwrap(),
            Self::Writer(guard) => guard.release().await.unwrap(),
            Self::Twice(outer, inner) => {
                inner.release().await.unwrap();
                outer.release().await.unwrap()
            }
        }
    }
}
