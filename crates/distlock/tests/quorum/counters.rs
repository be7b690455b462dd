//! Fences of a quorum whose nodes have one counter for all keys, as servers have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::backends::{Quorum, QuorumOptions};
use distlock::{Backend, Key, Label};
use distlock_core::{Answer, Ask, Claim, ClaimId, How, Target};

use crate::support::Servers;

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
    quorum.release(&Target::Claim(ask.claim.clone()), How::default()).await.ok();
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
        let evals = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
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

#[tokio::test]
async fn fences_go_on_when_a_server_that_forgot_votes_again() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum(options());
    let far = visit(&quorum, Some(now_us() + FAR)).await.unwrap();
    servers[0].restart();
    // It abstains until every lease that it can have granted is over.
    let mut next = None;
    for _ in 0..100 {
        servers[1].pause();
        let voted = tokio::time::timeout(Duration::from_millis(500), visit(&quorum, None)).await;
        servers[1].resume();
        next = voted.ok().flatten();
        if next.is_some() {
            break;
        }
        visit(&quorum, None).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let next = next.expect("it votes again");
    assert!(next > far, "{next} after {far}");
}
