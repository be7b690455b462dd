//! Clients with short times, and hands on the slots of a cluster.

use std::time::{Duration, Instant};

use distlock::{Guard, Locks};
use distlock_testkit::servers::RedisServer;
use tokio::task::JoinHandle;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) async fn pass(while_: Duration) {
    tokio::time::sleep(while_).await;
}

/// A client that waits for a reply for a moment and for its turn for long.
pub(crate) fn locks(url: &str, ttl: Duration, place: Duration) -> Locks {
    patient(url, 400, ttl, place)
}

/// A client that waits for a reply for so long.
pub(crate) fn patient(url: &str, response_ms: u64, ttl: Duration, place: Duration) -> Locks {
    let sep = if url.contains('?') { "&" } else { "?" };
    let url = format!("{url}{sep}response_timeout_ms={response_ms}&connect_timeout_ms=500");
    let locks = Locks::connect(&url).unwrap();
    locks.configure(|o| o.ttl(ttl).place(place).patience(ms(30_000))).unwrap()
}

pub(crate) async fn lock(locks: &Locks, key: &str) -> Guard {
    locks.mutex(key).unwrap().lock().await.unwrap()
}

/// A call that waits for the lock in a task of its own, and when it got it.
pub(crate) fn wait(locks: &Locks, key: &str) -> JoinHandle<(Instant, Guard)> {
    let mutex = locks.mutex(key).unwrap();
    tokio::spawn(async move {
        let guard = mutex.try_lock_for(ms(30_000)).await.unwrap();
        (Instant::now(), guard)
    })
}

/// What a waiting call got, within so long.
pub(crate) async fn got(waiting: JoinHandle<(Instant, Guard)>, within: Duration) -> Guard {
    let (_, guard) = tokio::time::timeout(within, waiting).await.expect("it is granted").unwrap();
    assert!(guard.is_held());
    guard
}

pub(crate) async fn until(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < within, "in vain for {within:?}: {what}");
        pass(ms(10)).await;
    }
}

/// Waits until so many wait for the key.
pub(crate) async fn queued(locks: &Locks, key: &str, waiters: u64) {
    until("all are queued", ms(10_000), async || {
        locks.inspect(key).await.is_ok_and(|seen| seen.waiters_total == waiters)
    })
    .await;
}

/// Waits until every one of the holds was renewed once more.
pub(crate) async fn all_renewed(locks: &Locks, guards: &[Guard], within: Duration) {
    let began = Instant::now();
    let ends: Vec<_> = guards.iter().map(|guard| began + guard.remaining()).collect();
    until("all are renewed", within, async || {
        let now = Instant::now();
        guards.iter().zip(&ends).all(|(guard, end)| {
            assert_eq!(guard.loss(), None, "{} after {:?}", guard.key(), began.elapsed());
            now + guard.remaining() > *end + ms(200)
        })
    })
    .await;
    assert_eq!(locks.stats().losses, 0);
}

pub(crate) fn main_of(key: &str) -> String {
    format!("distlock:{{{key}}}")
}

/// The fence in the main key of a mutex, as everybody sees it.
pub(crate) fn fence_at(server: &RedisServer, key: &str) -> Option<u64> {
    let text = server.command(&["GET", &main_of(key)]);
    text.split_whitespace().nth(2).and_then(|fence| fence.parse().ok())
}

pub(crate) fn said_ok(server: &RedisServer, words: &[&str]) {
    let reply = server.command(words);
    assert!(reply.starts_with("+OK"), "{words:?}: {reply}");
}

/// Waits until the replica has what the primary has.
pub(crate) async fn replicated(primary: &RedisServer, replica: &RedisServer) {
    let offset = |server: &RedisServer, field: &str| {
        let info = server.command(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(field).map(str::to_owned))
    };
    let sent = offset(primary, "master_repl_offset:").unwrap().parse::<u64>().unwrap();
    until("the replica has it all", ms(5000), async || {
        let seen = offset(replica, "slave_repl_offset:");
        seen.and_then(|seen| seen.parse().ok()).is_some_and(|seen: u64| seen >= sent)
    })
    .await;
}

/// The slot of the key's lock.
pub(crate) fn slot_of(node: &RedisServer, key: &str) -> u16 {
    let reply = node.command(&["CLUSTER", "KEYSLOT", &main_of(key)]);
    reply.trim().trim_start_matches(':').parse().unwrap()
}

/// So many keys whose locks lie on one of the three primaries of a cluster.
pub(crate) fn keys_on(nodes: &[RedisServer], index: u16, count: usize) -> Vec<String> {
    let lies_there = |key: &String| slot_of(&nodes[0], key).saturating_sub(1) / 5461 == index;
    (0..).map(|n| format!("key{n}")).filter(lies_there).take(count).collect()
}

/// A hand-over between two clients; says how long after the release the second got the lock.
pub(crate) async fn hand_over(a: &Locks, b: &Locks, key: &str) -> Duration {
    let held = lock(a, key).await;
    let next = wait(b, key);
    queued(a, key, 1).await;
    pass(ms(50)).await;
    let releasing = Instant::now();
    held.release().await.unwrap();
    let (at, guard) = tokio::time::timeout(ms(15_000), next).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    at.saturating_duration_since(releasing)
}

/// A slot on its way from one node to another.
pub(crate) struct Move<'a> {
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> Move<'a> {
    /// Marks the slot of the key as leaving the one and coming to the other; nothing moves yet.
    pub(crate) fn begin(key: &str, from: &'a RedisServer, to: &'a RedisServer) -> Self {
        let slot = slot_of(from, key).to_string();
        said_ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        said_ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
        Self { slot, from, to }
    }

    /// Moves every key that is there.
    pub(crate) fn carry(&self) {
        let port = self.to.port().to_string();
        let there = self.from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000"]);
        for name in there.lines().filter(|line| line.starts_with("distlock")) {
            let reply = self.from.command(&["MIGRATE", "127.0.0.1", &port, name, "0", "5000"]);
            assert!(reply.starts_with("+OK") || reply.starts_with("+NOKEY"), "{reply}");
        }
    }

    /// Moves the rest and gives the slot to the other node.
    pub(crate) fn finish(self) {
        let id = id_of(self.to);
        loop {
            self.carry();
            said_ok(self.to, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
            let reply = self.from.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
            if reply.starts_with("+OK") {
                return;
            }
            // A key came in between.
            assert!(reply.contains("still hold keys"), "{reply}");
        }
    }
}

fn id_of(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).lines().nth(1).unwrap().trim().to_owned()
}
