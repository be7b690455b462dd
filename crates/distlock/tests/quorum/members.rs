//! Who belongs to a quorum, and what becomes of nodes that lost their memory.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Memory, Quorum, QuorumOptions, Redis};
use distlock::{Backend, Error, Key, Lease, Locks, NoQuorum, NodeState};
use distlock_testkit::servers::{RedisServer, RedisServerOptions};
use distlock_testkit::{Faults, Faulty};

use crate::support::{Mortal, Servers, locks_of, mortals, named, quorum_of};

/// For a while a client that knows the nodes is refused, and so is one that comes later.
async fn nobody_enters_while(lease: &Lease, known: &Locks, nodes: &[Arc<Mortal>]) {
    for _ in 0..5 {
        let refused = known.mutex("k").unwrap().try_lock().await.unwrap_err();
        assert!(refused.is_transient(), "{refused} while {lease:?}");
        let fresh = locks_of(nodes).mutex("k").unwrap().try_lock().await;
        assert!(fresh.is_err(), "a client that comes later does not count it either");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_its_data_does_not_vote_until_its_leases_are_over() {
    let nodes = mortals(3);
    let (a, b) = (locks_of(&nodes), locks_of(&nodes));
    drop(b.mutex("warm").unwrap().lock().await.unwrap());
    drop(a.mutex("warm too").unwrap().lock().await.unwrap());
    nodes[2].set_down(true);
    let guard = a.mutex("k").unwrap().lock().await.unwrap();
    let fence = guard.fence();
    let lease = guard.into_lease();
    nodes[1].forget();
    nodes[2].set_down(false);
    nobody_enters_while(&lease, &b, &nodes).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let next = b.mutex("k").unwrap().try_lock_for(Duration::from_secs(30)).await.unwrap();
    assert!(next.fence() > fence, "{} after {fence}", next.fence());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_emptied_is_noticed_without_a_new_connection() {
    let nodes = mortals(3);
    let (a, b) = (locks_of(&nodes), locks_of(&nodes));
    drop(b.mutex("warm").unwrap().lock().await.unwrap());
    nodes[2].set_down(true);
    let lease = a.mutex("k").unwrap().lock().await.unwrap().into_lease();
    nodes[2].set_down(false);
    nodes[1].flush();
    nobody_enters_while(&lease, &b, &nodes).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    nodes[2].set_down(true);
    let next = b.mutex("k").unwrap().try_lock_for(Duration::from_secs(30)).await.unwrap();
    assert!(next.fence() > lease.fence(), "{} after {}", next.fence(), lease.fence());
}

/// The same on real servers, by the command that does it.
#[tokio::test]
async fn a_server_that_was_flushed_does_not_vote() {
    let servers = Servers::start(3);
    let options = QuorumOptions::default().node_timeout(Duration::from_secs(20));
    let locks = || Locks::new(Arc::new(servers.quorum(options)));
    let (a, b) = (locks(), locks());
    drop(b.mutex("warm").unwrap().lock().await.unwrap());
    let lease = a.mutex("k").unwrap().lock().await.unwrap().into_lease();
    for server in &servers[1..] {
        while server.command(&["EXISTS", "distlock:{k}"]).contains(":0") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // As if the third had had no part in it; and the second forgets it.
    servers[2].command(&["DEL", "distlock:{k}"]);
    servers[1].command(&["FLUSHALL"]);
    for _ in 0..5 {
        let refused = b.mutex("k").unwrap().try_lock().await.unwrap_err();
        assert!(refused.is_transient(), "{refused} while {lease:?}");
    }
    let abstains = servers[1].command(&["EXISTS", "distlock:{.distlock/quorum/quarantine}"]);
    assert!(abstains.contains(":1"), "{abstains}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_votes_again_with_larger_fences() {
    let nodes = mortals(3);
    let locks = locks_of(&nodes);
    let fence = locks.mutex("k").unwrap().lock().await.unwrap().fence();
    nodes[0].forget();
    drop(locks.mutex("k").unwrap().lock().await.unwrap());
    tokio::time::sleep(Duration::from_secs(70)).await;
    // It is needed now, and knows nothing of the fences before.
    nodes[1].set_down(true);
    let after = locks.mutex("k").unwrap().try_lock_for(Duration::from_secs(30)).await.unwrap();
    assert!(after.fence() > fence, "{} after {fence}", after.fence());
}

#[tokio::test(start_paused = true)]
async fn a_probe_tells_how_each_node_is() {
    let nodes = mortals(5);
    let quorum = quorum_of(&nodes);
    let locks = Locks::new(Arc::new(quorum.clone()));
    drop(locks.mutex("k").unwrap().lock().await.unwrap());
    nodes[1].forget();
    nodes[3].set_down(true);
    let states = async || -> Vec<_> {
        quorum.probe().await.unwrap().nodes.iter().map(|node| node.state).collect()
    };
    // A vote may be decided before the node that lost its data was looked at.
    for _ in 0..100 {
        drop(locks.mutex("k").unwrap().try_lock_for(Duration::from_secs(30)).await.unwrap());
        if matches!(states().await[1], NodeState::Quarantined(_)) {
            break;
        }
    }
    let states = states().await;
    assert!(
        matches!(
            states[..],
            [
                NodeState::Up,
                NodeState::Quarantined(_),
                NodeState::Up,
                NodeState::Down,
                NodeState::Up
            ]
        ),
        "{states:?}"
    );
    nodes[0].set_down(true);
    nodes[2].set_down(true);
    let fault = quorum.probe().await.unwrap_err();
    let told = NoQuorum::of(&fault).unwrap();
    assert_eq!((told.faults.len(), told.others.len()), (3, 2), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_start_together_found_one_quorum() {
    let nodes = mortals(5);
    let clients: Vec<_> = (0..8).map(|_| locks_of(&nodes)).collect();
    let take = |locks: Locks| async move {
        locks.mutex("k").unwrap().try_lock_for(Duration::from_secs(30)).await.map(drop)
    };
    for taken in futures_util::future::join_all(clients.into_iter().map(take)).await {
        taken.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_is_founded_while_its_nodes_are_looked_at_quarantines_none() {
    let nodes = mortals(5);
    // The first client sees three of the nodes before the second founds the quorum, two after it.
    let far = Faults { delay: (1.0, Duration::from_millis(50)), ..Faults::NONE };
    let view = nodes.iter().enumerate().map(|(at, node)| {
        let near = Arc::clone(node) as Arc<dyn Backend>;
        if at < 3 { near } else { Arc::new(Faulty::new(near, at as u64, far)) }
    });
    let slow = Locks::new(Arc::new(Quorum::new(named(view)).unwrap()));
    let slow = tokio::spawn(async move { slow.mutex("slow").unwrap().try_lock().await.map(drop) });
    tokio::task::yield_now().await;
    drop(locks_of(&nodes).mutex("quick").unwrap().try_lock().await.unwrap());
    slow.await.unwrap().unwrap();
    let abstains = Key::new(".distlock/quorum/quarantine").unwrap();
    for node in &nodes {
        assert!(
            node.inspect(&abstains).await.unwrap().is_free(),
            "a new node has forgotten nothing"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_slow_at_first_do_not_make_a_new_quorum_abstain() {
    let nodes = mortals(3);
    nodes[2].set_down(true);
    let locks = locks_of(&nodes);
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::NoQuorum { .. }) && refused.is_transient(), "{refused}");
    nodes[2].set_down(false);
    drop(locks.mutex("k").unwrap().try_lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_new_quorum_can_do_without_a_dead_node_after_a_while() {
    let nodes = mortals(3);
    nodes[2].set_down(true);
    let (locks, began) = (locks_of(&nodes), tokio::time::Instant::now());
    drop(locks.mutex("k").unwrap().try_lock_for(Duration::from_secs(300)).await.unwrap());
    let took = began.elapsed();
    assert!(took > Duration::from_secs(60), "they may have forgotten: {took:?} is too soon");
}

#[tokio::test]
async fn a_store_listed_twice_is_refused() {
    let store = Memory::new();
    let twins = [store.client(), store.client(), Memory::new()];
    let twins = twins.into_iter().map(|node| Arc::new(node) as Arc<dyn Backend>);
    let locks = Locks::new(Arc::new(Quorum::new(named(twins)).unwrap()));
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(refused.to_string().contains("the same store"), "{refused}");
    assert!(!refused.is_transient());
}

#[tokio::test]
async fn a_replica_beside_its_primary_is_refused() {
    let (primary, other) = (RedisServer::start(), RedisServer::start());
    let of = ["--replicaof", "127.0.0.1", &primary.port().to_string()].map(str::to_owned);
    let replica = RedisServer::start_with(RedisServerOptions { args: of.into() });
    let node = |server: &RedisServer| Arc::new(Redis::open(&server.url()).unwrap()) as _;
    let nodes = [&primary, &other, &replica].into_iter().map(node);
    let locks = Locks::new(Arc::new(Quorum::new(named(nodes)).unwrap()));
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(refused.to_string().contains("is a replica"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn two_nodes_are_refused_and_an_even_number_gives_a_warning() {
    let two = mortals(2).into_iter().map(|node| node as Arc<dyn Backend>);
    assert!(Quorum::new(named(two)).unwrap_err().to_string().contains("between 3 and 31"));
    let nodes = mortals(4);
    let quorum = quorum_of(&nodes);
    assert_eq!((quorum.nodes(), quorum.majority()), (4, 3));
    let warnings = quorum.probe().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("even number")), "{warnings:?}");
    let locks = locks_of(&nodes);
    drop(locks.mutex("all").unwrap().lock().await.unwrap());
    nodes[0].set_down(true);
    drop(locks.mutex("three").unwrap().lock().await.unwrap());
    nodes[1].set_down(true);
    let refused = locks.mutex("two").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::NoQuorum { needed: 3, .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn two_lists_of_nodes_are_not_mixed() {
    let nodes = mortals(5);
    drop(locks_of(&nodes[..3]).mutex("k").unwrap().lock().await.unwrap());
    for list in [&[0, 1, 2, 3, 4][..], &[0, 3, 4], &[0, 1, 3]] {
        let node = |at: &usize| (format!("node-{at}"), Arc::clone(&nodes[*at]) as Arc<dyn Backend>);
        let locks = Locks::new(Arc::new(Quorum::new(list.iter().map(node)).unwrap()));
        let refused = locks.mutex("other").unwrap().try_lock().await.unwrap_err();
        assert!(refused.to_string().contains("quorum of other nodes"), "{refused}");
        assert!(!refused.is_transient());
    }
    drop(locks_of(&nodes[..3]).mutex("again").unwrap().lock().await.unwrap());
}

/// A client with a short `max_ttl` would let a node that lost its data vote while a lease of
/// another client lives; one that calls its nodes persistent would let it vote at once.
#[tokio::test(start_paused = true)]
async fn a_client_with_other_safety_options_is_refused() {
    let nodes = mortals(3);
    let backends = || nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Backend>);
    let client =
        |options| Locks::new(Arc::new(Quorum::with_options(named(backends()), options).unwrap()));
    let default = QuorumOptions::default();
    let held = client(default).mutex("k").unwrap().lock().await.unwrap();
    for (options, values) in [
        (default.max_ttl(Duration::from_secs(2)), ["max_ttl_ms=2000", "60000"]),
        (default.max_ttl(Duration::from_secs(600)), ["max_ttl_ms=600000", "60000"]),
        (default.persistent(true), ["persistent=true", "false"]),
    ] {
        nodes[0].forget();
        let short = client(options).configure(|o| o.ttl(Duration::from_secs(1))).unwrap();
        let refused = short.mutex("other").unwrap().try_lock().await.unwrap_err();
        assert!(!refused.is_transient(), "{refused}");
        let text = refused.to_string();
        assert!(values.iter().all(|value| text.contains(value)), "{text}");
    }
    assert!(held.is_held());
    let patient = default.node_timeout(Duration::from_secs(5));
    drop(client(patient).mutex("again").unwrap().lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_could_outlive_a_quarantine_is_refused() {
    let locks = locks_of(&mortals(3)).configure(|o| o.ttl(Duration::from_secs(61))).unwrap();
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(refused.to_string().contains("longer than max_ttl"), "{refused}");
}
