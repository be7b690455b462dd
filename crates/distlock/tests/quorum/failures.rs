//! Nodes that fail while locks are taken and held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::{Memory, Quorum, QuorumOptions};
use distlock::{Backend, Error, Key, Label, Locks, LossReason, ManualClock};
use distlock_core::{
    Answer, Ask, Claim, ClaimId, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};
use distlock_testkit::servers::RedisServer;
use futures_util::StreamExt;

use crate::support::{Mortal, Servers, locks_of, mortals, named, quorum_of};

const TTL: Duration = Duration::from_secs(30);

fn key() -> Key {
    Key::new("k").unwrap()
}

fn ask() -> Ask {
    let claim = Claim::new(key(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "me").unwrap(), TTL)
}

async fn renewed(quorum: &Quorum, ask: &Ask) -> Standing {
    let batch = [Renewal::hold(ask.claim.clone(), TTL)];
    let answers: Vec<_> = quorum.renew(&batch).collect().await;
    answers[0].1.clone().unwrap()
}

async fn holds(node: &Arc<Mortal>) -> bool {
    !node.inspect(&key()).await.unwrap().is_free()
}

fn fence_of(answer: &Answer) -> u64 {
    match answer {
        Answer::Granted { fence } => *fence,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_partial_acquire_is_released_on_every_node() {
    let nodes = mortals(5);
    let locks = locks_of(&nodes);
    drop(locks.mutex("warm").unwrap().lock().await.unwrap());
    let others: Vec<_> = (0..3).map(|_| ask()).collect();
    for (node, other) in nodes.iter().zip(&others) {
        fence_of(&node.acquire(other).await.unwrap());
    }
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Held { .. }), "{refused}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!holds(&nodes[3]).await && !holds(&nodes[4]).await, "a losing vote is given back");
    for (node, other) in nodes.iter().zip(&others) {
        node.release(&Target::Claim(other.claim.clone()), ReleaseOptions::default()).await.unwrap();
    }
    drop(locks_of(&nodes).mutex("k").unwrap().try_lock().await.unwrap());
}

/// Five clients take one key all the time. A busy machine may be slow, so they are patient; if the
/// votes stayed split, no patience would do.
#[tokio::test]
async fn split_votes_converge() {
    let servers = Servers::start(5);
    let rounds = |client: u32| {
        let patient = QuorumOptions::default().node_timeout(Duration::from_secs(20));
        let locks = Locks::new(Arc::new(servers.quorum(patient)));
        async move {
            for _ in 0..60 {
                let guard = locks.mutex("k").unwrap().try_lock_for(TTL * 10).await.unwrap();
                assert!(guard.is_held(), "client {client}");
                guard.release().await.unwrap();
            }
        }
    };
    futures_util::future::join_all((0..5).map(rounds)).await;
}

#[tokio::test(start_paused = true)]
async fn only_pure_renewals_count_and_lost_nodes_are_healed() {
    let nodes = mortals(3);
    let (quorum, x) = (quorum_of(&nodes), ask());
    let fence = fence_of(&quorum.acquire(&x).await.unwrap());
    let target = Target::Claim(x.claim.clone());
    nodes[0].release(&target, ReleaseOptions::default()).await.unwrap();
    assert_eq!(renewed(&quorum, &x).await, Standing::Held { fence });
    assert!(holds(&nodes[0]).await, "the node that lost the claim has it again");
    nodes[0].release(&target, ReleaseOptions::default()).await.unwrap();
    nodes[1].release(&target, ReleaseOptions::default()).await.unwrap();
    assert_eq!(renewed(&quorum, &x).await, Standing::Gone, "what is created anew does not count");
    assert!(!holds(&nodes[0]).await && !holds(&nodes[1]).await);
}

#[tokio::test]
async fn two_of_five_may_be_paused_or_killed() {
    let mut servers = Servers::start(5);
    // A call that waited for a silent node would take this long.
    let silent = Duration::from_secs(20);
    let quorum = servers.quorum(QuorumOptions::default().node_timeout(silent));
    let mutex = Locks::new(Arc::new(quorum.clone())).mutex("k").unwrap();
    // Not only by a majority: from now on every one of the other three is needed.
    let lease = mutex.lock().await.unwrap().into_lease();
    assert_eq!(quorum.release_everywhere(lease.key(), lease.id()).await.released, 5);
    for kill in [false, true] {
        for server in &mut servers[..2] {
            if kill { server.kill() } else { server.pause() }
        }
        for _ in 0..20 {
            let started = Instant::now();
            mutex.try_lock().await.unwrap().release().await.unwrap();
            assert!(started.elapsed() < silent / 2, "the call waited for a silent node");
        }
        if !kill {
            servers[..2].iter().for_each(RedisServer::resume);
        }
    }
    servers[2].kill();
    let started = Instant::now();
    let refused = mutex.try_lock().await.unwrap_err();
    let Error::NoQuorum { needed: 3, granted, ref faults, .. } = refused else {
        panic!("expected no quorum, got {refused}");
    };
    assert!(granted <= 2 && faults.0.len() == 3 && refused.is_transient(), "{refused}");
    assert!(started.elapsed() < silent / 2, "the refusal waited");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_lost_is_noticed_at_the_deadline_and_not_before() {
    let nodes = mortals(5);
    let guard = locks_of(&nodes).mutex("k").unwrap().lock().await.unwrap();
    tokio::time::sleep(Duration::from_secs(45)).await;
    nodes[..3].iter().for_each(|node| node.set_down(true));
    let (left, since) = (guard.remaining(), tokio::time::Instant::now());
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    let lasted = since.elapsed();
    assert!(lasted >= left && lasted < left + Duration::from_secs(1), "{lasted:?} of {left:?}");
}

#[tokio::test]
async fn a_clock_that_jumps_cannot_turn_the_fence_back() {
    let clocks: Vec<_> = (0..3).map(|_| ManualClock::new()).collect();
    let nodes: Vec<_> = clocks.iter().map(|clock| Mortal::new(Arc::new(clock.clone()))).collect();
    let (a, b) = (quorum_of(&nodes), quorum_of(&nodes));
    for (quorum, name) in [(&a, "warm"), (&b, "warm too")] {
        let claim = Claim::new(Key::new(name).unwrap(), ClaimId::random().unwrap());
        fence_of(&quorum.acquire(&Ask { claim, ..ask() }).await.unwrap());
    }
    nodes[2].set_down(true);
    let before = fence_of(&a.acquire(&ask()).await.unwrap());
    // Kleppmann's schedule: the lease ends on one node before its time, and another comes back.
    clocks[1].advance(TTL * 2);
    nodes[2].set_down(false);
    nodes[0].set_down(true);
    let after = fence_of(&b.acquire(&ask()).await.unwrap());
    assert!(after > before, "{after} after {before}");
}

#[tokio::test(start_paused = true)]
async fn every_lease_is_its_own() {
    let nodes = mortals(3);
    let long = locks_of(&nodes).configure(|o| o.ttl(Duration::from_secs(60))).unwrap();
    let short = locks_of(&nodes).configure(|o| o.ttl(Duration::from_secs(1)).drift(0.3)).unwrap();
    let lease = long.mutex("k").unwrap().lock().await.unwrap().into_lease();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(short.mutex("k").unwrap().try_lock().await.is_err(), "{lease:?}");
    let other = short.mutex("l").unwrap().lock().await.unwrap().into_lease();
    assert!(long.mutex("l").unwrap().try_lock().await.is_err(), "{other:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(long.mutex("l").unwrap().try_lock().await.unwrap());
}

#[tokio::test]
async fn a_fence_that_the_nodes_disagree_on_is_written_back() {
    let stores: Vec<_> = (0..3).map(|_| Memory::new()).collect();
    let node = |store: &Memory| Arc::new(store.client()) as Arc<dyn Backend>;
    let quorum = Quorum::new(named(stores.iter().map(node))).unwrap();
    // One node is ahead of all clocks.
    let far = Ask { fence_floor: Some(1 << 51), ..ask() };
    fence_of(&stores[0].acquire(&far).await.unwrap());
    stores[0].release(&Target::Claim(far.claim.clone()), ReleaseOptions::default()).await.unwrap();
    let x = ask();
    let fence = fence_of(&quorum.acquire(&x).await.unwrap());
    assert!(fence > 1 << 51);
    let mut knowing = 0;
    for store in &stores {
        let seen = store.inspect(&key()).await.unwrap();
        knowing += usize::from(seen.holders[0].fence == fence);
    }
    assert!(knowing >= quorum.majority(), "{knowing} nodes know the fence");
    let report = quorum.release_everywhere(&x.claim.key, x.claim.id).await;
    assert_eq!((report.total, report.released, report.quorum), (3, 3, true));
    assert_eq!(
        stores[0].release(&Target::Claim(x.claim), ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::Gone
    );
}
