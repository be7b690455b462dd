//! The promises of every backend, kept by quorums of three and five.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Memory, Quorum, QuorumOptions, Sqlite};
use distlock::{Backend, ManualClock};
use distlock_core::TTL_MAX;
use distlock_testkit::conformance::Subject;
use distlock_testkit::servers::TempFolder;

use crate::support::{Servers, named};

/// The kit asks for the longest lease there is, and may be run on a busy machine.
fn options() -> QuorumOptions {
    QuorumOptions::default().max_ttl(TTL_MAX).node_timeout(Duration::from_secs(20))
}

struct Memories {
    clock: ManualClock,
    stores: Vec<Memory>,
}

impl Memories {
    fn new(count: usize) -> Self {
        let clock = ManualClock::new();
        let store = || Memory::with_clock(Arc::new(clock.clone()));
        let stores = std::iter::repeat_with(store).take(count).collect();
        Self { clock, stores }
    }
}

impl Subject for Memories {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let node = |store: &Memory| Arc::new(store.client()) as Arc<dyn Backend>;
        let quorum = Quorum::with_options(named(self.stores.iter().map(node)), options()).unwrap();
        Box::pin(async { Arc::new(quorum) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.clock.advance(while_) })
    }
}

/// Files as nodes, each on a clock that all of them share.
struct Files {
    clock: ManualClock,
    folders: Vec<TempFolder>,
}

impl Files {
    fn new(count: usize) -> Self {
        let folders = std::iter::repeat_with(TempFolder::new).take(count).collect();
        Self { clock: ManualClock::new(), folders }
    }
}

impl Subject for Files {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let node = |folder: &TempFolder| {
            let (file, clock) = (folder.path().join("locks.db"), Arc::new(self.clock.clone()));
            Arc::new(Sqlite::with_clock(&file, "one", clock).unwrap()) as Arc<dyn Backend>
        };
        let nodes = named(self.folders.iter().map(node));
        let quorum = Quorum::with_options(nodes, options()).unwrap();
        Box::pin(async { Arc::new(quorum) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.clock.advance(while_) })
    }
}

impl Subject for Servers {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let quorum = self.quorum(options());
        Box::pin(async { Arc::new(quorum) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.iter().for_each(|server| server.pass(while_)) })
    }
}

distlock_testkit::conformance!(three_memories, super::super::Memories::new(3));
distlock_testkit::conformance_in_a_row!(five_memories, super::super::Memories::new(5));
distlock_testkit::conformance_in_a_row!(three_files, super::super::Files::new(3));
distlock_testkit::conformance_in_a_row!(three_servers, super::super::Servers::start(3));
distlock_testkit::conformance_in_a_row!(five_servers, super::super::Servers::start(5));
