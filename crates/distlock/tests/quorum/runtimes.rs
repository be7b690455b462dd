//! Clients of several runtimes share a quorum: one that is not polled holds up no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::{Quorum, QuorumOptions, Redis};
use distlock::{Backend, Key, Label};
use distlock_core::{Answer, Ask, Claim, ClaimId, ReleaseOptions, Target};
use distlock_testkit::servers::{Flow, Proxy, RedisServer};
use tokio::runtime::{Builder, Runtime};

use crate::support::named;

/// Far below the lease, and far above what the slow nodes take.
const SOON: Duration = Duration::from_secs(10);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A quorum of these stores that waits this long for an answer.
fn quorum_of(urls: &[String], response_timeout_ms: u64) -> Quorum {
    let node = |url: &String| {
        let url = format!("{url}?response_timeout_ms={response_timeout_ms}");
        Arc::new(Redis::open(&url).unwrap()) as Arc<dyn Backend>
    };
    let options = QuorumOptions::default().node_timeout(SOON);
    Quorum::with_options(named(urls.iter().map(node)), options).unwrap()
}

async fn taken(quorum: &Quorum, key: &str) -> Target {
    let claim = Claim::new(Key::new(key).unwrap(), ClaimId::random().unwrap());
    let ask = Ask::new(claim, Label::new("owner", "me").unwrap(), Duration::from_secs(60));
    let answer = quorum.acquire(&ask).await.unwrap();
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    Target::Claim(ask.claim)
}

async fn released(quorum: &Quorum, target: &Target) {
    quorum.release(target, ReleaseOptions::default()).await.unwrap();
}

/// Takes the key and gives it back; a majority decides both.
async fn visit(quorum: &Quorum, key: &str) {
    released(quorum, &taken(quorum, key).await).await;
}

fn has(server: &RedisServer, key: &str) -> bool {
    !server.command(&["EXISTS", &format!("distlock:{{{key}}}")]).contains(":0")
}

async fn until_free(servers: &[RedisServer], key: &str) {
    let began = Instant::now();
    while servers.iter().any(|server| has(server, key)) {
        assert!(began.elapsed() < SOON, "a node was not released");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn nodes_that_are_late_are_released_though_the_runtime_that_was_first_is_not_polled() {
    let servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    let slow: Vec<_> = servers[3..].iter().map(|server| Proxy::to(server.port())).collect();
    let near = servers[..3].iter().map(RedisServer::url);
    let urls: Vec<_> = near.chain(slow.iter().map(Proxy::url)).collect();
    let quorum = quorum_of(&urls, 20_000);
    let (first, second) = (runtime(), runtime());
    first.block_on(visit(&quorum, "warm"));
    second.block_on(visit(&quorum, "warm"));
    slow.iter().for_each(|proxy| proxy.replies(Flow::Delay(Duration::from_millis(40))));

    first.block_on(visit(&quorum, "warm"));
    second.block_on(async {
        visit(&quorum, "k").await;
        until_free(&servers, "k").await;
    });
}

#[test]
fn a_release_is_repeated_though_the_runtime_that_repeats_another_one_is_not_polled() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let proxy = Proxy::to(servers[2].port());
    let quorum = quorum_of(&[servers[0].url(), servers[1].url(), proxy.url()], 300);
    let (first, second) = (runtime(), runtime());
    let held = [(&first, "first"), (&second, "second")].map(|(runtime, key)| {
        let target = runtime.block_on(taken(&quorum, key));
        let began = Instant::now();
        while !has(&servers[2], key) {
            assert!(began.elapsed() < SOON, "the third node never had {key:?}");
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
        }
        target
    });
    proxy.both(Flow::Swallow);
    // For as long as the first runtime takes to find out that the node has not heard.
    first.block_on(async {
        released(&quorum, &held[0]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    second.block_on(async {
        released(&quorum, &held[1]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.both(Flow::Pass);
        until_free(&servers[2..], "second").await;
    });
}
