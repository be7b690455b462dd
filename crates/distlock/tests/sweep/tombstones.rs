//! A store that remembers which claims were given up, or one that does not.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Memory;
use distlock_core::{Backend, Pending, ReleaseOptions, ReleaseOutcome, Target};

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
    distlock_testkit::forward_backend!(
        0: capabilities, acquire, renew, inspect, list, probe, pushes, extensions
    );

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        self.0.release(target, ReleaseOptions { bury: Duration::ZERO, ..how })
    }
}
