//! One call on its way to the thread that owns the connection, and its answer on the way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use distlock_core::Fault;
use rusqlite::Result;
use tokio::sync::oneshot;

use super::session::StoreSession;

/// Whether a job changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Something to be done inside a transaction.
pub(super) struct Job {
    /// Completes "could not …".
    pub(super) action: &'static str,
    pub(super) access: Access,
    /// When no caller waits for it any more.
    pub(super) deadline: Instant,
    work: Box<dyn JobWork>,
    /// Counts it among those on their way.
    counted: Option<CountedJob>,
}

impl Job {
    /// A job, and where its answer will be. The work may be done several times if the transaction
    /// is rolled back; only the last time counts.
    pub(super) fn new<T: Send + 'static>(
        action: &'static str,
        access: Access,
        deadline: Instant,
        work: impl FnMut(&mut StoreSession<'_>) -> Result<T> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, Fault>>) {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(QueuedJob { work, outcome: None, reply });
        (Self { action, access, deadline, work, counted: None }, answer)
    }

    /// Counts the job in `under_way` until it is answered or dropped.
    pub(super) fn count_in(&mut self, under_way: &Arc<AtomicUsize>) {
        under_way.fetch_add(1, Ordering::SeqCst);
        self.counted = Some(CountedJob(Arc::clone(under_way)));
    }

    /// Does the work inside a transaction.
    pub(super) fn attempt(&mut self, session: &mut StoreSession<'_>) -> Result<()> {
        self.work.attempt(session)
    }

    /// Gives the answer, once the transaction is committed or has failed.
    pub(super) fn answer(self, committed: Result<(), Fault>) {
        // Before the caller knows, so that its next call need not queue behind this one.
        drop(self.counted);
        self.work.answer(committed);
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("action", &self.action).finish_non_exhaustive()
    }
}

/// One of the jobs that are on their way.
struct CountedJob(Arc<AtomicUsize>);

impl Drop for CountedJob {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Work whose result only its caller knows the type of.
trait JobWork: Send {
    fn attempt(&mut self, session: &mut StoreSession<'_>) -> Result<()>;
    fn answer(self: Box<Self>, committed: Result<(), Fault>);
}

struct QueuedJob<T, F> {
    work: F,
    outcome: Option<T>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T: Send, F: FnMut(&mut StoreSession<'_>) -> Result<T> + Send> JobWork for QueuedJob<T, F> {
    fn attempt(&mut self, session: &mut StoreSession<'_>) -> Result<()> {
        self.outcome = Some((self.work)(session)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), Fault>) {
        let not_done = || Fault::transient("reach the file of locks", "the work was not done");
        let Self { outcome, reply, .. } = *self;
        let answer = committed.and_then(|()| outcome.ok_or_else(not_done));
        // A caller that has gone will release what it asked for: after this, in sequence.
        let _ = reply.send(answer);
    }
}
