//! A server, our clients on it, and what they leave behind.

use std::time::Duration;

use distlock::{Error, Locks};
use distlock_testkit::servers::RedisServer;

use crate::foreign::{Foreign, Library};

/// How long something that must happen may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Longer than any test lasts.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How the keys of locks are named on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// As they are.
    Bare,
    /// In the namespace `ns`.
    Named,
}

impl Naming {
    pub(crate) const BOTH: [Self; 2] = [Self::Bare, Self::Named];
}

/// A server and our only client on it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) locks: Locks,
    naming: Naming,
}

impl Stage {
    pub(crate) fn new(naming: Naming) -> Self {
        let server = RedisServer::start();
        let locks = connect(&server, naming);
        Self { server, locks, naming }
    }

    pub(crate) fn bare() -> Self {
        Self::new(Naming::Bare)
    }

    /// Another process with our library.
    pub(crate) fn other(&self) -> Locks {
        connect(&self.server, self.naming)
    }

    pub(crate) async fn foreign(&self, library: Library) -> Foreign {
        Foreign::start(library, &[&self.server]).await
    }

    /// What a foreign client has to call the lock that we call `key`.
    pub(crate) fn name(&self, key: &str) -> String {
        match self.naming {
            Naming::Bare => key.to_owned(),
            Naming::Named => format!("ns:{{{key}}}"),
        }
    }

    /// The raw value of a lock.
    pub(crate) fn value(&self, key: &str) -> String {
        self.server.command(&["GET", &self.name(key)])
    }

    /// How long the value of a lock has to live; none if for ever or not there.
    pub(crate) fn ttl(&self, key: &str) -> Option<Duration> {
        ttl(&self.server, &self.name(key))
    }

    /// Takes a lock away from its holder.
    pub(crate) fn delete(&self, key: &str) {
        assert_eq!(self.server.command(&["DEL", &self.name(key)]), ":1\r\n");
    }

    /// Waits until so many of us wait for the key.
    pub(crate) async fn queued(&self, key: &str, waiters: u64) {
        let seen = async {
            while self.locks.inspect(key).await.unwrap().waiters_total != waiters {
                tokio::time::sleep(ms(5)).await;
            }
        };
        tokio::time::timeout(SOON, seen).await.expect("the waiter queues");
    }

    /// Ends the test: everything of ours is released, and nothing remains but fence counters,
    /// which go by themselves.
    pub(crate) async fn finish(self) {
        self.locks.close().await.unwrap();
        assert_only_counters(&self.server);
    }
}

pub(crate) fn connect(server: &RedisServer, naming: Naming) -> Locks {
    let namespace = if naming == Naming::Bare { "" } else { "ns" };
    let locks = Locks::connect(&format!("{}?namespace={namespace}", server.url())).unwrap();
    locks.configure(|o| o.place(ms(800))).unwrap()
}

/// Nothing is on the server but the fence counter, and that for a while only.
pub(crate) fn assert_only_counters(server: &RedisServer) {
    for key in keys(server) {
        assert!(["ns:fence", "distlock-side:fence"].contains(&&*key), "{key} remains");
    }
    assert_all_end(server);
}

/// Nothing stays on the server for good.
pub(crate) fn assert_all_end(server: &RedisServer) {
    for key in keys(server) {
        let left = ttl(server, &key).unwrap_or_else(|| panic!("{key} remains for ever"));
        // The counter of a namespace outlives the longest lease there can be.
        let hours = if key.ends_with(":fence") { 367 * 24 } else { 2 };
        assert!(left <= Duration::from_secs(hours * 60 * 60), "{key} remains for {left:?}");
    }
}

fn keys(server: &RedisServer) -> Vec<String> {
    let reply = server.command(&["KEYS", "*"]);
    // A length goes before every key, and how many there are before all.
    reply.lines().skip(2).step_by(2).map(str::to_owned).collect()
}

fn ttl(server: &RedisServer, name: &str) -> Option<Duration> {
    let reply = server.command(&["PTTL", name]);
    let left: i64 = reply.trim_start_matches(':').trim().parse().unwrap();
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it happens soon")
}

pub(crate) fn is_held<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Held { .. }))
}

pub(crate) fn is_timeout<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Timeout { .. }))
}
