//! Every store proves itself with the conformance kit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Memory, Redis, Sqlite};
use distlock_core::{Backend, ManualClock};
use distlock_testkit::conformance::Subject;
use distlock_testkit::servers::{RedisCluster, RedisSentinel, RedisServer, TempFolder};

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

/// A file, and as many clients of it as a promise wants.
struct SqliteSubject {
    clock: ManualClock,
    folder: TempFolder,
}

impl SqliteSubject {
    fn new() -> Self {
        Self { clock: ManualClock::new(), folder: TempFolder::new() }
    }
}

impl Subject for SqliteSubject {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let (file, clock) = (self.folder.path().join("locks.db"), Arc::new(self.clock.clone()));
        let client = Sqlite::with_clock(&file, "one", clock).expect("there are random bytes");
        Box::pin(async { Arc::new(client) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.clock.advance(while_) })
    }
}

/// A store behind a URL, with real servers behind that.
struct Served<S> {
    servers: S,
    url: String,
    pass: fn(&S, Duration),
}

impl<S: Send + Sync> Subject for Served<S> {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let client = Redis::open(&self.url).expect("the URL is valid");
        Box::pin(async { Arc::new(client) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { (self.pass)(&self.servers, while_) })
    }
}

fn redis() -> Served<RedisServer> {
    let servers = RedisServer::start();
    Served { url: servers.url(), servers, pass: RedisServer::pass }
}

/// Keys as other lock libraries write them.
fn bare() -> Served<RedisServer> {
    let servers = RedisServer::start();
    Served { url: format!("{}?namespace=", servers.url()), servers, pass: RedisServer::pass }
}

fn valkey() -> Served<RedisServer> {
    let servers = RedisServer::valkey();
    Served { url: servers.url(), servers, pass: RedisServer::pass }
}

fn without_functions(servers: RedisServer) -> Served<RedisServer> {
    servers.deny_functions();
    Served { url: servers.url(), servers, pass: RedisServer::pass }
}

/// The same library as scripts.
fn scripts() -> Served<RedisServer> {
    without_functions(RedisServer::start())
}

fn valkey_scripts() -> Served<RedisServer> {
    without_functions(RedisServer::valkey())
}

fn sentinel() -> Served<RedisSentinel> {
    let servers = RedisSentinel::start();
    Served { url: servers.url(), servers, pass: |servers, d| servers.primary.pass(d) }
}

fn cluster() -> Served<RedisCluster> {
    let servers = RedisCluster::start();
    Served { url: servers.url(), servers, pass: RedisCluster::pass }
}

distlock_testkit::conformance!(redis, super::super::redis());
distlock_testkit::conformance_in_a_row!(redis_bare, super::super::bare());
distlock_testkit::conformance_in_a_row!(redis_scripts, super::super::scripts());
distlock_testkit::conformance_in_a_row!(valkey, super::super::valkey());
distlock_testkit::conformance_in_a_row!(valkey_scripts, super::super::valkey_scripts());
distlock_testkit::conformance_in_a_row!(redis_sentinel, super::super::sentinel());
distlock_testkit::conformance_in_a_row!(redis_cluster, super::super::cluster());
distlock_testkit::conformance!(memory, MemorySubject::new());
distlock_testkit::conformance!(sqlite, SqliteSubject::new());
