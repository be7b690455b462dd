//! The keeper: one task that looks after every claim in hand.
//!
//! It renews what is held, sends heartbeats for what waits, passes on pushes, and releases what was
//! dropped. Callers share a [`Table`] with it and wake it only if something is due sooner than it
//! would look by itself, so that taking and releasing a free lock costs no task switch.
//!
//! The task starts with the first acquisition, ends when nothing was in hand for a while, and is
//! started again on the caller's runtime if its own has ended or stopped turning.

mod answers;
mod callers;
pub(crate) mod hold;
pub(crate) mod latch;
mod lease;
mod leaving;
mod place;
mod plan;
mod table;
mod task;
mod timers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use distlock_core::{Backend, Claim, Clock, Ear, Fault, Invalid, Moment, Waiting};
use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::callers::Ending;
use self::hold::Hold;
use self::latch::End;
use self::lease::Lease;
pub(crate) use self::leaving::LATE_MAX;
use self::leaving::Leaving;
use self::place::Place;
use self::plan::{Effect, Effects};
pub(crate) use self::plan::{LastFault, Verdict};
use self::table::{Entry, Kind, Table, Waiter};
use self::task::Heir;
use crate::engine::Grant;
#[cfg(feature = "metrics")]
use crate::observe::Measured;
use crate::observe::{Event, Observer, Wake};
use crate::options::{Options, Settings};
use crate::sync::lock;
use crate::{Error, Reason, Stats};

/// How late the task may be before it counts as stuck: its runtime exists but does not turn.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// How many runtimes are remembered.
const HOMES_MAX: usize = 4;

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
    table: Mutex<Table>,
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

/// The task, if one runs.
#[derive(Debug, Default)]
struct Task {
    handle: Option<JoinHandle<()>>,
    /// Counts the tasks; one that finds a newer number ends.
    generation: u64,
    /// The runtimes that were used last, the latest at the end: where to move if one ends.
    homes: Vec<Handle>,
}

impl Task {
    fn remember(&mut self, home: &Handle) {
        if self.homes.last().is_none_or(|last| last.id() != home.id()) {
            self.homes.retain(|known| known.id() != home.id());
            self.homes.push(home.clone());
            if self.homes.len() > HOMES_MAX {
                self.homes.remove(0);
            }
        }
    }
}

