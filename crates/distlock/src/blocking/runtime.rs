//! The runtime behind all blocking locks of a process, and how a thread waits for a call on it.

use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use distlock_core::Fault;
use distlock_core::sync::lock;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::coop;

use crate::Error;

/// The runtime, while any blocking lock uses it.
static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// More resources than a task may use before it has to yield.
const BUDGET_MAX: usize = 1024;

/// The runtime that serves network and timers of blocking calls. It runs as long as any clone.
#[derive(Clone, Debug)]
pub(super) struct BlockingRuntime(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    runtime: Option<Runtime>,
    /// A child made by fork has this value, but not the threads of the runtime.
    process: u32,
}

impl BlockingRuntime {
    /// The runtime, started if it does not run.
    pub(super) fn enter() -> Result<Self, Error> {
        let mut shared = lock(&SHARED);
        let process = std::process::id();
        if let Some(running) = shared.upgrade().filter(|running| running.process == process) {
            return Ok(Self(running));
        }
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("distlock-blocking").enable_all();
        let runtime = builder
            .build()
            .map_err(|error| Error::Backend(Fault::transient("start a runtime", error)))?;
        let started = Arc::new(Shared { runtime: Some(runtime), process });
        *shared = Arc::downgrade(&started);
        Ok(Self(started))
    }

    /// Runs a call to its end on this thread.
    ///
    /// Polls here instead of in [`Runtime::block_on`], which panics where a thread must not block.
    pub(super) fn wait<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        if must_not_block() {
            return Err(Error::AsyncContext);
        }
        if self.0.process != std::process::id() {
            return Self::enter()?.wait(call);
        }
        let _entered = self.0.runtime.as_ref().map(Runtime::enter);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut call = pin!(call);
        loop {
            match call.as_mut().poll(&mut cx) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.process == std::process::id() {
            // Dropping a runtime waits for its threads, and panics inside another one.
            runtime.shutdown_background();
        } else {
            std::mem::forget(runtime);
        }
    }
}

/// Wakes a thread that waits for a call.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// True on a thread that is polling a task of a tokio runtime, and on one that has torn down its
/// thread-local state.
///
/// Threads of `spawn_blocking` and `block_in_place` belong to a runtime, too. What tells them apart
/// is the budget: tokio gives one to every poll of a task and none to code that may block. Finding
/// the end of a budget uses it up, which makes the task yield a little sooner.
fn must_not_block() -> bool {
    match Handle::try_current() {
        Err(missing) => missing.is_thread_local_destroyed(),
        Ok(_) => {
            let mut cx = Context::from_waker(Waker::noop());
            (0..BUDGET_MAX).any(|_| match coop::poll_proceed(&mut cx) {
                Poll::Ready(used) => {
                    used.made_progress();
                    false
                }
                Poll::Pending => true,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_blocking_locks_share_one_runtime() {
        let (one, two) = (BlockingRuntime::enter().unwrap(), BlockingRuntime::enter().unwrap());
        assert!(Arc::ptr_eq(&one.0, &two.0));
    }

    #[test]
    fn a_thread_may_block_unless_it_polls_a_task() {
        assert!(!must_not_block(), "a plain thread");
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            assert!(must_not_block(), "block_on");
            let blocking = tokio::task::spawn_blocking(must_not_block).await.unwrap();
            assert!(!blocking, "spawn_blocking");
            let task = tokio::spawn(async { must_not_block() }).await.unwrap();
            assert!(task, "a task");
            let inside = tokio::spawn(async { tokio::task::block_in_place(must_not_block) });
            assert!(!inside.await.unwrap(), "block_in_place");
        });
        let _entered = runtime.enter();
        assert!(!must_not_block(), "a thread that has entered a runtime");
    }
}
