//! Fences of a quorum whose nodes have one counter for all keys, as servers have.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::backends::{Quorum, QuorumOptions, Redis};
use distlock::{Backend, Key, Label};
use distlock_core::{Answer, Ask, Claim, ClaimId, ReleaseOptions, Renewal, Target};
use distlock_testkit::servers::{Proxy, RedisServer};
use futures_util::StreamExt;

use crate::support::{Servers, named};

/// Further than the clock gets during a test: twelve days of microseconds.
const FAR: u64 = 1 << 40;

fn options() -> QuorumOptions {
    QuorumOptions::default().max_ttl(Duration::from_secs(2)).node_timeout(Duration::from_secs(20))
}

/// Takes a key of its own and lets it go again; none while too few nodes vote.
async fn visit(quorum: &Quorum, floor: Option<u64>) -> Option<u64> {
    let id = ClaimId::random().unwrap();
    let claim = Claim::new(Key::new(id.reveal()).unwrap(), id);
    let mut ask = Ask::new(claim, Label::new("owner", "me").unwrap(), Duration::from_secs(2));
    ask.fence_floor = floor;
    let answer = quorum.acquire(&ask).await;
    quorum.release(&Target::Claim(ask.claim.clone()), ReleaseOptions::default()).await.ok();
    match answer {
        Ok(Answer::Granted { fence }) => Some(fence),
        _ => None,
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[tokio::test]
async fn fences_stay_near_the_clock_and_cost_one_round_trip() {
    let servers = Servers::start(3);
    let quorum = servers.quorum(options());
    for _ in 0..3 {
        visit(&quorum, None).await.unwrap();
    }
    let calls = || {
        let info = servers[0].command(&["INFO", "commandstats"]);
        let evals = info.lines().find(|line| line.starts_with("cmdstat_fcall:")).unwrap();
        let calls = evals.split(['=', ',']).nth(1).unwrap();
        calls.parse::<u64>().unwrap()
    };
    let before = calls();
    let mut last = 0;
    for _ in 0..50 {
        let fence = visit(&quorum, None).await.unwrap();
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    assert!(last < now_us() + 10_000_000, "the fence {last} is ahead of the clock");
    let each = (calls() - before) as f64 / 50.0;
    assert!(each <= 2.2, "{each} calls to each node for an acquire and a release");
}

/// A fence far ahead that only the first three servers know of.
async fn far_fence(servers: &Servers) -> u64 {
    let proxies: Vec<_> = servers[3..].iter().map(|server| Proxy::to(server.port())).collect();
    let urls = servers[..3].iter().map(RedisServer::url).chain(proxies.iter().map(Proxy::url));
    let node = |url: String| Arc::new(Redis::open(&url).unwrap()) as Arc<dyn Backend>;
    let quorum = Quorum::with_options(named(urls.map(node)), options()).unwrap();
    visit(&quorum, None).await.unwrap();
    for proxy in &proxies {
        proxy.refuse();
        proxy.cut();
    }
    visit(&quorum, Some(now_us() + FAR)).await.unwrap()
}

/// Looks at the servers and takes nothing, so that this client learns of no fence.
async fn join(quorum: &Quorum) {
    let claim = Claim::new(Key::new("nothing").unwrap(), ClaimId::random().unwrap());
    let nothing = [Renewal::hold(claim, Duration::from_secs(2))];
    let _ = quorum.renew(&nothing).collect::<Vec<_>>().await;
}

/// The majority that votes here has no node in it that knew of the fence and remembers it.
#[tokio::test]
async fn fences_go_on_when_a_server_that_forgot_votes_again() {
    let mut servers = Servers::start(5);
    let far = far_fence(&servers).await;
    servers[0].restart();
    // It abstains until every lease that it can have granted is over.
    for _ in 0..100 {
        let fresh = servers.quorum(options());
        join(&fresh).await;
        servers[1..3].iter().for_each(RedisServer::pause);
        let voted = visit(&fresh, None).await;
        servers[1..3].iter().for_each(RedisServer::resume);
        if let Some(next) = voted {
            assert!(next > far, "{next} after {far}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it never votes again");
}
