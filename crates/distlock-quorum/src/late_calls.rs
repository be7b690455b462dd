//! The one task of a quorum: sees through calls without a waiting caller.
//!
//! A call of the quorum ends as soon as its outcome is decided, and the nodes that have not
//! answered by then are not waited for. Their calls must not be dropped, though: a connection that
//! is just being made would never come to be, and a release would not be sent. So they are handed
//! over to this task, which belongs to the quorum, as are releases that have to be repeated. It is
//! started with the first of them and ends with the quorum. Whatever is late is over after
//! [`LATE_CALL_MAX`], answered or not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use distlock_core::ClaimId;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
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
    pub(super) claim: Option<ClaimId>,
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
        if let Some(claim) = self.claim {
            quorum.claims.ended(&claim, self.node, &self.call, self.answered);
        }
        if let (Some(release), false) = (self.release.take(), self.answered) {
            quorum.repeat(self.node, release);
        }
    }
}

/// The way to the task.
#[derive(Debug, Default)]
pub(super) struct LateCalls {
    sender: Mutex<Option<mpsc::Sender<LateMessage>>>,
    shared: Arc<LateCallsShared>,
}

/// What the task shares with those who hand over.
#[derive(Default)]
struct LateCallsShared {
    parked: Mutex<Vec<LateJob>>,
    under_way: AtomicUsize,
    idle: Notify,
}

impl std::fmt::Debug for LateCallsShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("under_way", &self.under_way).finish_non_exhaustive()
    }
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

struct CountedLateJob(Arc<LateCallsShared>);

impl CountedLateJob {
    fn new(shared: &Arc<LateCallsShared>) -> Self {
        shared.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
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
    /// Sees something through. Outside a runtime it is dropped, as if its node had not answered.
    pub(super) fn take(&self, work: LateWork) {
        self.send(LateMessage::Job(self.job(work)));
    }

    /// Sees something through that was sent already, and whose answer is likely to come before
    /// anybody misses it. The task looks at all of these together a moment later: waking it for
    /// each would cost more than the call.
    pub(super) fn park(&self, work: LateWork) {
        let job = self.job(work);
        let mut parked = lock(&self.shared.parked);
        if parked.len() >= LATE_CALLS_MAX {
            drop(parked); // Before the job, which may leave more work behind.
            return;
        }
        parked.push(job);
        let first = parked.len() == 1;
        drop(parked);
        if first || self.is_over() {
            self.send(LateMessage::Parked);
        }
    }

    fn job(&self, work: LateWork) -> LateJob {
        LateJob { work, _counted: CountedLateJob::new(&self.shared) }
    }

    /// The task has ended with its runtime.
    fn is_over(&self) -> bool {
        lock(&self.sender).as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    fn send(&self, message: LateMessage) {
        // Nothing is dropped or spawned under the lock: what is dropped may want to be repeated,
        // and a runtime that has ended drops a task at once.
        let sent = match lock(&self.sender).as_ref() {
            Some(sender) => sender.try_send(message),
            None => Err(mpsc::error::TrySendError::Closed(message)),
        };
        let Err(mpsc::error::TrySendError::Closed(message)) = sent else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (to_task, from_us) = mpsc::channel(LATE_CALLS_MAX);
        let sent = to_task.try_send(message);
        let before = lock(&self.sender).replace(to_task);
        drop((before, sent));
        runtime.spawn(run(from_us, Arc::clone(&self.shared)));
    }

    /// Waits until nothing is under way.
    pub(super) async fn is_idle(&self) {
        for job in self.shared.unpark() {
            self.send(LateMessage::Job(job));
        }
        loop {
            let idle = self.shared.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.shared.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl LateCallsShared {
    fn unpark(&self) -> Vec<LateJob> {
        std::mem::take(&mut *lock(&self.parked))
    }
}

async fn run(mut arriving: mpsc::Receiver<LateMessage>, shared: Arc<LateCallsShared>) {
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
                jobs.extend(shared.unpark().into_iter().map(see_through));
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
