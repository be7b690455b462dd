//! Every store proves itself with the conformance kit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Memory, Redis};
use distlock_core::{Backend, ManualClock};
use distlock_testkit::conformance::Subject;
use distlock_testkit::servers::RedisServer;

struct MemorySubject {
    clock: ManualClock,
    store: Memory,
}

impl MemorySubject {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Memory::with_clock(Arc::new(clock.clone()));
        Self { clock, store }
    }
}

impl Subject for MemorySubject {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        Box::pin(async { Arc::new(self.store.client()) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.clock.advance(while_) })
    }
}

struct RedisSubject {
    server: RedisServer,
}

impl RedisSubject {
    fn new() -> Self {
        Self { server: RedisServer::start() }
    }
}

impl Subject for RedisSubject {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let client = Redis::open(&self.server.url()).expect("the URL is valid");
        Box::pin(async { Arc::new(client) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.server.pass(while_) })
    }
}

distlock_testkit::conformance!(redis, RedisSubject::new());
distlock_testkit::conformance!(memory, MemorySubject::new());
