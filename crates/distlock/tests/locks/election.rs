//! Elections: one leader, an order of candidates, and observers that see who leads.

use distlock::{Error, LossReason};
use distlock_testkit::Faults;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use crate::support::{World, crash, go, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn candidates_lead_in_the_order_in_which_they_came() {
    let world = World::new();
    let first = world.locks().election("k").unwrap().campaign().await.unwrap();
    let mut terms = vec![first.term()];
    let mut campaigns = Vec::new();
    for number in 1..4 {
        let locks = world.locks().configure(|o| o.owner(format!("node-{number}"))).unwrap();
        let election = locks.election("k").unwrap();
        campaigns.push(go(async move { election.campaign().await }));
        queued(&locks, "k", number).await;
    }
    let election = world.locks().election("k").unwrap();
    let standby = election.standby().await.unwrap();
    let names: Vec<_> = standby.iter().map(|waiter| waiter.owner.as_str()).collect();
    assert_eq!(names, ["node-1", "node-2", "node-3"]);
    first.resign().await.unwrap();
    for (campaign, number) in campaigns.into_iter().zip(1..) {
        let leadership = campaign.await.unwrap().unwrap();
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!(leader.name.as_str(), format!("node-{number}"));
        assert_eq!(leader.term, leadership.term());
        terms.push(leadership.term());
        leadership.resign().await.unwrap();
    }
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    assert_eq!(election.leader().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_within_its_lease() {
    let world = World::new();
    let short = |locks: distlock::Locks| locks.configure(|o| o.ttl(secs(2))).unwrap();
    let dead = short(world.locks()).election("k").unwrap().campaign().await.unwrap();
    let next = short(world.locks()).election("k").unwrap();
    let began = Instant::now();
    crash(dead.into_guard());
    let _leads = next.campaign().await.unwrap();
    assert!(began.elapsed() <= secs(2) + ms(250), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn work_stops_at_loss_and_starts_again_with_a_later_term() {
    let world = World::new();
    let operator = world.locks();
    let election = world.locks().election("k").unwrap();
    let breaks = operator.clone();
    let broken = tokio::spawn(async move {
        for _ in 0..2 {
            pass(secs(1)).await;
            let leader = breaks.election("k").unwrap().leader().await.unwrap().unwrap();
            breaks.break_hold("k", leader.term).await.unwrap();
        }
    });
    let mut terms = Vec::new();
    let done = election.run(async |leadership| {
        terms.push(leadership.term());
        if terms.len() < 3 {
            pass(secs(60)).await;
            panic!("the work of a lost term goes on");
        }
        "third"
    });
    assert_eq!(done.await.unwrap(), "third");
    broken.await.unwrap();
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    assert!(operator.inspect("k").await.unwrap().is_free(), "it has resigned");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_the_store_stops_and_leads_again_when_it_is_back() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let election = locks.configure(|o| o.ttl(secs(2))).unwrap().election("k").unwrap();
    let cut = network.clone();
    tokio::spawn(async move {
        pass(secs(1)).await;
        cut.set(Faults { lose_request: 1.0, response_timeout: ms(100), ..Faults::NONE });
        pass(secs(600)).await;
        cut.heal();
    });
    let (began, mut lost_at) = (Instant::now(), Vec::new());
    let again = election.run(async |leadership| {
        if began.elapsed() < secs(1) {
            lost_at.push(leadership.lost().await);
            std::future::pending::<()>().await;
        }
        began.elapsed()
    });
    let led_again = timeout(secs(700), again).await.unwrap().unwrap();
    assert!(led_again >= secs(600), "{led_again:?}");
    assert!(lost_at.is_empty(), "the work is dropped in the instant of the loss");
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_every_leader_and_none_between() {
    let world = World::new();
    let watching = world.locks().election("k").unwrap().look_every(ms(50)).unwrap();
    let mut seen = watching.observe();
    assert!(matches!(seen.next().await, Some(Ok(None))));
    for name in ["one", "two"] {
        let locks = world.locks().configure(|o| o.owner(name)).unwrap();
        let leadership = locks.election("k").unwrap().campaign().await.unwrap();
        let leader = seen.next().await.unwrap().unwrap().unwrap();
        assert_eq!((leader.name.as_str(), leader.term), (name, leadership.term()));
        assert!(timeout(secs(5), seen.next()).await.is_err(), "a leader that stays is told once");
        leadership.resign().await.unwrap();
        assert!(matches!(seen.next().await, Some(Ok(None))));
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_reports_a_store_that_is_away_once_and_sees_the_leader_again() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let mut seen = locks.election("k").unwrap().observe();
    let leadership = world.locks().election("k").unwrap().campaign().await.unwrap();
    assert!(matches!(seen.next().await, Some(Ok(Some(_)))));
    network.set(Faults { lose_request: 1.0, response_timeout: ms(100), ..Faults::NONE });
    assert!(matches!(seen.next().await, Some(Err(error)) if error.is_transient()));
    assert!(timeout(secs(20), seen.next()).await.is_err());
    network.heal();
    let leader = seen.next().await.unwrap().unwrap().unwrap();
    assert_eq!(leader.term, leadership.term());
    locks.close().await.unwrap();
    assert!(seen.next().await.is_none(), "closed locks observe nothing");
}

#[tokio::test(start_paused = true)]
async fn a_term_can_be_limited_and_a_campaign_bounded() {
    let world = World::new();
    let election = world.locks().election("k").unwrap();
    let limited = election.clone().configure(|o| o.max_hold(secs(1))).unwrap();
    let leadership = limited.campaign().await.unwrap();
    assert!(matches!(election.try_campaign().await, Err(Error::Held { .. })));
    assert!(matches!(election.campaign_for(ms(100)).await, Err(Error::Timeout { .. })));
    assert_eq!(leadership.lost().await, LossReason::MaxHold);
    assert!(election.look_every(ms(9)).is_err());
}
