//! A server, a network that fails on demand, and clients on either side of it.

use std::time::{Duration, Instant};

use distlock::{Error, Guard, Locks};
use distlock_testkit::servers::{Proxy, RedisServer};
use tokio::task::JoinHandle;

pub(crate) const KEY: &str = "k";
pub(crate) const MAIN: &str = "distlock:{k}";
pub(crate) const QUEUE: &str = "distlock:{k}:qx";

/// The lease and the place of most tests, and how long their clients wait for a reply.
pub(crate) const TTL: Duration = ms(1800);
pub(crate) const PLACE: Duration = ms(1200);
const RESPONSE_MS: u64 = 250;

/// What the server says the fields of a key's details are, if there is nothing but a mark.
const MARK: &str = "*1\r\n$2\r\n~x\r\n";

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) async fn pass(while_: Duration) {
    tokio::time::sleep(while_).await;
}

/// A client with short times.
pub(crate) fn locks(url: &str) -> Locks {
    let locks = patient(url, RESPONSE_MS);
    locks.configure(|o| o.ttl(TTL).place(PLACE).patience(ms(20_000))).unwrap()
}

/// A client with default options that waits this long for replies.
pub(crate) fn patient(url: &str, response_ms: u64) -> Locks {
    let options = format!("response_timeout_ms={response_ms}&connect_timeout_ms=1000");
    Locks::connect(&format!("{url}?{options}")).unwrap()
}

/// A server with a proxy in front of it.
pub(crate) fn behind_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    (server, proxy)
}

/// A client behind the proxy that has a connection already, to a server that knows the scripts.
pub(crate) async fn connected(proxy: &Proxy) -> Locks {
    let locks = locks(&proxy.url());
    locks.mutex("warm").unwrap().lock().await.unwrap().release().await.unwrap();
    locks
}

pub(crate) async fn lock(locks: &Locks) -> Guard {
    locks.mutex(KEY).unwrap().lock().await.unwrap()
}

pub(crate) async fn try_lock(locks: &Locks) -> Result<Guard, Error> {
    locks.mutex(KEY).unwrap().try_lock().await
}

/// A call that waits for the lock in a task of its own, and when it got it.
pub(crate) fn wait(locks: &Locks) -> JoinHandle<(Instant, Guard)> {
    let mutex = locks.mutex(KEY).unwrap();
    tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        (Instant::now(), guard)
    })
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        pass(ms(5)).await;
    }
}

/// Waits until so many wait for the key.
pub(crate) async fn queued(locks: &Locks, waiters: u64) {
    until("all are queued", ms(10_000), async || {
        locks.inspect(KEY).await.is_ok_and(|seen| seen.waiters_total == waiters)
    })
    .await;
}

/// The keys of locks on the server, but for the fence counter, graves, and the mark that says that
/// there are graves, which outlive them.
pub(crate) fn left(server: &RedisServer) -> Vec<String> {
    let reply = server.command(&["KEYS", "distlock*"]);
    let mut names = Vec::new();
    let mut rest = reply.split_once("\r\n").map_or("", |(_, rest)| rest);
    while let Some((length, tail)) = rest.strip_prefix('$').and_then(|r| r.split_once("\r\n")) {
        let (name, tail) = tail.split_at(length.parse().unwrap());
        names.push(name.to_owned());
        rest = tail.trim_start_matches("\r\n");
    }
    let is_mark = |name: &str| name.ends_with("}:d") && server.command(&["HKEYS", name]) == MARK;
    names.retain(|name| name != "distlock:fence" && !name.ends_with("}:x") && !is_mark(name));
    names
}

/// Waits until nothing of any lock is left on the server.
pub(crate) async fn nothing_left(server: &RedisServer, within: Duration) {
    let began = Instant::now();
    while !left(server).is_empty() {
        assert!(began.elapsed() < within, "left after {within:?}: {:?}", left(server));
        pass(ms(5)).await;
    }
}

/// The fence in the main key of a mutex, as everybody sees it.
pub(crate) fn fence_at(server: &RedisServer) -> u64 {
    let text = server.command(&["GET", MAIN]);
    text.split_whitespace().nth(2).and_then(|fence| fence.parse().ok()).unwrap_or(0)
}

/// A number that a command answers.
pub(crate) fn number(server: &RedisServer, words: &[&str]) -> i64 {
    server.command(words).trim().trim_start_matches(':').parse().unwrap()
}
