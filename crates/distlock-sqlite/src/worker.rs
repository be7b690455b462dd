//! The thread that owns the connection: calls go through it one after the other, in sequence.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use distlock_core::law::AddressedPush;
use distlock_core::{ClientId, Fault, Push};
use rusqlite::ErrorCode;
use tokio::sync::{broadcast, mpsc};

use super::boot::Boot;
use super::config::SqliteConfig;
use super::database::{self, Database};
use super::faults;
use super::job::{Access, Job};
use super::wake::{Sockets, WakeSocket};
use distlock_core::sync::lock;

/// How many calls share a transaction at most. Others write only between two of them.
const GROUP_MAX: usize = 64;

/// What the thread and its handle share.
#[derive(Debug)]
pub(super) struct WorkerShared {
    pub(super) client: ClientId,
    pub(super) pushes: broadcast::Sender<Push>,
    /// A stream wants pushes.
    pub(super) listens: AtomicBool,
    /// What is listened to. It goes with the handle, since a process may end before its threads do.
    pub(super) bell: Mutex<Option<WakeSocket>>,
    /// Pushes do not work on this disk.
    pub(super) is_deaf: AtomicBool,
    /// The number of the file, once it is open.
    pub(super) inode: AtomicU64,
    /// How many jobs are on their way to the thread.
    pub(super) under_way: Arc<AtomicUsize>,
}

/// The thread's own.
pub(super) struct Worker {
    config: SqliteConfig,
    /// A clock of one's own; otherwise the machine's.
    boot: Option<Boot>,
    shared: Arc<WorkerShared>,
    database: Option<Database>,
    sockets: Option<Sockets>,
    /// Something was opened and is not ready for all that may come.
    is_fresh: bool,
    /// What comes next may have to wait for the disk.
    log: WalState,
}

/// What the next commit has to expect of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalState {
    /// It is written to, and no client waits for the disk.
    Goes,
    /// It has become long, so it is to be copied into the file.
    IsLong,
    /// It was copied. The next commit begins it anew, which waits for the disk.
    WasCopied,
}

impl Worker {
    pub(super) fn new(config: SqliteConfig, boot: Option<Boot>, shared: Arc<WorkerShared>) -> Self {
        let (database, sockets) = (None, None);
        Self { config, boot, shared, database, sockets, is_fresh: false, log: WalState::Goes }
    }

    /// Starts the thread. It ends when its senders are gone and it has done the last job.
    pub(super) fn start(self, mut jobs: mpsc::Receiver<Job>) -> io::Result<Arc<Mutex<Self>>> {
        let thread = thread::Builder::new().name("distlock-sqlite".to_owned());
        let worker = Arc::new(Mutex::new(self));
        let own = Arc::clone(&worker);
        let started = thread.spawn(move || {
            while let Some(first) = jobs.blocking_recv() {
                let mut group = vec![first];
                while group.len() < GROUP_MAX
                    && let Ok(next) = jobs.try_recv()
                {
                    group.push(next);
                }
                let mut worker = lock(&own);
                let writes = group.iter().any(|job| job.access == Access::Write);
                worker.serve(group);
                // Not between the one that opens the file and the first that asks for something.
                if writes || jobs.is_empty() {
                    worker.get_ready();
                }
                worker.mind_the_log();
            }
        });
        started.map(|_| worker)
    }

    /// Serves a job on the caller's thread if that needs no waiting. Gives it back if
    /// it does.
    pub(super) fn serve_at_once(&mut self, mut job: Job) -> Result<(), Job> {
        let database = self.database.as_ref().filter(|database| database.is_in_place());
        let Some(database) = database.filter(|_| self.log == WalState::Goes) else {
            return Err(job);
        };
        match database.transact_at_once(&mut job) {
            Ok(None) => return Err(job),
            Ok(Some(notices)) => {
                self.tell(&notices);
                job.answer(Ok(()));
            }
            Err(error) => {
                if faults::ends_connection(&error) {
                    self.database = None;
                }
                let fault = faults::fault(job.action, &self.config.file, &error);
                job.answer(Err(fault));
            }
        }
        self.log = if database::log_is_long() { WalState::IsLong } else { WalState::Goes };
        Ok(())
    }

