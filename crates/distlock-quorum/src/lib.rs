#![doc = include_str!("../README.md")]

mod acquire;
mod claims;
mod config;
mod journal;
mod known_fences;
mod late_calls;
mod liveness;
mod look;
mod mark;
mod members;
mod node;
mod options;
mod pending_releases;
mod release;
mod renew;
mod round;
mod set;
mod shared_work;
mod vote;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::{
    Answer, Ask, Backend, Background, Capabilities, Claim, ClaimId, Cursor, Extensions, Fault,
    Health, Invalid, Key, Order, Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal,
    Snapshot, Standing, Streaming, Target,
};
use futures_util::stream;
use tokio::time::Instant;

use self::claims::Claims;
pub use self::config::{OpenedNode, open};
use self::known_fences::KnownFences;
use self::late_calls::LateCalls;
use self::mark::Charter;
use self::node::QuorumNode;
pub use self::options::QuorumOptions;
use self::set::NodeSet;
use self::shared_work::SharedWork;
use self::vote::QuorumSize;

/// The smallest quorum: with two nodes the failure of either stops everything.
const NODES_MIN: usize = 3;

/// The largest quorum. More nodes cost more and make nothing safer.
const NODES_MAX: usize = 31;

/// How long an ask that no caller waits for any more can still arrive at a node.
const BURY_FOR: Duration = Duration::from_secs(60);

/// The shortest time that a node is given to answer, however short the ttl.
const PATIENCE_MIN: Duration = Duration::from_millis(100);

/// Locks on several independent stores, of which a majority decides: they survive the failure of
/// the rest. Clones are the same client.
///
/// A lock is held when a majority of the nodes has granted it within its validity. Fences grow
/// over any sequence of majorities, so they can be relied upon where the lock alone cannot. What a
/// quorum cannot do it refuses: waiting in line, semaphores, and orders that need a line; see
/// the page `quorum` of distlock's guide.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::sync::Arc;
/// use distlock::backends::{Memory, Quorum};
/// use distlock::{Backend, Locks};
///
/// let node = |name: &str| (name.to_owned(), Arc::new(Memory::new()) as Arc<dyn Backend>);
/// let quorum = Quorum::new([node("a"), node("b"), node("c")])?;
/// let locks = Locks::new(Arc::new(quorum));
/// let guard = locks.mutex("deploy/prod")?.lock().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Quorum {
    inner: Arc<QuorumInner>,
}

/// What became of a release on the nodes of a quorum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReleaseReport {
    /// How many nodes there are.
    pub total: usize,
    /// How many acknowledged that the claim is no longer there.
    pub released: usize,
    /// True if those are a majority, so that the lock is free for others.
    pub quorum: bool,
    /// What the others said. There it is repeated in the background, or the claim ends with its
    /// lease.
    pub faults: Vec<(String, Fault)>,
}

struct QuorumInner {
    names: Vec<String>,
    /// All of them in one text.
    location: String,
    nodes: Vec<QuorumNode>,
    size: QuorumSize,
    options: QuorumOptions,
    capabilities: Capabilities,
    charter: Charter,
    claims: Claims,
    late_calls: LateCalls,
    /// The largest fence seen.
    seen: AtomicU64,
    told: KnownFences,
    joined: AtomicBool,
    joining: SharedWork,
    /// Since when it is in doubt whether there is a quorum already.
    in_doubt_since: Mutex<Option<Instant>>,
}

impl Quorum {
    /// A quorum of named nodes, at least three. All clients must give the same names to the same
    /// nodes. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if there are fewer than three nodes, or two have the same name.
    pub fn new(
        nodes: impl IntoIterator<Item = (String, Arc<dyn Backend>)>,
    ) -> Result<Self, Invalid> {
        Self::with_options(nodes, QuorumOptions::default())
    }

    /// A quorum of named nodes with options.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and if an option is out of range.
    pub fn with_options(
        nodes: impl IntoIterator<Item = (String, Arc<dyn Backend>)>,
        options: QuorumOptions,
    ) -> Result<Self, Invalid> {
        options.check()?;
        let (names, stores): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        if names.len() < NODES_MIN || names.len() > NODES_MAX {
            return Err(Invalid::new("number of nodes", names.len(), "must be between 3 and 31"));
        }
        for (index, name) in names.iter().enumerate() {
            let same = |at: usize| names[at] == *name || Arc::ptr_eq(&stores[at], &stores[index]);
            if (0..index).any(same) {
                return Err(Invalid::new("node", name, "is listed twice"));
            }
        }
        if let Some(index) = stores.iter().position(|store| !store.capabilities().fencing) {
            let why = "has no fences, without which a quorum is not safe";
            return Err(Invalid::new("node", &names[index], why));
        }
        if names.len().is_multiple_of(2) {
            tracing::warn!(nodes = names.len(), "{}", look::EVEN);
        }
        let size = QuorumSize(names.len());
        let capabilities = capabilities(&stores);
        let charter = Charter::new(&names, &options);
        let silent_after = options.node_timeout / 2;
        Ok(Self {
            inner: Arc::new(QuorumInner {
                location: format!("quorum of {}", names.join(", ")),
                names,
                nodes: stores
                    .into_iter()
                    .map(|store| QuorumNode::new(store, silent_after))
                    .collect(),
                size,
                options,
                capabilities,
                charter,
                claims: Claims::default(),
                late_calls: LateCalls::default(),
                seen: AtomicU64::new(0),
                told: KnownFences::new(size),
                joined: AtomicBool::new(false),
                joining: SharedWork::default(),
                in_doubt_since: Mutex::default(),
            }),
        })
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.inner.size.0
    }

