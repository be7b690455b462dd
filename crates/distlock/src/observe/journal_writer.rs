//! Writes the journal in the background: a bounded queue that no lock ever waits for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use distlock_core::{Clock, Fault, Journal, Moment, Note, Retention};
use tokio::sync::Notify;

use distlock_core::sync::lock;

/// How many notes wait at most. The oldest go first when the store cannot keep up.
const NOTES_MAX: usize = 8_192;

/// How many notes go out at once.
const BATCH_MAX: usize = 250;

/// How long the first note waits for company.
const GATHER: Duration = Duration::from_millis(20);

/// How long an append may take.
const APPEND_MAX: Duration = Duration::from_secs(5);

/// The pauses after failures: the first, and the longest.
const APPEND_PAUSE_MIN: Duration = Duration::from_millis(100);
const APPEND_PAUSE_MAX: Duration = Duration::from_secs(10);

/// After so many failures in a row no call waits for the journal any more: about a minute.
const HOPELESS_AFTER: u32 = 12;

/// The queue of notes on their way into the journal.
pub(crate) struct JournalWriter {
    journal: OnceLock<Arc<dyn Journal>>,
    queue: Mutex<NoteQueue>,
    /// There is something to write, or a flush waits for it to be written.
    work: Notify,
    /// Something was written, or given up.
    done: Notify,
}

/// What lies on the desk.
#[derive(Default)]
struct NoteQueue {
    notes: VecDeque<(Note, Moment)>,
    /// The number of the first note; they are numbered from 0 on.
    first: u64,
    retention: Retention,
    dropped: u64,
    /// A flush waits for everything to be written.
    hurried: usize,
    /// Failures in a row.
    failures: u32,
}

impl NoteQueue {
    /// The number that the next note will have.
    fn next(&self) -> u64 {
        self.first + self.notes.len() as u64
    }

    fn push(&mut self, note: Note, at: Moment) {
        if self.notes.len() == NOTES_MAX {
            self.notes.pop_front();
            self.first += 1;
            self.dropped += 1;
        }
        self.notes.push_back((note, at));
    }

    /// Takes away all notes below this number; those that were dropped meanwhile are gone already.
    fn remove_below(&mut self, number: u64) -> u64 {
        let gone = number.saturating_sub(self.first).min(self.notes.len() as u64);
        self.notes.drain(..usize::try_from(gone).unwrap_or(0));
        self.first += gone;
        gone
    }
}

impl JournalWriter {
    pub(super) fn new() -> Self {
        Self {
            journal: OnceLock::new(),
            queue: Mutex::default(),
            work: Notify::new(),
            done: Notify::new(),
        }
    }

    /// Where to write. The first one stays.
    pub(crate) fn set_journal(&self, journal: Arc<dyn Journal>) {
        let _ = self.journal.set(journal);
    }

    pub(crate) fn journal(&self) -> Option<&Arc<dyn Journal>> {
        self.journal.get()
    }

    /// Queues a note. Never waits, never fails.
    pub(crate) fn note(&self, note: Note, at: Moment, retention: Retention) {
        let mut queue = lock(&self.queue);
        queue.retention = retention;
        queue.push(note, at);
        let first = queue.notes.len() == 1;
        drop(queue);
        if first {
            self.work.notify_one();
        }
    }

    /// True while something waits to be written and there is hope for it. A store that fails for
    /// long keeps no task alive; what is left goes out with the next use.
    pub(crate) fn is_busy(&self) -> bool {
        self.journal.get().is_some() && {
            let queue = lock(&self.queue);
            !queue.notes.is_empty() && queue.failures < HOPELESS_AFTER
        }
    }

    /// How many notes wait, and how many were given up.
    pub(crate) fn count(&self) -> (usize, u64) {
        let queue = lock(&self.queue);
        (queue.notes.len(), queue.dropped)
    }

    /// Waits until everything that was noted before is written, or given up. A task has to
    /// [`run`](Self::run) meanwhile.
    pub(crate) async fn flush(&self) {
        let _hurry = FlushWaiter::new(self);
        let target = lock(&self.queue).next();
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // Listening starts before the look, so that the last write cannot slip between them.
            done.as_mut().enable();
            if lock(&self.queue).first >= target {
                return;
            }
            done.await;
        }
    }

    /// Writes for as long as it is polled.
    pub(crate) async fn run(&self, clock: &dyn Clock) {
        loop {
            let work = self.work.notified();
            let (idle, hurried, failures) = {
                let queue = lock(&self.queue);
                (queue.notes.is_empty(), queue.hurried > 0, queue.failures)
            };
            match self.journal.get() {
                Some(_) if idle => work.await,
                Some(journal) => {
                    if failures > 0 {
                        tokio::time::sleep(pause(failures, hurried)).await;
                    } else if !hurried {
                        // A flush ends the gathering.
                        let _ = tokio::time::timeout(GATHER, work).await;
                    }
                    self.write(&**journal, clock).await;
                }
                None => work.await,
            }
        }
    }

    /// Writes one batch. What is on its way stays on the desk until it is known to be written, so
    /// that dropping this loses nothing.
    async fn write(&self, journal: &dyn Journal, clock: &dyn Clock) {
        let (batch, end, retention) = {
            let (queue, now) = (lock(&self.queue), clock.now());
            let aged = |(note, at): &(Note, Moment)| (note.clone(), now.since(*at));
            let batch: Vec<_> = queue.notes.iter().take(BATCH_MAX).map(aged).collect();
            let end = queue.first + batch.len() as u64;
            (batch, end, queue.retention)
        };
        let answer = match tokio::time::timeout(APPEND_MAX, journal.append(&batch, retention)).await
        {
            Ok(answer) => answer,
            Err(elapsed) => Err(Fault::transient("write the journal in time", elapsed)),
        };
        let mut queue = lock(&self.queue);
        match answer {
            Ok(()) => {
                if queue.failures > 0 {
                    tracing::info!(dropped = queue.dropped, "the journal is written again");
                }
                queue.failures = 0;
                queue.remove_below(end);
            }
            Err(fault) => {
                if queue.failures == 0 {
                    tracing::warn!(%fault, "the journal is not written; the locks go on");
                }
                queue.failures = queue.failures.saturating_add(1);
                if !fault.is_transient() {
                    // It will fail again until it is repaired: no call shall wait for that.
                    let all = queue.next();
                    queue.dropped += queue.remove_below(all);
                }
            }
        }
        drop(queue);
        self.done.notify_waiters();
    }
}

/// The pause after a number of failures in a row; short if a flush waits.
fn pause(failures: u32, hurried: bool) -> Duration {
    let grown = APPEND_PAUSE_MIN.saturating_mul(1 << failures.min(10)).min(APPEND_PAUSE_MAX);
    if hurried { APPEND_PAUSE_MIN } else { grown }
}

/// A flush waits for everything to be written.
struct FlushWaiter<'a>(&'a JournalWriter);

impl<'a> FlushWaiter<'a> {
    fn new(journal_writer: &'a JournalWriter) -> Self {
        lock(&journal_writer.queue).hurried += 1;
        journal_writer.work.notify_one();
        Self(journal_writer)
    }
}

impl Drop for FlushWaiter<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).hurried -= 1;
    }
}

impl fmt::Debug for JournalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scribe").field("journal", &self.journal.get()).finish_non_exhaustive()
    }
}
