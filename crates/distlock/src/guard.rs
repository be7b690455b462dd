//! A lock that is held: it is renewed until it is released, dropped or lost.
//!
//! Long because every method has an example; there are 200 lines of code.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Fault, FaultKind, Key, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::engine::{Grant, release, renew};
use crate::keeper::hold::Hold;
use crate::keeper::hold_state::HoldEnd;
use crate::keeper::{Keeper, LATE_ACQUIRE_MAX, RELEASE_MAX};
use crate::options::Settings;
use crate::{Error, Lease, LossReason};

/// A lock that is held.
///
/// A guard is held, then either lost or released, once and for good. While it is held, a thread in
/// the background renews it. It is `Send` and `'static`, and may be dropped anywhere, also outside
/// a runtime.
///
/// **A lease can be lost** at any time: the process may be paused, the network cut, the store
/// restarted. A guard knows this before anybody else can enter, as long as the program gets to run:
/// [`is_held`](Self::is_held) compares the clock itself, and [`lost`](Self::lost) and
/// [`cancellation`](Self::cancellation) fire by a timer of our own. What no lock can prevent is a
/// pause between the check and the act; against that, raise the [`fence`](Self::fence) at the
/// resource before you read there, and let it refuse smaller ones. See
/// [`guarantees`](crate::guide::guarantees).
///
/// **Dropping releases in the background**: the lock is free about one round trip later. Use
/// [`release`](Self::release) to know when, and whether it was still held. A guard that is dropped
/// right before `main` ends leaves the key for its ttl, because the process does not wait for the
/// background: call [`Locks::close`](crate::Locks::close) last.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let locks = distlock::Locks::memory();
/// let guard = locks.mutex("invoices")?.lock().await?;
/// drop(guard);
/// locks.close().await?; // waits until the store has the release
/// # Ok(()) }
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{HoldEnd, Locks};
///
/// let guard = Locks::memory().mutex("invoices")?.lock().await?;
/// assert!(guard.is_held());
/// println!("writing with fence {}", guard.fence());
/// assert_eq!(guard.release().await?, HoldEnd::Released);
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
    keeper: Arc<Keeper>,
    /// A release was begun, and no client has been told of it yet.
    releasing: bool,
    /// Nothing is left to release.
    settled: bool,
}

impl Guard {
    /// Keeps a grant from now on.
    pub(crate) fn keep(
        keeper: &Arc<Keeper>,
        grant: &Grant,
        settings: &Arc<Settings>,
    ) -> Result<Self, Error> {
        match keeper.hold(grant, settings) {
            Ok(hold) => {
                let keeper = Arc::clone(keeper);
                Ok(Self { hold, keeper, releasing: false, settled: false })
            }
            // Another client keeps it: it is not ours to give up.
            Err(error @ Error::Invalid(_)) => Err(error),
            Err(error) => {
                let now = keeper.clock.now();
                keeper.leave(grant.claim.clone(), settings.lease(), now, grant.doubtful);
                Err(error)
            }
        }
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        &self.hold.claim.key
    }

    /// The fencing token: larger than that of every earlier holder of this key.
    ///
    /// A resource that keeps the largest fence it was given is safe even from a holder that does
    /// not know it has lost the lock, in this order: raise the fence at the resource, which refuses
    /// a smaller one; then read; then write, on condition that the fence is still this one. A check
    /// at the write alone does not protect what was read before it: see
    /// [`guarantees`](crate::guide::guarantees#what-no-lease-lock-can-promise).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let mutex = distlock::Locks::memory().mutex("ledger")?;
    /// let first = mutex.lock().await?;
    /// let fence = first.fence();
    /// first.release().await?;
    /// assert!(mutex.lock().await?.fence() > fence);
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> u64 {
        self.hold.fence
    }

    /// True if the lock is held right now. Reads the clock; sends nothing.
    pub fn is_held(&self) -> bool {
        self.hold.state().is_ok()
    }

    /// How long the lock is sure to be held if no renewal succeeds from now on; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Why the lock was lost; none while it is held.
    pub fn loss(&self) -> Option<LossReason> {
        self.hold.state().err().and_then(HoldEnd::loss)
    }

    /// How long the acquisition took.
    pub fn waited(&self) -> Duration {
        self.hold.waited
    }

    /// How often the store was asked for it: 1 if it was free.
    pub fn attempts(&self) -> u32 {
        self.hold.attempts
    }