    /// How many nodes make a majority.
    pub fn majority(&self) -> usize {
        self.inner.size.majority()
    }

    /// Releases a claim on every node, waits for each of them, and tells what became of it: for
    /// those who want to know more than whether the lock is free, which
    /// `Guard::release` tells as soon as a majority has answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the claim released on some nodes and not on others: call it
    /// again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// # use std::sync::Arc;
    /// # use distlock::backends::{Memory, Quorum};
    /// # use distlock::{Backend, Locks};
    /// # let node = |name: &str| (name.to_owned(), Arc::new(Memory::new()) as Arc<dyn Backend>);
    /// let quorum = Quorum::new([node("a"), node("b"), node("c")])?;
    /// let locks = Locks::new(Arc::new(quorum.clone()));
    /// let lease = locks.mutex("import")?.lock().await?.into_lease();
    /// let report = quorum.release_everywhere(lease.key(), lease.id()).await;
    /// assert_eq!((report.total, report.released, report.quorum), (3, 3, true));
    /// # Ok(()) }
    /// ```
    pub async fn release_everywhere(&self, key: &Key, id: ClaimId) -> ReleaseReport {
        let target = Target::Claim(Claim::new(key.clone(), id));
        self.inner.release_everywhere(&target).await
    }
}

impl QuorumInner {
    /// How long to wait for the nodes when this lease is asked for: at most half of it, so that
    /// whatever comes of it can be used for a while, or there is time for another attempt.
    fn patience(&self, ttl: Duration) -> Duration {
        self.options.node_timeout.min((ttl / 2).max(PATIENCE_MIN))
    }

    /// All nodes.
    fn all(&self) -> NodeSet {
        NodeSet::first(self.size.0)
    }

    /// Those of the nodes that are asked only if the others do not suffice.
    fn silent(&self, nodes: NodeSet, now: Instant) -> NodeSet {
        nodes.iter().filter(|node| self.nodes[*node].liveness.is_silent(now)).collect()
    }

    /// The nodes that were silent when they were last asked. After [`silent`](Self::silent), which
    /// notices that a node has become one of them.
    fn suspects(&self) -> NodeSet {
        (0..self.size.0).filter(|node| self.nodes[*node].liveness.is_suspect()).collect()
    }

    /// Refuses leases that could outlive the quarantine of a node that forgot them.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Fault> {
        if ttl <= self.options.max_ttl {
            return Ok(());
        }
        let why = format!("a ttl of {ttl:?} is longer than max_ttl, {:?}", self.options.max_ttl);
        Err(Fault::permanent("ask a quorum", why))
    }

    /// True if a fence of this size can be given out without telling the nodes first.
    fn has_told(&self, fence: u64) -> bool {
        self.capabilities.one_counter || fence <= self.told.by_majority()
    }
}

impl fmt::Debug for QuorumInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("nodes", &self.names).finish_non_exhaustive()
    }
}

/// What a majority of these stores can decide.
fn capabilities(stores: &[Arc<dyn Backend>]) -> Capabilities {
    let all =
        |has: fn(&Capabilities) -> bool| stores.iter().all(|store| has(&store.capabilities()));
    let mut offered = Capabilities::ALL;
    offered.queue = false;
    offered.push = false;
    offered.push_breaks = false;
    offered.counting = false;
    offered.sharing = all(|c| c.sharing && c.orders.contains(&Order::PreferReaders));
    offered.orders = if offered.sharing { &[Order::PreferReaders] } else { &[] };
    offered.groups = all(|c| c.groups);
    offered.reentry = false;
    offered.downgrade = all(|c| c.downgrade);
    offered.listing = false;
    offered.durability = false;
    offered.one_counter = all(|c| c.one_counter);
    offered.witness = false;
    offered
}

/// Microseconds since 1970: where fences start.
fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

impl Backend for Quorum {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(self.inner.acquire(ask))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        self.inner.renew(batch)
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(self.inner.release(target, how))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        Box::pin(self.inner.inspect(key))
    }

    fn list<'a>(&'a self, _: &'a str, _: Option<&'a Cursor>) -> Pending<'a, Page> {
        Box::pin(async { Err(Fault::unsupported("listing: list the keys of the nodes")) })
    }

    fn probe(&self) -> Pending<'_, Health> {
        Box::pin(self.inner.probe())
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        Box::pin(stream::pending())
    }

    fn extensions(&self) -> Extensions<'_> {
        // The nodes have epochs of their own: what one of them forgets, the others know.
        Extensions { background: Some(self), ..Extensions::at(&self.inner.location) }
    }
}

impl Background for Quorum {
    fn drain(&self) -> Pending<'_, ()> {
        Box::pin(self.inner.drain())
    }
}
