//! Many who wait in one process: one heartbeat looks after them all, and misses nothing.

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use tokio::task::JoinSet;

use crate::support::*;

const CROWD: usize = 300;

/// A crowd that waits, each for a moment of its own with the lock.
async fn crowd(locks: &Locks) -> JoinSet<u64> {
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let mutex = locks.mutex(KEY).unwrap();
        crowd.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let fence = guard.fence();
            guard.release().await.unwrap();
            fence
        });
    }
    queued(locks, CROWD as u64).await;
    crowd
}

/// Waits until everybody of a crowd that is left has had the lock.
async fn all_get_in(crowd: &mut JoinSet<u64>) {
    while let Some(done) = tokio::time::timeout(ms(20_000), crowd.join_next()).await.unwrap() {
        done.unwrap();
    }
}

/// How often single places were looked at.
fn looks(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zmscore:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_only_waits_is_not_looked_at_one_by_one() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), patient(&server.url(), 5000));
    let held = lock(&a).await;
    let mut crowd = crowd(&b).await;
    // The first heartbeat brings those who came one after the other into step.
    pass(ms(2500)).await;
    let before = looks(&server);
    pass(ms(6000)).await;
    assert_eq!(looks(&server), before, "six heartbeats looked at single places");
    queued(&a, CROWD as u64).await;
    assert_eq!(b.stats().places_lost, 0);
    held.release().await.unwrap();
    let mut fences = std::collections::BTreeSet::new();
    while let Some(fence) = crowd.join_next().await {
        assert!(fences.insert(fence.unwrap()), "a fence was given out twice");
    }
    assert_eq!(fences.len(), CROWD);
    nothing_left(&server, ms(2000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_queue_was_deleted_queue_again() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), patient(&server.url(), 5000));
    let held = lock(&a).await;
    let mut crowd = crowd(&b).await;
    // An acquire whose reply is still on its way has no place to lose.
    until("all know that they wait", ms(10_000), async || b.stats().waiting == CROWD).await;
    // What a server that is short of memory may do: one key goes, the others stay.
    server.command(&["DEL", &format!("{MAIN}:qx")]);
    until("all are told", ms(10_000), async || b.stats().places_lost == CROWD as u64).await;
    held.release().await.unwrap();
    all_get_in(&mut crowd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_details_were_deleted_queue_again() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), patient(&server.url(), 5000));
    let held = lock(&a).await;
    let mut crowd = crowd(&b).await;
    server.command(&["DEL", &format!("{MAIN}:d")]);
    held.release().await.unwrap();
    all_get_in(&mut crowd).await;
    assert!(b.stats().places_lost > 0, "no client was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_hears_of_its_turn_by_a_heartbeat_if_pushes_are_lost() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), patient(&server.url(), 5000));
    let held = lock(&a).await;
    let mut crowd = crowd(&b).await;
    // A client that may push no longer leaves it to the heartbeat of the waiter to tell.
    server.command(&["ACL", "SETUSER", "default", "-publish"]);
    held.release().await.unwrap();
    for _ in 0..3 {
        let one = tokio::time::timeout(ms(10_000), crowd.join_next()).await.expect("its turn");
        one.unwrap().unwrap();
    }
    server.command(&["ACL", "SETUSER", "default", "+publish"]);
    all_get_in(&mut crowd).await;
}
