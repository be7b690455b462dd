//! The keeper: one task that looks after every claim in hand.
//!
//! Long because the calls of guards, waiters and the task meet in one type.
//!
//! It renews what is held, sends heartbeats for what waits, passes on pushes, and releases what was
//! dropped. Callers share a [`ClaimTable`] with it and wake it only if something is due sooner than
//! it would look by itself, so that taking and releasing a free lock costs no task switch.
//!
//! The task starts with the first acquisition and ends when nothing was in hand for a while. It
//! runs on the library's own [thread]. Locks with a clock of their own may have a clock that
//! belongs to a runtime: their keeper runs on the caller's, and starts again on another one if that
//! has ended.

mod answers;
pub(crate) mod hold;
mod hold_schedule;
pub(crate) mod hold_state;
mod home;
mod place_schedule;
mod plan;
mod release_schedule;
mod table;
mod task;
mod thread;
mod timers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use distlock_core::{
    AttemptId, Backend, Claim, Clock, Fault, Invalid, Key, Moment, QueuePosition, Snapshot,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::answers::EarlyPush;
use self::hold::Hold;
use self::hold_schedule::HoldSchedule;
use self::hold_state::HoldEnd;
use self::home::Task;
pub(crate) use self::home::{Home, needs_runtime};
use self::place_schedule::PlaceSchedule;
use self::plan::{Effect, Effects};
pub(crate) use self::plan::{LastFault, PlaceVerdict};
pub(crate) use self::release_schedule::LATE_ACQUIRE_MAX;
use self::release_schedule::ReleaseSchedule;
use self::table::{ClaimEntry, ClaimPhase, ClaimTable, QueuedClaim};
use crate::engine::Grant;
#[cfg(feature = "metrics")]
use crate::observe::Measured;
use crate::observe::{Event, Observer, WakeCause};
use crate::options::{Options, Settings};
use crate::{Error, LossReason, Stats};
use distlock_core::sync::lock;

/// How long a release may take, and how long `close` waits for the last of them.
pub(crate) const RELEASE_MAX: Duration = Duration::from_secs(5);

/// How long `close` waits for what the store goes on with by itself.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// How long `close` waits for the journal.
pub(crate) const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The keeper as callers see it.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<Observer>,
    home: Home,
    table: Mutex<ClaimTable>,
    task: Mutex<Task>,
    /// Something is due sooner than the task knows.
    wake: Notify,
    /// A claim has gone.
    drained: Notify,
    /// Acquisitions under way. While there are any, the task stays.
    asking: AtomicUsize,
    /// Closed, or about to be: quicker to ask than the token.
    shut: AtomicBool,
    closed: CancellationToken,
}