    /// How many replicas of the store had the grant before it counted; zero unless
    /// [`durability`](crate::Options::durability) asks for some.
    pub fn replicas(&self) -> u32 {
        self.hold.replicas
    }

    /// Waits until the lock is lost, and says why. Never returns for a lock that is not.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// use distlock::{Locks, LossReason};
    ///
    /// let locks = Locks::memory().configure(|o| o.max_hold(Duration::from_millis(20)))?;
    /// let guard = locks.mutex("shift")?.lock().await?;
    /// assert_eq!(guard.lost().await, LossReason::MaxHold);
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> LossReason {
        match self.watch().ended().await {
            HoldEnd::Lost(reason) => reason,
            // The guard exists, so no client has released it.
            HoldEnd::Released => std::future::pending().await,
        }
    }

    /// A token that is cancelled when the hold ends. [`Guard::watch`] tells how it ended.
    pub fn cancellation(&self) -> CancellationToken {
        // A child: the client that cancels it stops its own work, not our belief in the hold.
        self.hold.ended().child_token()
    }

    /// Cancels this token, too, when the hold ends.
    pub(crate) fn cancel_at_end(&self, token: &CancellationToken) {
        self.hold.cancel_at_end(token);
    }

    /// An observer of this hold that can outlive the guard and be cloned.
    pub fn watch(&self) -> HoldWatcher {
        HoldWatcher { hold: Arc::clone(&self.hold), keeper: Arc::clone(&self.keeper) }
    }

