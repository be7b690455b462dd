//! Where the task of a keeper runs, and how it is started or moved.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use distlock_core::{Fault, Moment};
use tokio::runtime::{self, Handle};
use tokio::task::JoinHandle;

use super::task::TaskSuccessor;
use super::thread::OnThread;
use super::{Keeper, task};
use crate::Error;
use distlock_core::sync::lock;

/// How late the task may be before it counts as stuck: its runtime exists but does not turn.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// How many runtimes are remembered.
const HOMES_MAX: usize = 4;

/// Where the task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// On the library's own thread.
    Thread,
    /// On the runtimes of callers.
    Callers,
}

/// The task, if one runs.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) handle: Option<JoinHandle<()>>,
    /// Counts the tasks; one that finds a newer number ends.
    pub(super) generation: u64,
    /// The runtimes that were used last, the latest at the end: where to move if one ends.
    homes: Vec<Handle>,
}

impl Task {
    pub(super) fn is_running(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| !handle.is_finished())
    }

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
    /// Makes sure that a task is there to look after what is about to be asked for. Returns the
    /// present.
    pub(crate) fn start(self: &Arc<Self>) -> Result<Moment, Error> {
        match self.home {
            Home::Thread => self.start_on_thread(),
            Home::Callers => self.start_here(),
        }
    }

    fn start_on_thread(self: &Arc<Self>) -> Result<Moment, Error> {
        let task = lock(&self.task);
        if !task.is_running() {
            let thread = OnThread::enter()
                .map_err(|error| Error::Backend(Fault::transient("start a thread", error)))?;
            let runtime = thread.runtime.clone();
            self.run_on(&runtime, Some(thread), task);
        }
        Ok(self.clock.now())
    }

    fn start_here(self: &Arc<Self>) -> Result<Moment, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let mut task = lock(&self.task);
        task.remember(&runtime);
        let now = self.clock.now();
        if !task.is_running() || now > self.table().wake_at.after(STUCK_AFTER) {
            self.run_on(&runtime, None, task);
        }
        Ok(now)
    }

    fn run_on(
        self: &Arc<Self>,
        runtime: &Handle,
        thread: Option<OnThread>,
        mut task: MutexGuard<'_, Task>,
    ) {
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
        // Listening begins before anything is asked, so that no push can be missed in between, and
        // on the runtime of the task, so that it depends on no other.
        let pushes = {
            let _here = runtime.enter();
            self.backend.pushes()
        };
        let successor = TaskSuccessor { keeper: Arc::clone(self), generation, home: runtime.id() };
        let run = task::run(Arc::clone(self), generation, pushes, successor);
        let handle = runtime.spawn(async move {
            run.await;
            drop(thread);
        });
        let mut task = lock(&self.task);
        if task.generation == generation {
            task.handle = Some(handle);
        }
    }

    /// The runtime of a task has ended under it: goes on where the locks were used last.
    pub(super) fn move_from(self: &Arc<Self>, home: runtime::Id, generation: u64) {
        let mut task = lock(&self.task);
        task.homes.retain(|known| known.id() != home);
        if task.generation != generation || self.table().len() == 0 {
            return;
        }
        if let Some(next) = task.homes.last().cloned() {
            self.run_on(&next, None, task);
        }
    }
}

/// Deadlines of callers need a timer, and a timer needs a runtime.
pub(crate) fn needs_runtime() -> Result<(), Error> {
    Handle::try_current().map(|_| ()).map_err(|_| Error::NoRuntime)
}
