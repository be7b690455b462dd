//! The thread of its own that keepers run on: one for the whole process.
//!
//! A caller's runtime may be blocked, left unpolled or dropped while locks are held. None of that
//! may cost a lease, so what keeps leases alive does not depend on any caller.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use distlock_core::sync::lock;

/// The thread, while any keeper runs.
static THREAD: Mutex<Option<KeeperThread>> = Mutex::new(None);

#[derive(Debug)]
struct KeeperThread {
    runtime: Handle,
    /// Ends the thread.
    end: Arc<Notify>,
    /// How many keepers run on it.
    users: usize,
    /// The process that started it: a child made by fork has this value, but not the thread.
    process: u32,
}

/// The runtime of the thread. The thread runs at least as long as this value exists.
#[derive(Debug)]
pub(super) struct OnThread {
    pub(super) runtime: Handle,
    end: Arc<Notify>,
}

impl OnThread {
    /// The thread, started if it does not run.
    pub(super) fn enter() -> io::Result<Self> {
        let mut thread = lock(&THREAD);
        if thread.as_ref().is_some_and(|thread| thread.process != std::process::id()) {
            *thread = None;
        }
        let thread = match &mut *thread {
            Some(thread) => thread,
            none => none.insert(KeeperThread::start()?),
        };
        thread.users += 1;
        Ok(Self { runtime: thread.runtime.clone(), end: Arc::clone(&thread.end) })
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        let mut thread = lock(&THREAD);
        // After a fork there may be another thread by now, which this value does not belong to.
        if let Some(own) = thread.as_mut().filter(|own| Arc::ptr_eq(&own.end, &self.end)) {
            own.users -= 1;
            if own.users == 0 {
                own.end.notify_one();
                *thread = None;
            }
        }
    }
}

impl KeeperThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let ended = Arc::clone(&end);
        let thread = std::thread::Builder::new().name("distlock".to_owned());
        thread.spawn(move || runtime.block_on(ended.notified()))?;
        Ok(Self { runtime: handle, end, users: 0, process: std::process::id() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_thread_is_there_while_anything_uses_it_and_then_gone() {
        let first = OnThread::enter().unwrap();
        let second = OnThread::enter().unwrap();
        assert_eq!(first.runtime.id(), second.runtime.id(), "there is one thread");
        let (tell, told) = std::sync::mpsc::channel();
        let name = async move { tell.send(std::thread::current().name().map(str::to_owned)) };
        let _task = second.runtime.spawn(name);
        assert_eq!(told.recv().unwrap().as_deref(), Some("distlock"));
        let runtime = first.runtime.clone();
        drop((first, second));
        let dropped = runtime.spawn(std::future::pending::<()>());
        let began = Instant::now();
        while !dropped.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(10), "the thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
