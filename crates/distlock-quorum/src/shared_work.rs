//! Work that several callers wait for, run by a task and not by one of the callers.
//!
//! A caller can be dropped or left unpolled at any await. If it did the work itself under a lock,
//! every other caller would wait for it. So the work runs in a task, and callers only wait for its
//! outcome. Each runtime has a task of its own: one that is blocked delays no caller of another.

use std::sync::Mutex;
use std::time::Duration;

use distlock_core::Fault;
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;
use tokio::time::timeout;

use distlock_core::sync::lock;

type SharedOutcome = Option<Result<(), Fault>>;

/// One kind of work, of which at most one run is in flight per runtime.
#[derive(Debug, Default)]
pub(super) struct SharedWork {
    in_flight: Mutex<Vec<(Id, watch::Receiver<SharedOutcome>)>>,
}

impl SharedWork {
    /// Waits for the run in flight, or starts one, for at most `deadline`.
    pub(super) async fn run<F>(
        &self,
        deadline: Duration,
        start: impl FnOnce() -> F,
    ) -> Result<(), Fault>
    where
        F: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let runtime = Handle::try_current().map_err(|e| Fault::permanent("ask a quorum", e))?;
        let mut outcome = self.join_or_start(&runtime, start);
        // The copy must end before the next await: it holds the lock of the channel.
        let ended = timeout(deadline, async {
            outcome.wait_for(Option::is_some).await.map(|ended| (*ended).clone())
        });
        match ended.await {
            Ok(Ok(ended)) => ended.unwrap_or(Ok(())),
            // Its runtime shuts down, or it panicked: the next call starts another run.
            Ok(Err(closed)) => Err(Fault::transient("look at the nodes", closed)),
            Err(elapsed) => Err(Fault::transient("look at the nodes", elapsed)),
        }
    }

    fn join_or_start<F>(
        &self,
        runtime: &Handle,
        start: impl FnOnce() -> F,
    ) -> watch::Receiver<SharedOutcome>
    where
        F: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let mut in_flight = lock(&self.in_flight);
        in_flight.retain(|(_, run)| run.borrow().is_none() && run.has_changed().is_ok());
        if let Some((_, run)) = in_flight.iter().find(|(id, _)| *id == runtime.id()) {
            return run.clone();
        }
        let (ends, outcome) = watch::channel(None);
        in_flight.push((runtime.id(), outcome.clone()));
        drop(in_flight); // A runtime that shuts down drops the task at once.
        let work = start();
        runtime.spawn(async move {
            let ended = work.await;
            ends.send_replace(Some(ended));
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn callers_share_a_run_and_the_next_one_starts_another() {
        let (work, runs) = (SharedWork::default(), Arc::new(AtomicU32::new(0)));
        let call = || {
            work.run(3 * SECOND, || {
                let runs = Arc::clone(&runs);
                async move {
                    sleep(SECOND).await;
                    runs.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
            })
        };
        for expected in [1, 2] {
            join_all((0..9).map(|_| call())).await.into_iter().for_each(Result::unwrap);
            assert_eq!(runs.load(Ordering::Relaxed), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_wait_no_longer_than_their_deadline() {
        let work = SharedWork::default();
        let late = work.run(SECOND, std::future::pending).await.unwrap_err();
        assert!(late.is_transient(), "{late}");
    }

    #[test]
    fn a_runtime_that_is_not_polled_delays_no_other() {
        let work = SharedWork::default();
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().build().unwrap()
        };
        let (idle, busy) = (runtime(), runtime());
        let started = idle.block_on(async {
            timeout(Duration::ZERO, work.run(9 * SECOND, std::future::pending)).await
        });
        assert!(started.is_err(), "the run is in flight");
        busy.block_on(work.run(9 * SECOND, || async { Ok(()) })).unwrap();
    }
}