    /// Does what can wait until the first callers have their answers.
    fn get_ready(&mut self) {
        if !std::mem::take(&mut self.is_fresh) {
            return;
        }
        let mut slot = lock(&self.shared.bell);
        if let Some(bell) = &mut *slot
            && bell.hear(&self.shared.pushes).is_err()
        {
            self.shared.is_deaf.store(true, Ordering::SeqCst);
            *slot = None;
        }
        drop(slot);
        self.database.iter().for_each(Database::think_ahead);
    }

    /// Copies the log into the file when it has become long. Callers have their answers by then.
    fn mind_the_log(&mut self) {
        self.log = if database::log_is_long() && self.log != WalState::WasCopied {
            self.database.iter().for_each(Database::shorten_log);
            WalState::WasCopied
        } else {
            WalState::Goes
        };
    }

    fn serve(&mut self, mut group: Vec<Job>) {
        let now = Instant::now();
        // Their callers have given up on them.
        group.retain(|job| job.deadline > now);
        let Err(trouble) = self.transact(&mut group) else {
            group.into_iter().for_each(|job| job.answer(Ok(())));
            return;
        };
        if group.len() > 1 && !trouble.concerns_all() {
            // One of them spoils it for the others, which may do better alone.
            group.into_iter().for_each(|job| self.serve(vec![job]));
            return;
        }
        for job in group {
            let fault = trouble.fault(&self.config, job.action);
            job.answer(Err(fault));
        }
    }

    /// Runs a group in one transaction, and tells whom it concerns.
    fn transact(&mut self, group: &mut [Job]) -> Result<(), BatchFailure> {
        let Some(deadline) = group.iter().map(|job| job.deadline).min() else { return Ok(()) };
        let database = self.open(deadline)?;
        match database.transact(group) {
            Ok(notices) => self.tell(&notices),
            Err(error) => {
                if faults::ends_connection(&error) {
                    self.database = None;
                }
                return Err(BatchFailure::InUse(error));
            }
        }
        Ok(())
    }

    /// The database, opened if it is not.
    fn open(&mut self, deadline: Instant) -> Result<&Database, BatchFailure> {
        let database = match self.database.take().filter(Database::is_in_place) {
            Some(database) => database,
            None => {
                let boot = self.boot.clone().map_or_else(Boot::of_machine, Ok);
                let opened = boot.and_then(|boot| Database::open(&self.config, boot, deadline));
                let database = opened.map_err(BatchFailure::NotOpened)?;
                self.shared.inode.store(database.inode(), Ordering::SeqCst);
                self.is_fresh = true;
                database
            }
        };
        self.listen();
        Ok(self.database.insert(database))
    }

    /// Listens from now on, if a stream wants pushes.
    fn listen(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut slot = lock(&shared.bell);
        if slot.is_some() || !shared.listens.load(Ordering::SeqCst) {
            return;
        }
        let bell = self.sockets().and_then(|sockets| sockets.listen(shared.client));
        shared.is_deaf.store(bell.is_err(), Ordering::SeqCst);
        *slot = bell.ok();
        self.is_fresh = true;
    }

    fn tell(&mut self, notices: &[AddressedPush]) {
        let own = |notice: &AddressedPush| notice.to == self.shared.client;
        for notice in notices.iter().copied().filter(own) {
            // A push without a listener is no error: the heartbeat tells.
            let _ = self.shared.pushes.send(notice.push);
        }
        let others: Vec<_> = notices.iter().copied().filter(|notice| !own(notice)).collect();
        if !others.is_empty()
            && let Ok(sockets) = self.sockets()
        {
            sockets.tell(&others);
        }
    }

    fn sockets(&mut self) -> io::Result<&Sockets> {
        let sockets = match self.sockets.take() {
            Some(sockets) => sockets,
            None => Sockets::beside(&self.config.file)?,
        };
        Ok(self.sockets.insert(sockets))
    }
}

/// Why jobs were not done.
enum BatchFailure {
    /// The file cannot be opened.
    NotOpened(Fault),
    /// The transaction failed.
    InUse(rusqlite::Error),
}

impl BatchFailure {
    /// True if every job on its own would have met the same.
    fn concerns_all(&self) -> bool {
        match self {
            Self::NotOpened(_) => true,
            Self::InUse(error) => error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy),
        }
    }

    fn fault(&self, config: &SqliteConfig, action: &'static str) -> Fault {
        match self {
            Self::NotOpened(fault) => fault.clone(),
            Self::InUse(error) => faults::fault(action, &config.file, error),
        }
    }
}
