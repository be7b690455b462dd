//! Getting the lock: waiting for it visibly, and leaving at once when told to.

use std::time::Duration;

use distlock::{Error, Key, Locks, ReentryId};
use rustix::process::Signal;

use crate::exit::{self, Failure};
use crate::held::Holds;
use crate::held_lock::HeldLock;
use crate::journal;
use crate::lock_spec::{LockKind, LockSpec};
use crate::progress::{ProgressStyle, WaitProgress};
use crate::report::RunOutcome;
use crate::signals::Signals;

/// How long leaving a queue may take before the place is left to run out by itself.
pub(crate) const LEAVE_MAX: Duration = Duration::from_millis(1500);

/// How long to try where the store was just lost, or could not be reached in the first place: a
/// command that has failed must not keep its user waiting for a store that is down.
pub(crate) const LEAVE_AT_ONCE_MAX: Duration = Duration::from_millis(250);

/// Why the lock was not got.
#[derive(Debug)]
pub(crate) enum NotAcquired {
    /// Another client has it.
    Busy(Failure),
    /// A signal came first.
    Interrupted(Signal),
    /// It could not be asked for, or the store did not answer.
    Failed(Failure),
}

impl NotAcquired {
    /// The word for it in a report.
    pub(crate) fn outcome(&self) -> RunOutcome {
        match self {
            Self::Busy(_) => RunOutcome::NotAcquired,
            Self::Interrupted(_) => RunOutcome::Interrupted,
            Self::Failed(_) => RunOutcome::Failed,
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Busy(failure) | Self::Failed(failure) => failure.code(),
            Self::Interrupted(signal) => exit::of_signal(signal.as_raw()),
        }
    }

    /// How long leaving the store may take after this.
    pub(crate) fn leave_max(&self) -> Duration {
        match self {
            Self::Failed(failure) if failure.is_unsent() => LEAVE_AT_ONCE_MAX,
            _ => LEAVE_MAX,
        }
    }

    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::Busy(failure) | Self::Failed(failure) => failure,
            Self::Interrupted(signal) => Failure::silent(exit::of_signal(signal.as_raw())),
        }
    }
}

impl From<Failure> for NotAcquired {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Gets the lock, or says why not. A signal ends the wait at once; `leave` then leaves the queue.
pub(crate) async fn take(
    spec: &LockSpec,
    locks: &Locks,
    signals: &mut Signals,
    style: ProgressStyle,
) -> Result<HeldLock, NotAcquired> {
    let mut waiting = WaitProgress::new(spec, locks, style);
    let taken = tokio::select! {
        biased;
        signal = signals.stop() => Err(signal),
        taken = acquire_all(locks, spec) => Ok(taken),
        () = waiting.tell() => unreachable!("telling ends with the wait"),
    };
    drop(waiting);
    match taken {
        Ok(Ok(held)) => Ok(held),
        Ok(Err(error)) => Err(refused(spec, error)),
        Err(signal) => Err(NotAcquired::Interrupted(signal)),
    }
}

/// Sees to it that nothing stays behind in the store, and that everything is noted down, as long
/// as the store answers.
pub(crate) async fn leave(locks: &Locks, max: Duration) {
    // What is left ends with its lease.
    let _ = tokio::time::timeout(max, async {
        journal::settle(locks).await;
        locks.close().await
    })
    .await;
}

fn refused(spec: &LockSpec, error: Error) -> NotAcquired {
    let failure = Failure::from(error);
    if failure.code() != exit::NOT_ACQUIRED {
        return NotAcquired::Failed(failure);
    }
    NotAcquired::Busy(match failure.message() {
        Some(message) if !spec.talking.quiet => Failure::new(spec.conflict_code, message),
        _ => Failure::silent(spec.conflict_code),
    })
}

/// Acquires all keys of the plan, waiting as long as its options say.
async fn acquire_all(locks: &Locks, spec: &LockSpec) -> Result<HeldLock, Error> {
    if spec.more_keys.is_empty() {
        return acquire(locks, &spec.key, spec.kind).await;
    }
    Ok(HeldLock::Many(locks.all(spec.keys().cloned())?.lock().await?))
}

/// Acquires one key, waiting as long as the options say.
pub(crate) async fn acquire(locks: &Locks, key: &Key, kind: LockKind) -> Result<HeldLock, Error> {
    match kind {
        LockKind::Exclusive if locks.capabilities().reentry => {
            let id = match Holds::around().secret(key.as_str()) {
                Some(id) => id,
                None => ReentryId::random().map_err(Error::Backend)?,
            };
            let guard = locks.reentrant(key)?.owner_as(id).lock().await?;
            Ok(HeldLock::Reentrant(guard, id))
        }
        LockKind::Exclusive => Ok(HeldLock::Plain(locks.mutex(key)?.lock().await?)),
        LockKind::Shared => Ok(HeldLock::Plain(locks.rwlock(key)?.read().await?)),
        LockKind::OneOf(permits) => {
            Ok(HeldLock::Plain(locks.semaphore(key, permits)?.acquire().await?))
        }
    }
}
