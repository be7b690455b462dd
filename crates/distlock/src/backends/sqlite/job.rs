//! One call on its way to the thread that owns the connection, and its answer on the way back.

use std::time::Instant;

use distlock_core::Fault;
use rusqlite::Result;
use tokio::sync::oneshot;

use super::session::Session;

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
    /// When nobody waits for it any more.
    pub(super) deadline: Instant,
    work: Box<dyn Work>,
}

impl Job {
    /// A job, and where its answer will be. The work may be done several times if the transaction
    /// is rolled back; only the last time counts.
    pub(super) fn new<T: Send + 'static>(
        action: &'static str,
        access: Access,
        deadline: Instant,
        work: impl FnMut(&mut Session<'_>) -> Result<T> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, Fault>>) {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(Call { work, outcome: None, reply });
        (Self { action, access, deadline, work }, answer)
    }

    /// Does the work inside a transaction.
    pub(super) fn attempt(&mut self, session: &mut Session<'_>) -> Result<()> {
        self.work.attempt(session)
    }

    /// Gives the answer, once the transaction is committed or has failed.
    pub(super) fn answer(self, committed: Result<(), Fault>) {
        self.work.answer(committed);
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("action", &self.action).finish_non_exhaustive()
    }
}

/// Work whose result only its caller knows the type of.
trait Work: Send {
    fn attempt(&mut self, session: &mut Session<'_>) -> Result<()>;
    fn answer(self: Box<Self>, committed: Result<(), Fault>);
}

struct Call<T, F> {
    work: F,
    outcome: Option<T>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T: Send, F: FnMut(&mut Session<'_>) -> Result<T> + Send> Work for Call<T, F> {
    fn attempt(&mut self, session: &mut Session<'_>) -> Result<()> {
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
