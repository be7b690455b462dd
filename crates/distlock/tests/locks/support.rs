//! A store with several processes on it, all on tokio's paused time.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Memory;
use distlock::clock::TokioClock;
use distlock::{Backend, Error, Fault, Guard, Key, Locks};
use distlock_core::{
    Pending, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Streaming, Target,
};
use distlock_testkit::{Faults, Faulty, Scripted};
use futures_util::StreamExt;
use futures_util::stream;
use tokio::task::JoinHandle;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Lets paused time pass, with everything that is due in it.
pub(crate) async fn pass(while_: Duration) {
    tokio::time::sleep(while_).await;
}

/// One store. Every [`World::locks`] is a process of its own.
pub(crate) struct World {
    clock: Arc<TokioClock>,
    store: Memory,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TokioClock::new());
        Self { store: Memory::with_clock(clock.clone()), clock }
    }

    pub(crate) fn locks(&self) -> Locks {
        self.locks_on(Arc::new(self.store.client()))
    }

    /// A process whose network can be cut.
    pub(crate) fn faulty(&self) -> (Locks, Faulty) {
        let faulty = Faulty::new(Arc::new(self.store.client()), 7, Faults::NONE);
        (self.locks_on(Arc::new(faulty.clone())), faulty)
    }

    /// A process to which the store never answers about renewals of one key.
    pub(crate) fn hung_on(&self, key: &str) -> Locks {
        self.locks_on(Arc::new(Hung {
            inner: self.store.client(),
            key: Key::new(key).unwrap(),
            releases: true,
        }))
    }

    /// The same, and about the release of that key neither.
    pub(crate) fn hung_releasing(&self, key: &str) -> Locks {
        self.locks_on(Arc::new(Hung {
            inner: self.store.client(),
            key: Key::new(key).unwrap(),
            releases: false,
        }))
    }

    fn locks_on(&self, backend: Arc<dyn Backend>) -> Locks {
        Locks::with_clock(backend, self.clock.clone())
    }
}

/// Locks on a store that answers by a script.
pub(crate) fn scripted() -> (Locks, Scripted) {
    let backend = Scripted::new();
    let clock = Arc::new(TokioClock::new());
    (Locks::with_clock(Arc::new(backend.clone()), clock), backend)
}

/// The process of a guard dies: no client renews the hold, no client releases it.
pub(crate) fn crash(guard: Guard) {
    let _ = guard.into_lease();
}

/// Runs a call in a task of its own.
pub(crate) fn go<T: Send + 'static>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> JoinHandle<Result<T, Error>> {
    tokio::spawn(call)
}

/// Waits until so many wait for the key.
pub(crate) async fn queued(locks: &Locks, key: &str, waiters: u64) {
    for _ in 0..100 {
        if locks.inspect(key).await.unwrap().waiters_total == waiters {
            return;
        }
        pass(ms(1)).await;
    }
    panic!("{:?} instead of {waiters} waiters", locks.inspect(key).await);
}

pub(crate) fn is_held<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Held { .. }))
}

pub(crate) fn is_timeout<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Timeout { .. }))
}

pub(crate) fn is_not_held<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::NotHeld { .. }))
}

#[derive(Debug)]
struct Hung {
    inner: Memory,
    key: Key,
    releases: bool,
}

impl Backend for Hung {
    distlock_testkit::forward_backend!(
        inner: capabilities, acquire, inspect, list, probe, pushes, extensions
    );

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let one = |(index, renewal): (usize, &'a Renewal)| {
            if renewal.claim.key == self.key {
                return stream::pending().boxed();
            }
            let answers = self.inner.renew(std::slice::from_ref(renewal));
            answers.map(move |(_, standing)| (index, standing)).boxed()
        };
        stream::iter(batch.iter().enumerate()).flat_map_unordered(None, one).boxed()
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        if !self.releases && *target.key() == self.key {
            return Box::pin(std::future::pending());
        }
        self.inner.release(target, how)
    }
}
