//! A cluster of a test's own: three primaries, and a replica for each if asked for.

use std::time::{Duration, Instant};

use super::certificates::{Certificates, ClientCertificates};
use super::redis::{RedisServer, free_port};

/// How long a cluster may take to agree.
const AGREE_MAX: Duration = Duration::from_secs(30);

/// How long nodes have to get to know each other before they are told again.
const MEET_EVERY: Duration = Duration::from_secs(3);

/// The first and last slot of each primary.
const SLOT_RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// What makes a server a node, but for the port on which it talks to the others.
const NODE: &str = "--cluster-enabled yes --cluster-node-timeout 1000 \
                    --repl-diskless-sync-delay 0 --cluster-replica-validity-factor 0 \
                    --cluster-port";

/// Three primaries that share all slots, on free ports of the loopback interface.
#[derive(Debug)]
pub struct RedisCluster {
    primaries: Vec<RedisServer>,
    replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three primaries and waits until they agree.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn start() -> Self {
        Self::joined()
    }

    /// Starts three primaries whose clients and nodes speak TLS, and waits until they agree.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn start_tls(certificates: &Certificates, clients: ClientCertificates) -> Self {
        Self::joined_of(|| tls_node(certificates, clients))
    }

    /// Starts three primaries with a replica each and waits until they agree.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn start_with_replicas() -> Self {
        let mut cluster = Self::joined();
        let (replicas, buses): (Vec<_>, Vec<_>) = SLOT_RANGES.iter().map(|_| node()).unzip();
        cluster.replicas = replicas;
        cluster.replicate(&buses);
        cluster
    }

    fn joined() -> Self {
        Self::joined_of(node)
    }

    fn joined_of(node: impl Fn() -> (RedisServer, u16)) -> Self {
        let (primaries, buses): (Vec<_>, Vec<_>) = SLOT_RANGES.iter().map(|_| node()).unzip();
        for (primary, (first, last)) in primaries.iter().zip(SLOT_RANGES) {
            let (first, last) = (first.to_string(), last.to_string());
            let reply = primary.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            assert!(reply.starts_with("+OK"), "slots are not taken: {reply}");
        }
        let mut meeting = Meeting::default();
        until("the cluster meets", || {
            meeting.of(&primaries[0], primaries.iter().zip(&buses).skip(1));
            is_ok(&primaries[0])
        });
        let cluster = Self { primaries, replicas: Vec::new() };
        cluster.wait_until_ok();
        cluster
    }

    fn replicate(&self, buses: &[u16]) {
        for ((replica, primary), bus) in self.replicas.iter().zip(&self.primaries).zip(buses) {
            let id = reply_text(&primary.command(&["CLUSTER", "MYID"]));
            let mut meeting = Meeting::default();
            until("a replica knows its primary", || {
                meeting.of(primary, std::iter::once((replica, bus)));
                replica.command(&["CLUSTER", "REPLICATE", &id]).starts_with("+OK")
            });
        }
        for replica in &self.replicas {
            until("a replica follows", || {
                replica.command(&["INFO", "replication"]).contains("master_link_status:up")
            });
            until("a replica knows all slots", || is_ok(replica));
        }
        self.wait_until_ok();
    }

    /// Waits until every primary says that all is well.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn wait_until_ok(&self) {
        for primary in &self.primaries {
            until("the cluster agrees", || is_ok(primary));
        }
    }

    /// The primaries.
    pub fn primaries(&mut self) -> &mut [RedisServer] {
        &mut self.primaries
    }

    /// The replicas, in the sequence of their primaries.
    pub fn replicas(&mut self) -> &mut [RedisServer] {
        &mut self.replicas
    }

    /// The URL it answers under.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.primaries.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The URL of a cluster with TLS, without options.
    pub fn tls_url(&self) -> String {
        let hosts: Vec<_> =
            self.primaries.iter().map(|node| format!("127.0.0.1:{}", node.tls_port())).collect();
        format!("rediss-cluster://{}", hosts.join(","))
    }

    /// Lets time pass for all locks, by making everything on all nodes older.
    ///
    /// # Panics
    ///
    /// If a node cannot be reached.
    pub fn pass(&self, while_: Duration) {
        self.primaries.iter().for_each(|node| node.pass(while_));
    }
}

fn is_ok(primary: &RedisServer) -> bool {
    let info = primary.command(&["CLUSTER", "INFO"]);
    info.contains("cluster_state:ok") && info.contains("cluster_size:3")
}

/// Nodes that are to know each other. On a busy machine a handshake may take longer than nodes
/// have patience for it, so it is repeated.
#[derive(Default)]
struct Meeting(Option<Instant>);

impl Meeting {
    fn of<'a>(
        &mut self,
        one: &RedisServer,
        others: impl Iterator<Item = (&'a RedisServer, &'a u16)>,
    ) {
        if self.0.is_some_and(|last| last.elapsed() < MEET_EVERY) {
            return;
        }
        self.0 = Some(Instant::now());
        for (other, bus) in others {
            let (port, bus) = (other.announced_port().to_string(), bus.to_string());
            one.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
    }
}

/// A node and the port on which it talks to the others.
fn node() -> (RedisServer, u16) {
    started_on_some_port(|bus| {
        let args = NODE.split_whitespace().map(str::to_owned).chain([bus.to_string()]);
        RedisServer::try_start(args.collect())
    })
}

/// The same with TLS.
fn tls_node(certificates: &Certificates, clients: ClientCertificates) -> (RedisServer, u16) {
    started_on_some_port(|bus| {
        let bus = bus.to_string();
        let args = "--tls-cluster yes".split_whitespace().chain(NODE.split_whitespace());
        let args: Vec<_> = args.chain([&*bus]).collect();
        RedisServer::try_start_tls(certificates, clients, &args)
    })
}

fn started_on_some_port(start: impl Fn(u16) -> Option<RedisServer>) -> (RedisServer, u16) {
    let start = || {
        let bus = free_port();
        Some((start(bus)?, bus))
    };
    let tries = std::iter::repeat_with(start).take(5);
    tries.flatten().next().expect("a node starts on some ports")
}

/// The text of a bulk reply.
pub(super) fn reply_text(reply: &str) -> String {
    reply.lines().nth(1).unwrap_or_default().trim().to_owned()
}

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < AGREE_MAX, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
