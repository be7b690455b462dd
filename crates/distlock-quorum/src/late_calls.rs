//! Drives the calls of a quorum that no caller waits for any more, in one task per runtime.
//!
//! A call of the quorum ends as soon as its outcome is decided, and the nodes that have not
//! answered by then are not waited for. Their calls must not be dropped, though: a connection that
//! is just being made would never come to be, and a release would not be sent. So they are handed
//! over to this task, as are releases that have to be repeated. It is started with the first of
//! them and ends with the quorum. Whatever is late is over after [`LATE_CALL_MAX`], answered or
//! not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use distlock_core::Claim;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::QuorumInner;
use super::claims::LateAnswer;
use super::pending_releases::{PendingRelease, Repeating};
use distlock_core::sync::lock;

/// How long a late call may go on.
pub(super) const LATE_CALL_MAX: Duration = Duration::from_secs(5);

/// How many late calls are seen through at once. Beyond it they are dropped, which is as if their
/// node had not answered.
const LATE_CALLS_MAX: usize = 4096;

/// How long a late call is left alone before the task looks whether it was answered.
const PARKED_FOR: Duration = Duration::from_millis(5);

/// Work without a waiting caller.
pub(super) enum LateWork {
    Late(LateCall),
    Repeat(Repeating),
}

/// A late call, and the claim and node it is about.
pub(super) struct LateCall {
    pub(super) call: LateAnswer,
    pub(super) claim: Option<Claim>,
    pub(super) node: usize,
    /// What to repeat if it comes to nothing.
    pub(super) release: Option<PendingRelease>,
    pub(super) quorum: Weak<QuorumInner>,
    pub(super) answered: bool,
}

impl Drop for LateCall {
    /// Answered or not, no caller waits for it from now on. If its runtime has ended, none may: its
    /// timers have ended with that.
    fn drop(&mut self) {
        let Some(quorum) = self.quorum.upgrade() else { return };
        if let Some(claim) = &self.claim {
            quorum.claims.ended(claim, self.node, &self.call, self.answered);
        }
        if let (Some(release), false) = (self.release.take(), self.answered) {
            quorum.repeat(self.node, release);
        }
    }
}

/// The way to the tasks: one for each runtime that has handed something over. A runtime that is
/// alive and not polled holds up what it has handed over itself, and nothing of the others.
#[derive(Debug, Default)]
pub(super) struct LateCalls {
    tasks: Mutex<Vec<LateTask>>,
    counter: Arc<LateCounter>,
}

/// The task of one runtime.
#[derive(Clone)]
struct LateTask {
    runtime: Id,
    sender: mpsc::Sender<LateMessage>,
    parked: Arc<Mutex<Vec<LateJob>>>,
}

impl std::fmt::Debug for LateTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LateTask").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// Counts what is under way.
#[derive(Debug, Default)]
struct LateCounter {
    under_way: AtomicUsize,
    idle: Notify,
}

enum LateMessage {
    Job(LateJob),
    /// Something is parked that was not before.
    Parked,
}

/// Some work, counted while it is under way.
struct LateJob {
    work: LateWork,
    // After the work, which may leave more work behind.
    _counted: CountedLateJob,
}

struct CountedLateJob(Arc<LateCounter>);

impl CountedLateJob {
    fn new(counter: &Arc<LateCounter>) -> Self {
        counter.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counter))
    }
}

impl Drop for CountedLateJob {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl LateCalls {
    /// Sees something through. Outside a runtime it is dropped, as if its node had not answered,
    /// unless some runtime has a task.
    pub(super) fn take(&self, work: LateWork) {
        self.send(self.job(work));
    }

    /// Sees something through that was sent already, and whose answer is likely to come before
    /// anybody misses it. The task looks at all of these together a moment later: waking it for
    /// each would cost more than the call.
    pub(super) fn park(&self, work: LateWork) {
        let job = self.job(work);
        let Some(task) = self.task() else { return };
        let mut parked = lock(&task.parked);
        if parked.len() >= LATE_CALLS_MAX {
            drop(parked); // Before the job, which may leave more work behind.
            return;
        }
        parked.push(job);
        let first = parked.len() == 1;
        drop(parked);
        if first {
            let _ = task.sender.try_send(LateMessage::Parked);
        }
    }

    fn job(&self, work: LateWork) -> LateJob {
        LateJob { work, _counted: CountedLateJob::new(&self.counter) }
    }

    fn send(&self, job: LateJob) {
        // Whatever cannot be sent is dropped, and what is dropped may want to be repeated: neither
        // happens under the lock.
        if let Some(task) = self.task() {
            let _ = task.sender.try_send(LateMessage::Job(job));
        }
    }

    /// The task of this runtime, started if there is none; outside a runtime that of another.
    fn task(&self) -> Option<LateTask> {
        // Declared before the lock, so dropped after it: jobs in there may want to be repeated.
        let mut ended = Vec::new();
        let runtime = Handle::try_current().ok();
        let id = runtime.as_ref().map(Handle::id);
        let mut tasks = lock(&self.tasks);
        ended.extend(tasks.extract_if(.., |task| task.sender.is_closed()));
        let known = tasks.iter().rfind(|task| id.is_none_or(|id| task.runtime == id)).cloned();
        if let (None, Some(runtime)) = (&known, runtime) {
            let (sender, arriving) = mpsc::channel(LATE_CALLS_MAX);
            let task = LateTask { runtime: runtime.id(), sender, parked: Arc::default() };
            tasks.push(task.clone());
            drop(tasks);
            // A runtime that shuts down drops the task at once.
            runtime.spawn(run(arriving, Arc::clone(&task.parked)));
            return Some(task);
        }
        known
    }

    /// Waits until nothing is under way.
    pub(super) async fn is_idle(&self) {
        let tasks = lock(&self.tasks).clone();
        for job in tasks.iter().flat_map(|task| unpark(&task.parked)) {
            self.send(job);
        }
        loop {
            let idle = self.counter.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.counter.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }
}

fn unpark(parked: &Mutex<Vec<LateJob>>) -> Vec<LateJob> {
    std::mem::take(&mut *lock(parked))
}

async fn run(mut arriving: mpsc::Receiver<LateMessage>, parked: Arc<Mutex<Vec<LateJob>>>) {
    let mut jobs = FuturesUnordered::new();
    let (mut open, mut look_at) = (true, None);
    while open || !jobs.is_empty() {
        tokio::select! {
            message = arriving.recv(), if open && jobs.len() < LATE_CALLS_MAX => match message {
                Some(LateMessage::Job(job)) => jobs.push(see_through(job)),
                Some(LateMessage::Parked) => look_at = Some(Instant::now() + PARKED_FOR),
                None => open = false,
            },
            Some(()) = jobs.next(), if !jobs.is_empty() => {}
            () = until(look_at), if look_at.is_some() => {
                look_at = None;
                jobs.extend(unpark(&parked).into_iter().map(see_through));
            }
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn see_through(mut job: LateJob) {
    match &mut job.work {
        LateWork::Late(late) => late.answered = late.call.clone().await,
        LateWork::Repeat(repeating) => repeating.run().await,
    }
}
