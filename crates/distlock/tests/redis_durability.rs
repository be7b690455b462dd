//! Grants that count only when replicas have them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use distlock::backends::Redis;
use distlock::{ClaimId, Durability, Error, Guard, Key, Label, Locks};
use distlock_core::{Answer, Ask, Backend, Claim, Confirmed, Renewal};
use distlock_testkit::servers::{Flow, Proxy, RedisCluster, RedisServer, RedisServerOptions};
use futures_util::FutureExt;
use futures_util::future::join_all;

fn with_replica() -> (RedisServer, RedisServer) {
    let (primary, [replica]) = with_replicas();
    (primary, replica)
}

fn with_replicas<const N: usize>() -> (RedisServer, [RedisServer; N]) {
    let primary = RedisServer::start();
    let replicas = [(); N].map(|()| {
        let fast = ["--repl-diskless-sync-delay", "0"].map(str::to_owned);
        let follow = ["--replicaof".to_owned(), format!("127.0.0.1 {}", primary.port())];
        RedisServer::start_with(RedisServerOptions { args: [fast, follow].concat() })
    });
    let started = Instant::now();
    while confirming(&primary) < N {
        assert!(started.elapsed() < Duration::from_secs(20), "the replicas do not follow");
        std::thread::sleep(Duration::from_millis(20));
    }
    (primary, replicas)
}

/// How many replicas confirm writes. One that is online still says nothing of what it has until its
/// first report, which comes once a second; before that it confirms no write, however long one
/// waits.
fn confirming(primary: &RedisServer) -> usize {
    let told = primary.command(&["INFO", "replication"]);
    let confirms = |line: &&str| line.contains("state=online") && !line.contains(",offset=0,");
    told.lines().filter(confirms).count()
}

/// Waits longer for a replica: a busy machine keeps that waiting, too.
fn patient(url: &str) -> String {
    format!("{url}?response_timeout_ms=20000")
}

fn locks(url: &str, replicas: u32) -> Locks {
    let locks = Locks::connect(url).unwrap();
    locks.configure(|o| o.durability(Durability::Replicas(replicas))).unwrap()
}

#[tokio::test]
async fn a_grant_counts_when_the_replica_has_it() {
    let (primary, replica) = with_replica();
    let locks = locks(&patient(&primary.url()), 1);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(guard.replicas(), 1);
    assert!(replica.command(&["EXISTS", "distlock:{k}"]).starts_with(":1"), "not replicated");
    guard.release().await.unwrap();
    let reader = locks.rwlock("r").unwrap().read().await.unwrap();
    assert_eq!(reader.replicas(), 1, "readers count, too");
}

#[tokio::test]
async fn too_few_replicas_give_the_grant_back() {
    let (primary, replica) = with_replica();
    let url = primary.url();
    let guard = locks(&patient(&primary.url()), 1).mutex("other").unwrap().lock().await.unwrap();
    replica.pause();
    let refused = locks(&url, 1).mutex("k").unwrap().lock().await.unwrap_err();
    let few = matches!(refused, Error::NotReplicated { confirmed: 0, wanted: 1, .. });
    assert!(few, "{refused}");
    let free = Locks::connect(&url).unwrap();
    let started = Instant::now();
    while !free.inspect("k").await.unwrap().is_free() {
        assert!(started.elapsed() < Duration::from_secs(5), "the grant was not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(guard.is_held(), "what was confirmed before is not touched");
    replica.resume();
}

#[tokio::test]
async fn a_store_without_replicas_says_so() {
    let server = RedisServer::start();
    let url = server.url();
    let refused = locks(&url, 1).mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::NotReplicated { confirmed: 0, wanted: 1, .. }), "{refused}");
    let refused = locks("memory:", 1).mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Unsupported { what: "durability" }), "{refused}");
}

#[tokio::test]
async fn on_a_cluster_the_replica_of_the_key_counts() {
    let cluster = RedisCluster::start_with_replicas();
    let locks = locks(&patient(&cluster.url()), 1);
    for key in ["a", "b", "c", "d", "e", "f"] {
        let guard = locks.mutex(key).unwrap().lock().await.unwrap();
        assert_eq!(guard.replicas(), 1, "{key}");
    }
}

