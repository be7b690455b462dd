//! No URL makes the library panic: thousands of hostile ones are opened, and every scheme is used.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use distlock::{Error, Locks};
use distlock_testkit::Rng;
use distlock_testkit::servers::TempFolder;

const SCHEMES: [&str; 16] = [
    "memory:",
    "memory://",
    "sqlite:",
    "sqlite://",
    "redis://",
    "rediss://",
    "redis+unix://",
    "redis-sentinel://",
    "rediss-sentinel://",
    "redis-cluster://",
    "rediss-cluster://",
    "quorum:",
    "quorum:?",
    "REDIS://",
    "unknown://",
    "",
];

/// Hosts, paths and things that look like them.
const PARTS: [&str; 31] = [
    "h",
    "127.0.0.1",
    "[::1]",
    "[::1]:7",
    "[",
    "]",
    "h:0",
    "h:65535",
    "h:65536",
    "h:-1",
    "h:",
    ":6379",
    "a,b,c",
    "a,,b",
    ",",
    "u:p@h",
    "u:p@@h",
    "@",
    "@,@",
    "%",
    "%00",
    "%ff",
    "%zz@h",
    "0.0.0.0",
    "xn--",
    "é.example",
    "..",
    "/",
    "/main",
    "/main/99999999999999999999",
    "//",
];

const OPTIONS: [&str; 31] = [
    "namespace",
    "namespace=",
    "namespace=%00",
    "namespace={",
    "db=1",
    "db=-1",
    "db=x",
    "user=%ff",
    "pass=s3ntinel",
    "protocol=9",
    "connect_timeout_ms=0",
    "connect_timeout_ms=18446744073709551616",
    "response_timeout_ms=60000",
    "ca=",
    "ca=/",
    "ca=/dev/null",
    "ca=%00",
    "cert=/dev/null",
    "key=/dev/null",
    "cert=/dev/null&key=/dev/null",
    "verify_push=1",
    "verify_push=2",
    "journal=on",
    "journal=",
    "journal_entries=0",
    "journal_entries=99999999999999999999",
    "journal_days=4294967295",
    "node=",
    "node=memory:",
    "node=redis://a",
    "max_ttl=1",
];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[usize::try_from(rng.below(from.len() as u64)).unwrap()]
}

/// A URL out of pieces, with a byte that is damaged now and then.
fn hostile(rng: &mut Rng) -> String {
    let mut url = pick(rng, &SCHEMES).to_owned();
    for _ in 0..rng.below(4) {
        url += pick(rng, &PARTS);
    }
    for index in 0..rng.below(4) {
        url += if index == 0 { "?" } else { "&" };
        url += pick(rng, &OPTIONS);
    }
    if rng.below(3) == 0 {
        let mut chars: Vec<char> = url.chars().collect();
        let odd = ['\0', '\n', '#', '?', '&', '=', '%', '@', ':', '/', '\u{202e}', '😀', ' '];
        let at = usize::try_from(rng.below(chars.len() as u64 + 1)).unwrap();
        chars.insert(at, odd[usize::try_from(rng.below(odd.len() as u64)).unwrap()]);
        url = chars.into_iter().collect();
    }
    url
}

#[test]
fn hostile_urls_are_opened_or_refused() {
    let (seed, mut opened) = (17, 0);
    let mut rng = Rng::new(seed);
    for round in 0..20_000 {
        let url = hostile(&mut rng);
        // Files of locks are made with their first use, so opening one leaves nothing behind.
        match std::panic::catch_unwind(|| Locks::connect(&url)) {
            Ok(Ok(_)) => opened += 1,
            Ok(Err(Error::Url(refused))) => {
                assert!(!refused.to_string().contains("s3ntinel"), "{url:?}: {refused}");
            }
            Ok(Err(other)) => panic!("seed {seed}, round {round}, {url:?}: {other}"),
            Err(_) => panic!("seed {seed}, round {round}: {url:?} panics"),
        }
    }
    assert!(opened > 500, "only {opened} could be opened");
}

/// Uses of every scheme end soon, with a lock or with an error that names the place. The port is
/// one that nothing listens on.
#[tokio::test]
async fn every_scheme_can_be_used() {
    let folder = TempFolder::new();
    let file = folder.path().join("locks.db");
    let socket = folder.path().join("none.sock");
    for (url, place) in [
        ("memory:".to_owned(), None),
        (format!("sqlite:{}", file.display()), None),
        ("redis://127.0.0.1:1".to_owned(), Some("redis://127.0.0.1:1")),
        ("rediss://127.0.0.1:1".to_owned(), Some("rediss://127.0.0.1:1")),
        ("rediss://localhost:1".to_owned(), Some("rediss://localhost:1")),
        (format!("redis+unix://{}", socket.display()), Some("none.sock")),
        ("redis-sentinel://127.0.0.1:1/main".to_owned(), Some("127.0.0.1:1/main")),
        ("rediss-sentinel://127.0.0.1:1/main".to_owned(), Some("127.0.0.1:1/main")),
        ("redis-cluster://127.0.0.1:1".to_owned(), Some("redis-cluster://127.0.0.1:1")),
        ("rediss-cluster://127.0.0.1:1".to_owned(), Some("rediss-cluster://127.0.0.1:1")),
        (
            "quorum:?node=redis://127.0.0.1:1&node=rediss://127.0.0.1:2&node=redis://127.0.0.1:3"
                .to_owned(),
            Some("127.0.0.1:2"),
        ),
    ] {
        let locks = Locks::connect(&url).unwrap();
        let began = Instant::now();
        let result = locks.mutex("k").unwrap().try_lock().await;
        match (result, place) {
            (Ok(guard), None) => drop(guard.release().await.unwrap()),
            (Err(error), Some(place)) => {
                let text = error.to_string();
                assert!(text.contains(place) && text.contains("\"k\""), "{url}: {text}");
                assert!(!text.contains("panicked"), "{url}: {text}");
                assert!(error.is_transient(), "{url}: {text}");
            }
            (result, _) => panic!("{url}: {result:?}"),
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{url}");
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_says_what_was_tried_and_what_to_do() {
    let locks = Locks::connect("redis://bob:s3ntinel@127.0.0.1:1/").unwrap();
    let refused = locks.mutex("jobs").unwrap().try_lock().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "could not acquire \"jobs\" at redis://127.0.0.1:1: Connection refused (os error 111); \
         check that a server listens there, and the host and port of the URL"
    );
}
