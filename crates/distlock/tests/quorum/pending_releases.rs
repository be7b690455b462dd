//! Releases that a node has not heard, though a majority has.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Quorum, QuorumOptions, Redis};
use distlock::{Backend, Key, Label, Locks};
use distlock_core::{Answer, Ask, Claim, ClaimId, ReleaseOptions, Target};
use distlock_testkit::servers::{Flow, Proxy, RedisServer};
use tokio::time::{Instant, sleep};

use crate::support::{Mortal, locks_of, mortals, named, quorum_of};

const TTL: Duration = Duration::from_secs(30);

async fn is_free(node: &Arc<Mortal>) -> bool {
    node.inspect(&Key::new("k").unwrap()).await.unwrap().is_free()
}

fn ask() -> Ask {
    let claim = Claim::new(Key::new("k").unwrap(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "me").unwrap(), TTL)
}

async fn released(quorum: &Quorum, ask: &Ask) {
    quorum.release(&Target::Claim(ask.claim.clone()), ReleaseOptions::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_a_node_did_not_hear_is_repeated_there() {
    for hangs in [false, true] {
        let nodes = mortals(3);
        let locks = locks_of(&nodes);
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        match hangs {
            true => nodes[2].set_hanging(true),
            false => nodes[2].set_down(true),
        }
        guard.release().await.unwrap();
        sleep(Duration::from_secs(3)).await;
        nodes[2].set_hanging(false);
        nodes[2].set_down(false);
        sleep(Duration::from_secs(2)).await;
        assert!(is_free(&nodes[2]).await, "its lease would last for 25 s more");
    }
}

/// What was sent is lost here, so nothing but a repetition can free the key before its ttl.
#[tokio::test]
async fn a_release_that_was_lost_on_the_way_is_repeated_over_a_new_connection() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let proxy = Proxy::to(servers[2].port());
    let urls = [servers[0].url(), servers[1].url(), proxy.url()];
    let node = |url: &String| {
        let url = format!("{url}?response_timeout_ms=300&connect_timeout_ms=300");
        Arc::new(Redis::open(&url).unwrap()) as Arc<dyn Backend>
    };
    // A busy machine may be slow to answer; no client waits that long for the node that is silent.
    let patient = QuorumOptions::default().node_timeout(Duration::from_secs(20));
    let quorum = Quorum::with_options(named(urls.iter().map(node)), patient).unwrap();
    let locks = Locks::new(Arc::new(quorum)).configure(|o| o.ttl(TTL * 2)).unwrap();
    let held = || servers[2].command(&["EXISTS", "distlock:{k}"]).contains(":1");
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let began = Instant::now();
    while !held() {
        sleep(Duration::from_millis(10)).await;
    }
    proxy.both(Flow::Swallow);
    guard.release().await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert!(held(), "it was told in spite of the proxy");
    proxy.both(Flow::Pass);
    while held() {
        sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() < TTL, "it ended by itself");
}

#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_no_longer_than_the_lease_lasts() {
    let nodes = mortals(3);
    let locks = locks_of(&nodes);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    nodes[2].set_down(true);
    let before = nodes[2].calls();
    guard.release().await.unwrap();
    sleep(TTL * 2).await;
    let tries = nodes[2].calls() - before;
    assert!((10..50).contains(&tries), "{tries} tries");
    sleep(TTL * 2).await;
    assert_eq!(nodes[2].calls() - before, tries, "the lease has ended long ago");
}

#[tokio::test(start_paused = true)]
async fn many_releases_that_are_not_heard_are_repeated_one_at_a_time() {
    let nodes = mortals(3);
    let locks = locks_of(&nodes);
    let mut guards = Vec::new();
    for at in 0..200 {
        guards.push(locks.mutex(format!("k{at}")).unwrap().lock().await.unwrap());
    }
    nodes[2].set_down(true);
    let before = nodes[2].calls();
    for guard in guards {
        guard.release().await.unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    let tries = nodes[2].calls() - before;
    assert!(tries < 50, "{tries} messages to a node that is down");
    nodes[2].set_down(false);
    sleep(Duration::from_secs(2)).await;
    let left = nodes[2].list("k", None).await.unwrap().locks.len();
    assert_eq!(left, 0, "all of them are told when it is back");
}

#[tokio::test(start_paused = true)]
async fn asking_again_under_the_same_claim_ends_the_repetition() {
    let nodes = mortals(3);
    let (quorum, x) = (quorum_of(&nodes), ask());
    assert!(matches!(quorum.acquire(&x).await, Ok(Answer::Granted { .. })));
    nodes[2].set_down(true);
    released(&quorum, &x).await;
    nodes[2].set_down(false);
    assert!(matches!(quorum.acquire(&x).await, Ok(Answer::Granted { .. })));
    // Whatever was asked for after the release is not taken away by it.
    for node in &nodes {
        let _ = node.acquire(&x).await.unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    for node in &nodes {
        assert!(!is_free(node).await, "the old release has ended the new hold");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_nodes_that_are_late_but_not_for_ever() {
    let nodes = mortals(3);
    let locks = locks_of(&nodes);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    nodes[2].set_hanging(true);
    guard.release().await.unwrap();
    let (late, began) = (Arc::clone(&nodes[2]), Instant::now());
    let back = tokio::spawn(async move {
        sleep(Duration::from_millis(400)).await;
        late.set_hanging(false);
    });
    locks.close().await.unwrap();
    assert!(is_free(&nodes[2]).await, "it was not waited for");
    assert!(back.is_finished() && began.elapsed() < Duration::from_millis(500));

    let locks = locks_of(&nodes);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    nodes[2].set_down(true);
    guard.release().await.unwrap();
    let began = Instant::now();
    locks.close().await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(2), "a dead node keeps no client from closing");
}
