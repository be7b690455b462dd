//! Nodes that are known to be silent cost nothing: no call waits for them, and few ask them.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Quorum, QuorumOptions, Redis};
use distlock::{Backend, Locks};
use distlock_testkit::servers::{Flow, Proxy, RedisServer};
use tokio::time::{Instant, sleep};

use crate::support::{locks_of, mortals, named};

/// Time stands still unless a task waits for it: a call that takes none has waited for nothing.
#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_silent_nodes() {
    for hang in [true, false] {
        let nodes = mortals(5);
        let locks = locks_of(&nodes);
        let mutex = locks.mutex("k").unwrap();
        mutex.lock().await.unwrap().release().await.unwrap();
        for node in &nodes[..2] {
            if hang { node.set_hanging(true) } else { node.set_down(true) }
        }
        mutex.lock().await.unwrap().release().await.unwrap();
        // By now it is known.
        sleep(Duration::from_secs(2)).await;
        let calls = |at: usize| nodes[at].calls();
        let (silent, others) = (calls(0) + calls(1), calls(2) + calls(3) + calls(4));
        let began = Instant::now();
        for _ in 0..500 {
            mutex.try_lock().await.unwrap().release().await.unwrap();
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "a node was waited for");
        assert_eq!(calls(2) + calls(3) + calls(4) - others, 3 * 2 * 500, "one round each");
        let asked = calls(0) + calls(1) - silent;
        assert!(asked <= 8, "{asked} calls to nodes that are known to be silent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_asked_when_the_others_do_not_suffice() {
    let nodes = mortals(3);
    let mutex = locks_of(&nodes).mutex("k").unwrap();
    nodes[0].set_down(true);
    sleep(Duration::from_secs(11)).await;
    nodes[0].set_down(false);
    mutex.lock().await.unwrap().release().await.unwrap();
    nodes[0].set_down(true);
    mutex.lock().await.unwrap().release().await.unwrap();
    nodes[0].set_down(false);
    nodes[1].set_down(true);
    let guard = mutex.try_lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_a_silent_node_missed_is_given_to_it_when_it_is_back() {
    let nodes = mortals(3);
    let locks = locks_of(&nodes);
    drop(locks.mutex("warm").unwrap().lock().await.unwrap());
    nodes[2].set_down(true);
    drop(locks.mutex("warm").unwrap().lock().await.unwrap());
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    nodes[2].set_down(false);
    sleep(Duration::from_secs(25)).await;
    let holds = !nodes[2].inspect(guard.key()).await.unwrap().is_free();
    assert!(holds && guard.is_held(), "the renewals have not given it back");
    guard.release().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let seen = nodes[2].inspect(&distlock::Key::new("k").unwrap()).await.unwrap();
    assert!(seen.is_free(), "and the release does not forget it");
}

/// The same over sockets: requests to two servers are held back, as by servers that are stopped.
#[tokio::test]
async fn servers_that_are_known_to_be_silent_are_hardly_sent_anything() {
    const CYCLES: u64 = 100;
    let servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    let proxies: Vec<_> = servers[..2].iter().map(|server| Proxy::to(server.port())).collect();
    let through = proxies.iter().map(Proxy::url);
    let urls: Vec<_> = through.chain(servers[2..].iter().map(RedisServer::url)).collect();
    let node = |url: &String| {
        let url = format!("{url}?response_timeout_ms=20000");
        Arc::new(Redis::open(&url).unwrap()) as Arc<dyn Backend>
    };
    let options = QuorumOptions::default().node_timeout(Duration::from_secs(10));
    let quorum = Quorum::with_options(named(urls.iter().map(node)), options).unwrap();
    let mutex = Locks::new(Arc::new(quorum.clone())).mutex("k").unwrap();
    let lease = mutex.lock().await.unwrap().into_lease();
    assert_eq!(quorum.release_everywhere(lease.key(), lease.id()).await.released, 5);
    proxies.iter().for_each(|proxy| proxy.both(Flow::Hold));
    mutex.lock().await.unwrap().release().await.unwrap();
    sleep(options.node_timeout / 2 + Duration::from_millis(100)).await;
    let scripts = |server: &RedisServer| {
        let info = server.command(&["INFO", "commandstats"]);
        let evals = info.lines().find(|line| line.starts_with("cmdstat_fcall:")).unwrap();
        evals.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before: Vec<_> = servers.iter().map(scripts).collect();
    let began = Instant::now();
    for _ in 0..CYCLES {
        mutex.try_lock().await.unwrap().release().await.unwrap();
    }
    let tried = began.elapsed().as_millis() as u64 / 20 + 2;
    proxies.iter().for_each(|proxy| proxy.both(Flow::Pass));
    quorum.extensions().drain().await.ok();
    for (at, server) in servers.iter().enumerate() {
        let sent = scripts(server) - before[at];
        match at {
            0 | 1 => assert!(sent <= 4 + 2 * tried, "{sent} messages to silent server {at}"),
            _ => assert_eq!(sent, 2 * CYCLES, "one round for each call at server {at}"),
        }
    }
}
