//! A handle to the thread that owns the file.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use distlock_core::{ClientId, Fault, Push};
use rusqlite::Result;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::boot::Boot;
use super::config::SqliteConfig;
use super::job::{Access, Job};
use super::session::StoreSession;
use super::worker::{Worker, WorkerShared};
use distlock_core::sync::lock;

/// How many calls may be on their way to the thread.
const JOBS_MAX: usize = 1024;

/// How many pushes a client may fall behind. What it misses, its next heartbeat tells. The room for
/// them is taken when the store is opened, so it is no more than is of use.
const SQLITE_PUSHES_MAX: usize = 256;

/// One client of a file. Whatever may have to wait is done by a thread of its own, so that no
/// runtime waits for a disk, and in the sequence in which it was asked for, so that a release comes
/// after the acquire it ends, even if the caller of that one has gone.
#[derive(Debug)]
pub(super) struct SqliteStore {
    config: SqliteConfig,
    boot: Option<Boot>,
    shared: Arc<WorkerShared>,
    thread: Mutex<Option<StoreThread>>,
}

/// The thread, and the process in which it runs: none of its forks has it.
#[derive(Clone)]
struct StoreThread {
    // Dropped before the sender whose end ends the thread: the thread drops it last.
    worker: Arc<Mutex<Worker>>,
    jobs: mpsc::Sender<Job>,
    process: u32,
}

impl SqliteStore {
    /// A store that is opened, and whose thread is started, with the first call.
    pub(super) fn new(config: SqliteConfig, boot: Option<Boot>) -> Result<Self, Fault> {
        let shared = WorkerShared {
            client: ClientId::random()?,
            pushes: broadcast::channel(SQLITE_PUSHES_MAX).0,
            listens: AtomicBool::new(false),
            bell: Mutex::new(None),
            is_deaf: AtomicBool::new(false),
            inode: AtomicU64::new(0),
            under_way: Arc::new(AtomicUsize::new(0)),
        };
        Ok(Self { config, boot, shared: Arc::new(shared), thread: Mutex::new(None) })
    }

    pub(super) fn config(&self) -> &SqliteConfig {
        &self.config
    }

    pub(super) fn client(&self) -> ClientId {
        self.shared.client
    }

    /// The number of the file, the same for all paths that lead to it.
    pub(super) fn inode(&self) -> u64 {
        self.shared.inode.load(Ordering::SeqCst)
    }

    /// True unless it turned out that clients cannot be told anything.
    pub(super) fn can_push(&self) -> bool {
        !self.shared.is_deaf.load(Ordering::SeqCst)
    }

    /// Does some work inside a transaction. `action` completes "could not …". If the transaction
    /// is rolled back, the work is done again or the call is a fault.
    ///
    /// Dropping the future does not stop work that is on its way.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        action: &'static str,
        access: Access,
        work: impl FnMut(&mut StoreSession<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let thread = self.thread(action)?;
        let (job, answer) = Job::new(action, access, self.deadline(), work);
        self.send(&thread, job, answer).await
    }

    /// The same for work that takes some microseconds. It is done at once, on the caller's thread,
    /// if nothing is on its way before it and no lock or disk has to be waited for; going to the
    /// other thread and back takes several times as long as the work.
    pub(super) async fn run_short<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnMut(&mut StoreSession<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let thread = self.thread(action)?;
        let (job, mut answer) = Job::new(action, Access::Write, self.deadline(), work);
        match self.serve_at_once(&thread, job) {
            Err(job) => self.send(&thread, job, answer).await,
            Ok(()) => answer.try_recv().unwrap_or_else(|_| Err(Fault::transient(action, "lost"))),
        }
    }

    fn serve_at_once(&self, thread: &StoreThread, job: Job) -> Result<(), Job> {
        let Ok(mut worker) = thread.worker.try_lock() else { return Err(job) };
        if self.shared.under_way.load(Ordering::SeqCst) > 0 {
            return Err(job);
        }
        worker.serve_at_once(job)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.response_timeout
    }

    async fn send<T>(
        &self,
        thread: &StoreThread,
        mut job: Job,
        answer: oneshot::Receiver<Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let (action, within) = (job.action, self.config.response_timeout);
        job.count_in(&self.shared.under_way);
        let late = || {
            let fault = Fault::transient(action, format!("no answer within {within:?}"));
            fault.at_store(self.config.location()).advise("check how busy the disk is")
        };
        let answered = async {
            // Only a thread that has died drops a job or refuses one.
            let died = || Fault::transient(action, "the thread that owns the file has ended");
            thread.jobs.send(job).await.map_err(|_| died())?;
            answer.await.map_err(|_| died())?
        };
        tokio::time::timeout(within, answered).await.unwrap_or_else(|_| Err(late()))
    }

    /// Hears of grants and breaks from now on.
    pub(super) fn listen(&self) -> broadcast::Receiver<Push> {
        let receiver = self.shared.pushes.subscribe();
        if !self.shared.listens.swap(true, Ordering::SeqCst)
            && let Ok(thread) = self.thread("listen")
        {
            // The thread looks at the flag before every job. If it has too many to take this one,
            // the next one will do.
            let (job, _) = Job::new("listen", Access::Read, self.deadline(), |_| Ok(()));
            let _ = thread.jobs.try_send(job);
        }
        receiver
    }

    /// The thread, started if it is not there.
    fn thread(&self, action: &'static str) -> Result<StoreThread, Fault> {
        let mut slot = lock(&self.thread);
        let process = std::process::id();
        match &*slot {
            Some(thread) if thread.process != process => {
                let why = "this process was forked from the one that opened the file of locks: \
                           open it again";
                return Err(Fault::permanent(action, why));
            }
            Some(thread) if !thread.jobs.is_closed() => return Ok(thread.clone()),
            _ => {}
        }
        let (jobs, inbox) = mpsc::channel(JOBS_MAX);
        let worker = Worker::new(self.config.clone(), self.boot.clone(), Arc::clone(&self.shared));
        let worker = worker.start(inbox).map_err(|error| Fault::transient(action, error))?;
        Ok(slot.insert(StoreThread { worker, jobs, process }).clone())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The thread may be about to listen, so it learns first that no stream is left.
        self.shared.listens.store(false, Ordering::SeqCst);
        drop(lock(&self.shared.bell).take());
    }
}

impl std::fmt::Debug for StoreThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread").field("process", &self.process).finish_non_exhaustive()
    }
}
