//! Part F: names and times at their limits.

use std::collections::HashSet;
use std::time::Duration;

use distlock::{Error, HoldEnd, Locks};
use distlock_core::{Answer, Ask, Backend, Claim, ClaimId, Key, Label, ReleaseOptions, Target};
use distlock_testkit::servers::RedisServer;

use crate::support::*;

/// Names that have broken locks elsewhere, or look like our own side keys.
fn corpus() -> Vec<String> {
    let plain = [
        "foo",
        "foo:q",
        "foo:f",
        "foo:s",
        "foo:qx",
        "foo:x",
        "foo}:f",
        "{foo}",
        "foo}",
        "{foo",
        "}x",
        "{}",
        "}",
        "{",
        "{}x}",
        "%",
        "%7B",
        "%257B",
        "a\0b",
        "a\nb",
        "a\r\nb",
        " ",
        " foo",
        "*",
        "foo*",
        "f?o",
        "[a-z]",
        "\\",
        "^",
        "\u{e9}",
        "e\u{301}",
        "\u{1f512}",
        "\u{feff}foo",
        "'; DROP TABLE locks; --",
        "~shared ",
        "kept:foo",
        "distlock:{foo}",
        "push:",
        "0",
        "-1",
    ];
    let mut all: Vec<String> = plain.map(str::to_owned).into();
    all.extend(["x".repeat(512), "{".repeat(512), "\u{e9}".repeat(256)]);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_a_lock_of_its_own() {
    let server = RedisServer::start();
    let long = |locks: Locks| locks.configure(|o| o.ttl(ms(60_000))).unwrap();
    let (a, b) = (long(locks(&server.url())), long(locks(&server.url())));
    let names = corpus();
    let mut guards = Vec::new();
    for name in &names {
        let guard = a.mutex(name).unwrap().try_lock().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{name:?}: {error}")));
    }
    for name in &names {
        let taken = b.mutex(name).unwrap().try_lock().await;
        assert!(matches!(taken, Err(Error::Held { .. })), "{name:?}: {taken:?}");
        let seen = b.inspect(name).await.unwrap();
        assert_eq!((seen.key.as_str(), seen.holders_total), (name.as_str(), 1));
    }
    assert_eq!(listed(&b).await, names.iter().cloned().collect());
    for (name, guard) in names.iter().zip(guards) {
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Released, "{name:?}");
    }
    nothing_left(&server, ms(500)).await;
}

async fn listed(locks: &Locks) -> HashSet<String> {
    let (mut found, mut cursor) = (HashSet::new(), None);
    loop {
        let page = locks.list("", cursor.as_ref()).await.unwrap();
        found.extend(page.locks.iter().map(|lock| lock.key.to_string()));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_names_are_refused_before_anything_is_sent() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    for name in [String::new(), "x".repeat(513), "\u{e9}".repeat(257)] {
        assert!(matches!(a.mutex(&name), Err(Error::Invalid(_))), "{name:?}");
    }
    assert_eq!(number(&server, &["DBSIZE"]), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_with_readers_and_queues_do_not_meet_their_neighbours() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    let names = ["foo", "foo:q", "foo:qx", "foo:s", "foo:d", "foo}:c", "{foo}", "foo/x"];
    let mut kept = Vec::new();
    for name in names {
        kept.push(a.rwlock(name).unwrap().try_read().await.unwrap());
        let writer = b.rwlock(name).unwrap();
        let waiting = tokio::spawn(async move { writer.write().await });
        until("one waits", ms(2000), async || a.inspect(name).await.unwrap().waiters_total == 1)
            .await;
        waiting.abort();
    }
    for name in names {
        let seen = a.inspect(name).await.unwrap();
        assert_eq!(seen.holders_total, 1, "{name}: {seen:?}");
    }
    drop(kept);
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_do_not_meet() {
    let server = RedisServer::start();
    let within = |namespace: &str| {
        Locks::connect(&format!("{}?namespace={namespace}", server.url())).unwrap()
    };
    let mut kept = Vec::new();
    for (namespace, key) in [("a", "b:c"), ("a:b", "c"), ("a:%7Bb%7D", "c"), ("a", "b}:{c")] {
        let guard = within(namespace).mutex(key).unwrap().try_lock().await;
        kept.push(guard.unwrap_or_else(|error| panic!("{namespace} {key}: {error}")));
    }
    let fences: HashSet<_> = kept.iter().map(distlock::Guard::fence).collect();
    assert_eq!(fences.len(), kept.len());
    assert!(kept.iter().all(distlock::Guard::is_held));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_is_refused_or_is_what_the_server_keeps() {
    let server = RedisServer::start();
    let day = Duration::from_secs(24 * 60 * 60);
    let a = Locks::connect(&server.url()).unwrap();
    let refused = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(999),
        ms(1),
        365 * day + ms(1),
        ms(1 << 53),
        ms(i64::MAX.unsigned_abs()),
        Duration::MAX,
    ];
    for ttl in refused {
        let result = a.configure(|o| o.ttl(ttl));
        assert!(matches!(result, Err(Error::Invalid(_))), "{ttl:?}");
    }
    assert_eq!(number(&server, &["DBSIZE"]), 0, "nothing was sent");
    let kept = [Duration::from_micros(999_001), ms(1000), ms(100_001), 30 * day, 365 * day];
    for ttl in kept {
        let leases = a.configure(|o| o.ttl(ttl)).unwrap().lease(KEY).unwrap();
        let lease = leases.acquire().await.unwrap();
        let left = Duration::from_millis(number(&server, &["PTTL", MAIN]).unsigned_abs());
        assert!(left <= ttl + ms(1) && left + ms(900) > ttl, "{ttl:?}: {left:?} left");
        assert!(leases.remaining(&lease) < ttl);
        assert_eq!(leases.release(&lease).await.unwrap(), HoldEnd::Released);
    }
    nothing_left(&server, ms(500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shortest_lease_is_held_or_said_to_be_too_short() {
    let server = RedisServer::start();
    let a = Locks::connect(&server.url()).unwrap().configure(|o| o.ttl(ms(8))).unwrap();
    a.inspect(KEY).await.unwrap();
    for _ in 0..50 {
        match a.mutex(KEY).unwrap().try_lock().await {
            Ok(guard) => assert!(guard.remaining() < ms(8)),
            Err(Error::Lost { .. } | Error::Held { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    nothing_left(&server, ms(1000)).await;
}

/// Quorums name a floor for every fence, by the clocks of their clients.
#[tokio::test]
async fn the_counter_lives_on_with_every_use_also_under_floors_ahead_of_the_clock() {
    let server = RedisServer::start();
    let store = distlock::backends::Redis::open(&server.url()).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let hour_ahead = u64::try_from(now.as_micros()).unwrap() + 3_600_000_000;
    for seconds in 0..3 {
        let floor = hour_ahead + seconds * 1_000_000;
        let claim = Claim::new(Key::new("k").unwrap(), ClaimId::random().unwrap());
        let owner = Label::new("owner", "me").unwrap();
        let ask = Ask { fence_floor: Some(floor), ..Ask::new(claim.clone(), owner, ms(5000)) };
        assert_eq!(store.acquire(&ask).await.unwrap(), Answer::Granted { fence: floor });
        store.release(&Target::Claim(claim), ReleaseOptions::default()).await.unwrap();
        let left = server.command(&["PTTL", "distlock:fence"]);
        let left: u64 = left.trim().trim_start_matches(':').parse().unwrap();
        assert!(left > 300 * 24 * 3_600_000, "{left} ms are left");
        server.command(&["PEXPIRE", "distlock:fence", "60000"]);
    }
}
