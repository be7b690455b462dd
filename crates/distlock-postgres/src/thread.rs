//! The thread on which everything of one client runs.

use std::io;
use std::sync::Mutex;
use std::thread;

use distlock_core::Fault;
use distlock_core::sync::lock;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A runtime on a thread of its own. So no call depends on a runtime of a caller, which may not be
/// polled, be blocked, or end.
#[derive(Debug, Default)]
pub(super) struct PostgresThread {
    running: Mutex<Option<RunningThread>>,
}

#[derive(Debug)]
struct RunningThread {
    handle: Handle,
    /// Dropped with this value, which ends the thread.
    _until: oneshot::Sender<()>,
    /// A fork of this process has a copy of this value, but not the thread.
    process: u32,
}

impl PostgresThread {
    /// The runtime, started if it does not run.
    pub(super) fn handle(&self, action: &'static str) -> Result<Handle, Fault> {
        let mut running = lock(&self.running);
        let process = std::process::id();
        match &*running {
            Some(known) if known.process != process => {
                let why = "this process was forked from the one that connected: connect again";
                return Err(Fault::permanent(action, why));
            }
            Some(known) => return Ok(known.handle.clone()),
            None => {}
        }
        let started = start().map_err(|error| Fault::transient(action, error))?;
        Ok(running.insert(started).handle.clone())
    }
}

fn start() -> io::Result<RunningThread> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (until, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("distlock-postgres".to_owned()).spawn(move || {
        // Never sent to: it ends when the last handle of the client is dropped.
        let _ = runtime.block_on(ended);
        runtime.shutdown_background();
    })?;
    Ok(RunningThread { handle, _until: until, process: std::process::id() })
}
