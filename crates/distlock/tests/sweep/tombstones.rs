//! A store that remembers which claims were given up, or one that does not.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Memory;
use distlock_core::{
    Answer, Ask, Backend, Capabilities, Cursor, Fault, Health, Key, Page, Pending, Push,
    ReleaseOptions, ReleaseOutcome, Renewal, Snapshot, Standing, Streaming, Target,
};

/// What becomes of the claims that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Graves {
    /// An acquire that arrives late is refused, as promised.
    Kept,
    /// The planted bug: it takes the lock.
    Forgotten,
}

impl Graves {
    pub(crate) fn client(self, store: &Memory) -> Arc<dyn Backend> {
        match self {
            Self::Kept => Arc::new(store.client()),
            Self::Forgotten => Arc::new(Forgetful(store.client())),
        }
    }
}

#[derive(Debug)]
struct Forgetful(Memory);

impl Backend for Forgetful {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn location(&self) -> &str {
        self.0.location()
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        self.0.acquire(ask)
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        self.0.renew(batch)
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        self.0.release(target, ReleaseOptions { bury: Duration::ZERO, ..how })
    }

    fn confirm<'a>(
        &'a self,
        renewal: &'a Renewal,
        replicas: u32,
    ) -> Pending<'a, distlock_core::Confirmed> {
        self.0.confirm(renewal, replicas)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        self.0.inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        self.0.list(prefix, cursor)
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn drain(&self) -> Pending<'_, ()> {
        self.0.drain()
    }

    fn probe(&self) -> Pending<'_, Health> {
        self.0.probe()
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        self.0.pushes()
    }
}