/// Takes twenty keys, one after the other, of which no replica hears.
async fn all_refused(what: &str, take: impl AsyncFn(String) -> Result<Guard, Error>) {
    let mut counted = 0;
    for n in 0..20 {
        let refused = take(format!("{what}{n}")).await.expect_err("no replica has it");
        let few = matches!(refused, Error::NotReplicated { confirmed: 0, wanted: 1, .. });
        assert!(few || refused.is_transient(), "{what}: {refused}");
        counted += usize::from(few);
    }
    assert!(counted >= 10, "{what}: replicas were counted for {counted} of 20 keys only");
}

#[tokio::test]
async fn a_replica_that_stopped_counts_for_no_grant_and_the_other_one_does() {
    let (primary, [stopped, _live]) = with_replicas();
    let url = format!("{}?response_timeout_ms=2000", primary.url());
    let (one, two) = (locks(&url, 1), locks(&url, 2));
    let guard = two.mutex("both").unwrap().lock().await.unwrap();
    assert_eq!(guard.replicas(), 2);
    stopped.pause();
    let guard = one.mutex("one").unwrap().lock().await.unwrap();
    assert_eq!(guard.replicas(), 1);
    let refused = two.mutex("two").unwrap().lock().await.unwrap_err();
    let few = matches!(refused, Error::NotReplicated { confirmed: 1, wanted: 2, .. });
    assert!(few, "{refused}");
    stopped.resume();
    until_confirmed(&two).await;
}

/// A replica that goes on confirms again what is written from then on.
async fn until_confirmed(locks: &Locks) {
    let started = Instant::now();
    while let Err(refused) = locks.mutex("again").unwrap().try_lock().await {
        assert!(started.elapsed() < Duration::from_secs(20), "{refused}");
        assert!(refused.is_transient(), "{refused}");
    }
}

#[tokio::test]
async fn what_no_replica_has_is_never_confirmed() {
    let (primary, replica) = with_replica();
    let url = format!("{}?response_timeout_ms=700", primary.url());
    let (mutexes, readers, permits) = (locks(&url, 1), locks(&url, 1), locks(&url, 1));
    replica.pause();
    tokio::join!(
        all_refused("mutex", async |key| mutexes.mutex(key)?.try_lock().await),
        all_refused("reader", async |key| readers.rwlock(key)?.try_read().await),
        all_refused("permit", async |key| permits.semaphore(key, 3)?.try_acquire().await),
    );
    replica.resume();
}

#[tokio::test]
async fn confirmations_go_side_by_side() {
    let (primary, _replica) = with_replica();
    let proxy = Proxy::to(primary.port());
    let locks = locks(&patient(&proxy.url()), 1);
    proxy.replies(Flow::Delay(Duration::from_millis(40)));
    let began = Instant::now();
    let grants = (0..200).map(|n| locks.mutex(format!("k{n}")).unwrap());
    let guards = join_all(grants.map(async |lock| lock.lock().await.unwrap())).await;
    let took = began.elapsed();
    assert!(guards.iter().all(|guard| guard.replicas() == 1));
    assert!(took < Duration::from_secs(6), "200 confirmations took {took:?}");
}

async fn granted(store: &Redis, key: &str) -> Renewal {
    let claim = Claim::new(Key::new(key).unwrap(), ClaimId::random().unwrap());
    let ttl = Duration::from_secs(30);
    let ask = Ask::new(claim, Label::new("owner", "me").unwrap(), ttl);
    let answer = store.acquire(&ask).await.unwrap();
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    Renewal::hold(ask.claim, ttl)
}

#[tokio::test]
async fn a_confirmation_that_is_not_polled_delays_no_other() {
    let (primary, _replica) = with_replica();
    let store = Redis::open(&patient(&primary.url())).unwrap();
    let mut holds = Vec::new();
    for n in 0..20 {
        holds.push(granted(&store, &format!("left alone {n}")).await);
    }
    let mut left_alone: Vec<_> =
        holds.iter().map(|hold| store.extensions().confirm(hold, 1)).collect();
    for confirming in &mut left_alone {
        assert!(confirming.now_or_never().is_none(), "it takes a round trip");
    }
    let other = granted(&store, "other").await;
    let confirmed =
        tokio::time::timeout(Duration::from_secs(5), store.extensions().confirm(&other, 1)).await;
    assert_eq!(confirmed.expect("it is delayed by others").unwrap(), Confirmed::By(1));
    drop(left_alone);
}