    /// Runs `work` as long as the lock is held; at loss `work` is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before `work` was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The lock stays with the guard.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let guard = distlock::Locks::memory().mutex("import")?.lock().await?;
    /// let rows = guard.run(async { 42 }).await?;
    /// assert_eq!(rows, 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(Error::Lost { key: self.key().clone(), reason }),
            done = work => Ok(done),
        }
    }

    /// Releases the lock and tells the truth about it: [`HoldEnd::Released`] if it was held until
    /// now, [`HoldEnd::Lost`] if it was not. The next waiter holds it when this returns. With a
    /// `lock_delay` a lost lease is left to run out.
    ///
    /// No renewal is sent any more once this was called, and the guard counts as released.
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseUncertain`] if the store could not be reached. The release is then repeated
    /// in the background until it is acknowledged or the lease is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the release to the background, as dropping the guard does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let mutex = distlock::Locks::memory().mutex("report")?;
    /// mutex.lock().await?.release().await?;
    /// assert!(mutex.try_lock().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn release(mut self) -> Result<HoldEnd, Error> {
        let now = self.keeper.clock.now();
        self.releasing = self.hold.release(now);
        self.keeper.forget(&self.hold.claim);
        // It has ended one way or the other: the clock has no say any more.
        if let Some(reason) = self.hold.known_loss()
            && (reason == LossReason::Closed || self.has_to_run_out())
        {
            self.settled = true;
            return Ok(HoldEnd::Lost(reason));
        }
        let how = ReleaseOptions {
            keep: self.hold.keep_until().since(now),
            bury: if self.hold.doubtful { LATE_ACQUIRE_MAX } else { Duration::ZERO },
        };
        let target = Target::Claim(self.hold.claim.clone());
        let span = self.hold.release_span();
        let patience = self.hold.settings.release_timeout;
        let outcome = release(&*self.keeper.backend, &target, how, patience);
        let outcome = outcome.instrument(span.clone()).await;
        span.record("outcome", outcome_word(&outcome));
        self.settled = true;
        match (outcome, self.hold.known_loss()) {
            (Err(source), loss) => {
                self.keeper.leave_hold(&self.hold);
                if loss.is_none() {
                    self.hold.announce_release(now);
                }
                Err(Error::ReleaseUncertain { key: self.key().clone(), source })
            }
            (Ok(_), Some(reason)) => Ok(HoldEnd::Lost(reason)),
            (Ok(ReleaseOutcome::WasHeld), None) => {
                self.hold.announce_release(now);
                Ok(HoldEnd::Released)
            }
            (Ok(_), None) => {
                self.hold.amend_to_lost(LossReason::Gone);
                Ok(HoldEnd::Lost(LossReason::Gone))
            }
        }
    }

    /// Hands the hold over as plain data. It is not renewed any more: extend it, or give it to
    /// [`Locks::adopt`](crate::Locks::adopt), here or in another process, before it ends.
    pub fn into_lease(mut self) -> Lease {
        let until = self.hold.state().unwrap_or_default();
        let lease = Lease::new(
            &self.hold.claim,
            self.hold.mode,
            self.fence(),
            self.hold.settings.ttl,
            until,
        );
        self.keeper.forget(&self.hold.claim);
        self.hold.release(self.keeper.clock.now());
        self.settled = true;
        lease
    }

    /// Runs `work` under the lock, then releases it; also if `work` panics or is cancelled.
    pub(crate) async fn scope<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let key = self.key().clone();
        let done = self.run(work(&self)).await?;
        match self.release().await {
            Ok(HoldEnd::Lost(reason)) => Err(Error::Lost { key, reason }),
            // The work was done while the lock was held; the release is repeated in the background.
            Ok(HoldEnd::Released) | Err(Error::ReleaseUncertain { .. }) => Ok(done),
            Err(error) => Err(error),
        }
    }

    /// Lowers the weight without letting go.
    pub(crate) async fn lower(self, weight: u32) -> Result<Self, Error> {
        self.keeper.lower_weight(&self.hold.claim, weight);
        let mut renewal = Renewal::hold(self.hold.claim.clone(), self.hold.settings.lease());
        renewal.weight = Some(weight);
        let sent_at = self.keeper.clock.now();
        match renew(&*self.keeper.backend, renewal, RELEASE_MAX).await {
            Ok(Standing::Held { .. }) => {
                let settings = &self.hold.settings;
                let until = settings.validity.until(sent_at, settings.ttl);
                self.hold.extend(until, self.keeper.clock.now());
            }
            Ok(_) => {
                self.hold.end(HoldEnd::Lost(LossReason::Gone));
            }
            Err(fault) if fault.kind() == FaultKind::Unsupported => {
                return Err(Error::from_fault(fault));
            }
            // Still held with the old weight or the new: the next renewals carry the new one.
            Err(_) => {}
        }
        match self.loss() {
            Some(reason) => Err(Error::Lost { key: self.key().clone(), reason }),
            None => Ok(self),
        }
    }

    /// A lost lease with a lock delay has to run out by itself, or the delay would be none.
    fn has_to_run_out(&self) -> bool {
        !self.hold.settings.lock_delay.is_zero()
    }
}

/// What came of a release, in a word.
fn outcome_word(outcome: &Result<ReleaseOutcome, Fault>) -> &'static str {
    match outcome {
        Ok(ReleaseOutcome::WasHeld) => "released",
        Ok(_) => "gone",
        Err(_) => "failed",
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let now = self.keeper.clock.now();
        if self.hold.release(now) || self.releasing {
            self.hold.announce_release(now);
        }
        match self.hold.valid_until() {
            // Closing has released it.
            Err(HoldEnd::Lost(LossReason::Closed)) => {}
            Err(HoldEnd::Lost(_)) if self.has_to_run_out() => self.keeper.forget(&self.hold.claim),
            _ => self.keeper.leave_hold(&self.hold),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", self.key())
            .field("fence", &self.fence())
            .field("state", &self.watch().end().map_or("held".to_owned(), |end| format!("{end:?}")))
            .finish_non_exhaustive()
    }
}

/// An observer of a hold: whether it is held, and how it ended.
#[derive(Clone)]
pub struct HoldWatcher {
    hold: Arc<Hold>,
    keeper: Arc<Keeper>,
}

impl HoldWatcher {
    /// True if the lock is held right now.
    pub fn is_held(&self) -> bool {
        self.hold.state().is_ok()
    }

    /// How the hold ended; none while it is held.
    pub fn end(&self) -> Option<HoldEnd> {
        self.hold.state().err()
    }

    /// Why the lock was lost; none while it is held and after a release.
    pub fn loss(&self) -> Option<LossReason> {
        self.end().and_then(HoldEnd::loss)
    }

    /// Waits until the hold ends, and says how.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{HoldEnd, Locks};
    ///
    /// let guard = Locks::memory().mutex("k")?.lock().await?;
    /// let watch = guard.watch();
    /// drop(guard);
    /// assert_eq!(watch.ended().await, HoldEnd::Released);
    /// # Ok(()) }
    /// ```
    pub async fn ended(&self) -> HoldEnd {
        // A task has to be there to notice; outside a runtime there is none.
        let _ = self.keeper.start();
        loop {
            if let Some(end) = self.end() {
                return end;
            }
            self.hold.ended().cancelled().await;
        }
    }
}

impl fmt::Debug for HoldWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("end", &self.end()).finish_non_exhaustive()
    }
}
