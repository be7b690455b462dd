//! Nodes to make quorums of: real servers, and memories that can forget.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distlock::backends::{Memory, Quorum, QuorumOptions, Redis};
use distlock::clock::TokioClock;
use distlock::{Backend, Capabilities, Clock, Cursor, Fault, Health, Key, Locks, Page, Snapshot};
use distlock_core::{
    Answer, Ask, Extensions, Pending, Push, Reconnecting, ReleaseOptions, ReleaseOutcome, Renewal,
    Standing, Streaming, Target,
};
use distlock_testkit::servers::RedisServer;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;

/// Gives nodes names by their sequence.
pub(crate) fn named(
    nodes: impl Iterator<Item = Arc<dyn Backend>>,
) -> Vec<(String, Arc<dyn Backend>)> {
    nodes.enumerate().map(|(index, node)| (format!("node-{index}"), node)).collect()
}

/// Redis servers of a test's own.
pub(crate) struct Servers(Vec<RedisServer>);

impl Servers {
    pub(crate) fn start(count: usize) -> Self {
        Self((0..count).map(|_| RedisServer::start()).collect())
    }

    /// A client of the quorum of all of them.
    pub(crate) fn quorum(&self, options: QuorumOptions) -> Quorum {
        // A node gives up when the quorum does, not before.
        let patience = options.node_timeout.as_millis();
        let node = |server: &RedisServer| {
            let url = format!("{}?response_timeout_ms={patience}", server.url());
            Arc::new(Redis::open(&url).unwrap()) as Arc<dyn Backend>
        };
        Quorum::with_options(named(self.0.iter().map(node)), options).unwrap()
    }
}

impl Deref for Servers {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut [RedisServer] {
        &mut self.0
    }
}

/// A memory that can be out of reach or hang, and that can forget. All its clients share it.
#[derive(Debug)]
pub(crate) struct Mortal {
    clock: Arc<dyn Clock>,
    life: Mutex<Life>,
    hangs: watch::Sender<bool>,
    /// How often a client tried to reach it.
    calls: AtomicU64,
}

#[derive(Debug)]
struct Life {
    store: Arc<Memory>,
    epoch: u64,
    down: bool,
}

impl Mortal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let store = Arc::new(Memory::with_clock(Arc::clone(&clock)));
        let life = Mutex::new(Life { store, epoch: 0, down: false });
        let (hangs, calls) = (watch::Sender::new(false), AtomicU64::new(0));
        Arc::new(Self { clock, life, hangs, calls })
    }

    /// Whatever it is asked it answers when it hangs no more.
    pub(crate) fn set_hanging(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// How often a client has tried to reach it so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.life().down = down;
    }

    /// Starts again with nothing in mind.
    pub(crate) fn forget(&self) {
        let mut life = self.life();
        life.store = Arc::new(Memory::with_clock(Arc::clone(&self.clock)));
        life.epoch += 1;
    }

    /// Loses everything without restarting: connected clients are not told.
    pub(crate) fn flush(&self) {
        self.life().store = Arc::new(Memory::with_clock(Arc::clone(&self.clock)));
    }

    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap()
    }

    async fn store(&self) -> Result<Arc<Memory>, Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.hangs.subscribe().wait_for(|hangs| !hangs).await.unwrap();
        let life = self.life();
        match life.down {
            true => Err(Fault::transient("reach the node", "it is down")),
            false => Ok(Arc::clone(&life.store)),
        }
    }
}

impl Backend for Mortal {
    fn capabilities(&self) -> Capabilities {
        self.life().store.capabilities()
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move { self.store().await?.acquire(ask).await })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        Box::pin(stream::iter(batch.iter().enumerate()).then(move |(index, renewal)| async move {
            let store = match self.store().await {
                Ok(store) => store,
                Err(fault) => return (index, Err(fault)),
            };
            let one = [renewal.clone()];
            let answer = store.renew(&one).next().await;
            (index, answer.map_or_else(|| Ok(Standing::Gone), |(_, standing)| standing))
        }))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(async move { self.store().await?.release(target, how).await })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        Box::pin(async move { self.store().await?.inspect(key).await })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        Box::pin(async move { self.store().await?.list(prefix, cursor).await })
    }

    fn probe(&self) -> Pending<'_, Health> {
        Box::pin(async move { self.store().await?.probe().await })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        Box::pin(stream::pending())
    }

    fn extensions(&self) -> Extensions<'_> {
        let store = Extensions::at("a mortal store");
        Extensions { reconnecting: Some(self), ..store }
    }
}

impl Reconnecting for Mortal {
    fn epoch(&self) -> u64 {
        self.life().epoch
    }
}

/// Nodes on the runtime's clock.
pub(crate) fn mortals(count: usize) -> Vec<Arc<Mortal>> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    (0..count).map(|_| Mortal::new(Arc::clone(&clock))).collect()
}

pub(crate) fn quorum_of(nodes: &[Arc<Mortal>]) -> Quorum {
    Quorum::new(named(nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Backend>))).unwrap()
}

/// Another client of the quorum of these nodes, on the runtime's clock.
pub(crate) fn locks_of(nodes: &[Arc<Mortal>]) -> Locks {
    Locks::with_clock(Arc::new(quorum_of(nodes)), Arc::new(TokioClock::new()))
}