impl Keeper {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let observer = Arc::new(Observer::new());
        #[cfg(feature = "metrics")]
        let backend = Arc::new(Measured::new(backend, Arc::clone(&observer.meter)));
        let keeper = Arc::new(Self {
            backend,
            clock,
            observer,
            table: Mutex::default(),
            task: Mutex::default(),
            wake: Notify::new(),
            drained: Notify::new(),
            asking: AtomicUsize::new(0),
            shut: AtomicBool::new(false),
            closed: CancellationToken::new(),
        });
        let ear: Weak<dyn Ear> = Arc::downgrade(&keeper) as _;
        keeper.backend.lend(ear);
        keeper
    }

    /// Settings with some of them changed, if what they ask for is there.
    pub(crate) fn configure(
        &self,
        settings: &Settings,
        change: impl FnOnce(Options) -> Options,
    ) -> Result<Arc<Settings>, Error> {
        let settings = settings.configure(change)?;
        if settings.journal.is_some() && self.observer.scribe.journal().is_none() {
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

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Makes sure that a task is there to look after what is about to be asked for. Returns the
    /// present.
    pub(crate) fn start(self: &Arc<Self>) -> Result<Moment, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let mut task = lock(&self.task);
        task.remember(&runtime);
        let running = task.handle.as_ref().is_some_and(|handle| !handle.is_finished());
        let now = self.clock.now();
        if !running || now > self.table().wake_at.after(STUCK_AFTER) {
            self.run_on(&runtime, task);
        }
        Ok(now)
    }

    fn run_on(self: &Arc<Self>, runtime: &Handle, mut task: MutexGuard<'_, Task>) {
        task.generation += 1;
        let generation = task.generation;
        let now = self.clock.now();
        let mut table = self.table();
        table.revive(now);
        table.wake_at = now;
        drop(table);
        // Spawned without the lock: a runtime that has ended drops the task at once, and with it
        // its heir, who wants the lock.
        drop(task);
        // A task that is stuck must not be the one that is woken.
        self.wake.notify_waiters();
        // Listening begins before anything is asked, so that no push can be missed in between.
        let pushes = self.backend.pushes();
        let heir = Heir { keeper: Arc::clone(self), generation, home: runtime.id() };
        let handle = runtime.spawn(task::run(Arc::clone(self), generation, pushes, heir));
        let mut task = lock(&self.task);
        if task.generation == generation {
            task.handle = Some(handle);
        }
    }

    /// The runtime of a task has ended under it: goes on where the locks were used last.
    fn move_from(self: &Arc<Self>, home: runtime::Id, generation: u64) {
        let mut task = lock(&self.task);
        task.homes.retain(|known| known.id() != home);
        if task.generation != generation || self.table().len() == 0 {
            return;
        }
        if let Some(next) = task.homes.last().cloned() {
            self.run_on(&next, task);
        }
    }

    /// A call begins under an id of its caller's.
    pub(crate) fn call_begins(&self, claim: &Claim) {
        self.table().callers.begin(claim.id);
    }

    /// True if no other call is under way under this id of its caller's.
    pub(crate) fn is_only_call(&self, claim: &Claim) -> bool {
        self.table().callers.is_only(claim.id)
    }

    /// A call under an id of its caller's ends. True if the claim is to be given up.
    pub(crate) fn call_ends(&self, claim: &Claim, ending: Ending) -> bool {
        self.table().callers.end(claim.id, ending)
    }

    /// Puts a claim under its timer and wakes the task if that is sooner than it would look.
    fn keep(&self, table: &mut Table, claim: Claim, kind: Kind, at: Moment) {
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
        let lease = Lease::new(settings, hold.since, grant.renew_at, grant.until);
        let ends = settings.max_hold.map_or(grant.until, |max_hold| hold.since.after(max_hold));
        let first = grant.renew_at.min(grant.until).min(ends);
        let kind =
            Kind::Held { hold: Arc::clone(&hold), lease, weight: None, ticket: grant.ticket };
        let mut table = self.table();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if table.holds(&grant.claim.id) {
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
        standing: Waiting,
        sent_at: Moment,
        settings: &Settings,
        last_fault: LastFault,
        patience: Duration,
    ) -> Result<oneshot::Receiver<Verdict>, Error> {
        let now = self.clock.now();
        let (span, pushed) = (settings.wait.place, self.backend.capabilities().push);
        let place = Place::new(span, settings.validity, pushed, standing, sent_at, now);
        let (reply, verdict) = oneshot::channel();
        let mut table = self.table();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let others = table.take_waiter(&claim.id);
        let mut calls = others.map(|waiter| waiter.calls).unwrap_or_default();
        calls.push((reply, last_fault));
        let waiter = Waiter { place, calls, patience };
        if let Some(fence) = table.take_early(claim.id, standing.ticket) {
            let until = waiter.place.grant_until();
            waiter.tell(&Verdict::Granted { fence, until, by: Wake::Push });
            return Ok(verdict);
        }
        let next = waiter.place.next().unwrap_or(now);
        self.keep(&mut table, claim, Kind::Waiting(waiter), next);
        Ok(verdict)
    }

    /// Sends no more heartbeats for a place that its caller keeps, unless another call waits.
    pub(crate) fn stop_waiting(&self, claim: &Claim) {
        let mut table = self.table();
        if !table.callers.any(&claim.id) {
            table.forget(&claim.id);
            self.tell_if_drained(&table);
        }
    }

    /// Takes a claim out of the keeper's hands: no renewal of it is sent from now on.
    pub(crate) fn forget(&self, claim: &Claim) {
        let mut table = self.table();
        table.forget(&claim.id);
        self.tell_if_drained(&table);
    }

    /// Releases a claim in the background until the store has acknowledged it. Never blocks, never
    /// fails, and works outside a runtime: then the release goes out with the next use.
    pub(crate) fn leave(
        self: &Arc<Self>,
        claim: Claim,
        lease: Duration,
        keep_until: Moment,
        doubtful: bool,
    ) {
        let now = self.clock.now();
        let leaving = Leaving::new(now, lease, keep_until, doubtful);
        let mut table = self.table();
        self.keep(&mut table, claim, Kind::Leaving(leaving), now);
        // The task may be asleep until this very moment, and not know that this one is due.
        self.wake.notify_one();
        drop(table);
        let _ = self.start();
    }

    /// Releases what a guard held.
    pub(crate) fn leave_hold(self: &Arc<Self>, hold: &Hold) {
        let lease = hold.settings.lease();
        self.leave(hold.claim.clone(), lease, hold.keep_until(), hold.doubtful);
    }

    /// From now on every renewal of this claim lowers it to this weight.
    pub(crate) fn lower_weight(&self, claim: &Claim, weight: u32) {
        self.table().lower_weight(&claim.id, weight);
    }

    /// Ends everything: waiting calls fail, held locks are lost and released. Returns when the
    /// store has acknowledged it all, or after [`RELEASE_MAX`] with an error.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<(), Error> {
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
            waiter.tell(&Verdict::Closed);
        }
        for hold in holds {
            hold.end(End::Lost(Reason::Closed));
            self.leave_hold(&hold);
        }
        let drained = tokio::time::timeout(RELEASE_MAX, self.until_drained()).await;
        // What the store has acknowledged is over, even if some part of it has not heard of it yet.
        let settling = tokio::time::timeout(DRAIN_MAX, self.backend.drain());
        let (_, _) = tokio::join!(settling, self.flush(FLUSH_MAX));
        drained.map_err(|elapsed| self.undrained(elapsed))
    }

    /// Waits until the journal has what was noted so far, but not for ever.
    pub(crate) async fn flush(self: &Arc<Self>, at_most: Duration) {
        if self.observer.scribe.is_busy() && self.start().is_ok() {
            let _ = tokio::time::timeout(at_most, self.observer.scribe.flush()).await;
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

    fn tell_if_drained(&self, table: &Table) {
        if table.len() == 0 && self.is_closed() {
            self.drained.notify_waiters();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.observer.count_into(&mut stats);
        for entry in self.table().entries() {
            match entry.kind {
                Kind::Held { .. } => stats.held += 1,
                Kind::Waiting(_) => stats.waiting += 1,
                Kind::Leaving(_) => stats.releasing += 1,
            }
        }
        let running = lock(&self.task).handle.as_ref().is_some_and(|task| !task.is_finished());
        stats.tasks = usize::from(running);
        stats
    }

    /// Tells holders and listeners what has happened.
    fn announce(&self, effects: Effects) {
        self.observer.renewed(effects.renewals);
        for effect in effects.all {
            match effect {
                Effect::Lost(hold, reason) => {
                    hold.end(End::Lost(reason));
                }
                Effect::Renewed(hold, margin) => {
                    self.observer.meter.margin(&hold.claim.key, margin);
                    let (key, fence) = (&hold.claim.key, hold.fence);
                    self.observer.emit(|| Event::Renewed { key: key.clone(), fence, margin });
                }
                Effect::AtRisk(hold) => hold.announce_risk(),
                Effect::Waits(key, ahead) => self.observer.emit(|| Event::Waiting { key, ahead }),
            }
        }
    }
}

/// Counts a call that is under way. While there is any, the task stays.
#[derive(Debug)]
pub(crate) struct Asking(Arc<Keeper>);

impl Asking {
    pub(crate) fn new(keeper: &Arc<Keeper>) -> Self {
        keeper.asking.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(keeper))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.0.asking.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_closed() {
            self.0.drained.notify_waiters();
        }
    }
}

fn held(entry: &Entry) -> Option<Arc<Hold>> {
    match &entry.kind {
        Kind::Held { hold, .. } => Some(Arc::clone(hold)),
        Kind::Waiting(_) | Kind::Leaving(_) => None,
    }
}