impl Keeper {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, home: Home) -> Arc<Self> {
        let observer = Arc::new(Observer::new());
        #[cfg(feature = "metrics")]
        let backend = Arc::new(Measured::new(backend, Arc::clone(&observer.meter)));
        Arc::new(Self {
            backend,
            clock,
            observer,
            home,
            table: Mutex::default(),
            task: Mutex::default(),
            wake: Notify::new(),
            drained: Notify::new(),
            asking: AtomicUsize::new(0),
            shut: AtomicBool::new(false),
            closed: CancellationToken::new(),
        })
    }

    /// Settings with some of them changed, if what they ask for is there.
    pub(crate) fn configure(
        &self,
        settings: &Settings,
        change: impl FnOnce(Options) -> Options,
    ) -> Result<Arc<Settings>, Error> {
        let settings = settings.configure(change)?;
        if settings.journal.is_some() && self.observer.journal_writer.journal().is_none() {
            return Err(Error::Unsupported { what: "a journal" });
        }
        Ok(settings)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    pub(crate) async fn until_closed(&self) {
        self.closed.cancelled().await;
    }

    fn table(&self) -> MutexGuard<'_, ClaimTable> {
        lock(&self.table)
    }

    /// Puts a claim under its timer and wakes the task if that is sooner than it would look.
    fn keep(&self, table: &mut ClaimTable, claim: Claim, kind: ClaimPhase, at: Moment) {
        table.insert(claim, kind, at);
        if at < table.wake_at {
            table.wake_at = at;
            self.wake.notify_one();
        }
    }

    /// Keeps a granted claim alive from now on.
    pub(crate) fn hold(&self, grant: &Grant, settings: &Arc<Settings>) -> Result<Arc<Hold>, Error> {
        let (clock, observer) = (Arc::clone(&self.clock), Arc::clone(&self.observer));
        let hold = Arc::new(Hold::new(grant, Arc::clone(settings), clock, observer));
        let lease = HoldSchedule::new(settings, hold.since, grant.renew_at, grant.until);
        let ends = settings.max_hold.map_or(grant.until, |max_hold| hold.since.after(max_hold));
        let first = grant.renew_at.min(grant.until).min(ends);
        let kind =
            ClaimPhase::Held { hold: Arc::clone(&hold), lease, weight: None, ticket: grant.ticket };
        let mut table = self.table();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if table.holds(&grant.claim) {
            // Two guards of one hold would each believe in it after the other has released it.
            let why = "is kept alive by these locks already";
            return Err(Invalid::new("lease", &grant.claim.key, why).into());
        }
        self.keep(&mut table, grant.claim.clone(), kind, first);
        self.observer.meter.held(&grant.claim.key, 1.0);
        Ok(hold)
    }

    /// Keeps a place in the queue alive; the verdict comes through the channel.
    pub(crate) fn wait(
        &self,
        claim: Claim,
        standing: QueuePosition,
        sent_at: Moment,
        settings: &Settings,
        last_fault: LastFault,
        patience: Duration,
    ) -> Result<oneshot::Receiver<PlaceVerdict>, Error> {
        let now = self.clock.now();
        let (span, pushed) = (settings.wait.place, self.backend.capabilities().push);
        let place = PlaceSchedule::new(span, settings.validity, pushed, standing, sent_at, now);
        let (reply, verdict) = oneshot::channel();
        let mut table = self.table();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let others = table.take_waiter(&claim);
        let mut calls = others.map(|waiter| waiter.calls).unwrap_or_default();
        calls.retain(|(reply, _)| !reply.is_closed());
        calls.push((reply, last_fault));
        let mut waiter = QueuedClaim { place, calls, patience };
        // A push for this claim may have been lost before its answer came.
        if table.interrupted_at.is_some_and(|at| at >= sent_at) {
            waiter.place.hurry(now);
        }
        match table.take_early(claim.id, standing.ticket) {
            Some(EarlyPush::Granted { fence, .. }) => {
                let until = waiter.place.grant_until();
                waiter.tell(&PlaceVerdict::Granted { fence, until, by: WakeCause::Push });
                return Ok(verdict);
            }
            Some(EarlyPush::Check) => waiter.place.hurry(now),
            None => {}
        }
        let next = waiter.place.next();
        self.keep(&mut table, claim, ClaimPhase::Waiting(waiter), next);
        Ok(verdict)
    }

    /// A call under an id of its caller's waits no more: without another that does, no heartbeat is
    /// sent for the place.
    pub(crate) fn stop_waiting(&self, claim: &Claim) {
        let mut table = self.table();
        if table.waits_for_nothing(claim) {
            table.remove(claim);
            self.tell_if_drained(&table);
        }
    }

    /// Takes a claim out of the keeper's hands: no renewal of it is sent from now on.
    pub(crate) fn forget(&self, claim: &Claim) {
        let mut table = self.table();
        table.forget(claim);
        self.tell_if_drained(&table);
    }

    /// Releases a claim in the background until the store has acknowledged it. Never blocks, never
    /// fails, and works outside a runtime.
    pub(crate) fn leave(
        self: &Arc<Self>,
        claim: Claim,
        lease: Duration,
        keep_until: Moment,
        doubtful: bool,
    ) {
        let leaving = ReleaseSchedule::new(self.clock.now(), lease, keep_until, doubtful);
        self.leave_by(claim, leaving);
    }

    /// Gives up one attempt for a claim in the same way. The claim stays if another attempt has it.
    pub(crate) fn leave_attempt(
        self: &Arc<Self>,
        claim: &Claim,
        attempt: AttemptId,
        lease: Duration,
        doubtful: bool,
    ) {
        let now = self.clock.now();
        let leaving = ReleaseSchedule::new(now, lease, now, doubtful).of_attempt(claim.id, attempt);
        self.leave_by(Self::attempt_of(claim, attempt), leaving);
    }

    /// An attempt has an entry of its own: other calls may wait for the claim meanwhile, or give it
    /// up.
    pub(crate) fn attempt_of(claim: &Claim, attempt: AttemptId) -> Claim {
        Claim::new(claim.key.clone(), attempt.tombstone(&claim.id))
    }

    fn leave_by(self: &Arc<Self>, claim: Claim, leaving: ReleaseSchedule) {
        let now = self.clock.now();
        let mut table = self.table();
        self.keep(&mut table, claim, ClaimPhase::Leaving(leaving), now);
        // The task may be asleep until this very moment, and not know that this one is due.
        self.wake.notify_one();
        drop(table);
        let _ = self.start();
    }

    /// Waits until the release of a claim that is under way has ended, at most this long.
    pub(crate) async fn until_left(&self, claim: &Claim, at_most: Duration) {
        let left = self.table().left(claim);
        if let Some(left) = left {
            let _ = tokio::time::timeout(at_most, left).await;
        }
    }

    /// One channel for each release in the background, which ends when the release has.
    pub(crate) fn leaving(&self) -> Vec<oneshot::Receiver<()>> {
        self.table().leaving()
    }

    /// Releases what a guard held.
    pub(crate) fn leave_hold(self: &Arc<Self>, hold: &Hold) {
        let lease = hold.settings.lease();
        self.leave(hold.claim.clone(), lease, hold.keep_until(), hold.doubtful);
    }

    /// From now on every renewal of this claim lowers it to this weight.
    pub(crate) fn lower_weight(&self, claim: &Claim, weight: u32) {
        self.table().lower_weight(claim, weight);
    }

    /// Ends everything: waiting calls fail, held locks are lost and released. Returns when the
    /// store has acknowledged it all, or after [`RELEASE_MAX`] with an error.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<(), Error> {
        needs_runtime()?;
        self.start()?;
        self.shut.store(true, Ordering::SeqCst);
        self.closed.cancel();
        let (waiters, holds) = {
            let mut table = self.table();
            let waiters = table.remove_waiters();
            let holds: Vec<_> = table.entries().filter_map(held).collect();
            (waiters, holds)
        };
        for waiter in waiters {
            waiter.tell(&PlaceVerdict::Closed);
        }
        for hold in holds {
            hold.end(HoldEnd::Lost(LossReason::Closed));
            self.leave_hold(&hold);
        }
        let drained = tokio::time::timeout(RELEASE_MAX, self.until_drained()).await;
        // What the store has acknowledged is over, even if some part of it has not heard of it yet.
        let settling = tokio::time::timeout(DRAIN_MAX, self.backend.extensions().drain());
        let (_, _) = tokio::join!(settling, self.flush(FLUSH_MAX));
        drained.map_err(|elapsed| self.undrained(elapsed))
    }

    /// Looks at one key.
    pub(crate) async fn inspect(&self, key: &Key) -> Result<Snapshot, Error> {
        let seen = self.backend.inspect(key).await;
        seen.map_err(|fault| {
            Error::from_fault_at(key, fault.at_store(self.backend.extensions().location))
        })
    }

    /// Waits until the journal has what was noted so far, but not for ever.
    pub(crate) async fn flush(self: &Arc<Self>, at_most: Duration) {
        if self.observer.journal_writer.is_busy() && self.start().is_ok() {
            let _ = tokio::time::timeout(at_most, self.observer.journal_writer.flush()).await;
        }
    }

    async fn until_drained(&self) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            // Listening starts before the look, so that the last release cannot slip between them.
            drained.as_mut().enable();
            if self.asking.load(Ordering::SeqCst) == 0 && self.table().len() == 0 {
                return;
            }
            drained.await;
        }
    }

    fn undrained(&self, elapsed: tokio::time::error::Elapsed) -> Error {
        let source = Fault::transient("release everything in time", elapsed);
        match self.table().entries().next() {
            Some(entry) => Error::ReleaseUncertain { key: entry.key.clone(), source },
            None => Error::Backend(source),
        }
    }

    fn tell_if_drained(&self, table: &ClaimTable) {
        if table.len() == 0 && self.is_closed() {
            self.drained.notify_waiters();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.observer.count_into(&mut stats);
        for entry in self.table().entries() {
            match entry.kind {
                ClaimPhase::Held { .. } => stats.held += 1,
                ClaimPhase::Waiting(_) => stats.waiting += 1,
                ClaimPhase::Leaving(_) => stats.releasing += 1,
            }
        }
        stats.tasks = usize::from(lock(&self.task).is_running());
        stats
    }

    /// Tells holders and listeners what has happened.
    fn announce(&self, effects: Effects) {
        self.observer.renewed(effects.renewals);
        for effect in effects.all {
            match effect {
                Effect::Lost(hold, reason) => {
                    hold.end(HoldEnd::Lost(reason));
                }
                Effect::Renewed(hold, margin) => {
                    self.observer.meter.margin(&hold.claim.key, margin);
                    let (key, fence) = (&hold.claim.key, hold.fence);
                    self.observer.emit(|| Event::Renewed { key: key.clone(), fence, margin });
                }
                Effect::AtRisk(hold, risk, fault) => hold.announce_risk(risk, fault),
                Effect::Waits(key, ahead) => self.observer.emit(|| Event::Waiting { key, ahead }),
            }
        }
    }
}

/// Counts a call that is under way. While there is any, the task stays.
#[derive(Debug)]
pub(crate) struct CallInProgress(Arc<Keeper>);

impl CallInProgress {
    pub(crate) fn new(keeper: &Arc<Keeper>) -> Self {
        keeper.asking.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(keeper))
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if self.0.asking.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_closed() {
            self.0.drained.notify_waiters();
        }
    }
}

fn held(entry: &ClaimEntry) -> Option<Arc<Hold>> {
    match &entry.kind {
        ClaimPhase::Held { hold, .. } => Some(Arc::clone(hold)),
        ClaimPhase::Waiting(_) | ClaimPhase::Leaving(_) => None,
    }
}
