//! Part B: partitions, half-open connections and slow networks.

use std::time::{Duration, Instant};

use distlock::{Error, Locks, LossReason};
use distlock_testkit::servers::{Flow, RedisServer};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_partition_is_ridden_out() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    let guard = lock(&a).await;
    for round in 0..4 {
        proxy.both(Flow::Hold);
        pass(TTL / 3).await;
        proxy.both(Flow::Pass);
        let healed = a.stats().renewals;
        until("it is renewed after the partition", TTL, async || a.stats().renewals > healed).await;
        assert!(guard.is_held(), "round {round}");
    }
    assert_eq!(a.stats().losses, 0);
    assert_eq!(fence_at(&server), guard.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_again_and_again_lose_nothing() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    let guard = lock(&a).await;
    let began = Instant::now();
    while began.elapsed() < 2 * TTL {
        proxy.cut();
        pass(ms(40)).await;
    }
    assert!(guard.is_held() && a.stats().renewals > 0);
    assert_eq!(fence_at(&server), guard.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_partition_is_noticed_before_another_client_holds() {
    let (server, proxy) = behind_proxy();
    let (a, b) = (connected(&proxy).await, locks(&server.url()));
    let guard = lock(&a).await;
    let next = wait(&b);
    queued(&b, 1).await;
    proxy.both(Flow::Hold);
    let (cut_at, remaining) = (Instant::now(), guard.remaining());
    let reason = guard.lost().await;
    let lost_at = Instant::now();
    assert_eq!(reason, LossReason::Unreachable);
    let lasted = lost_at - cut_at;
    assert!(lasted + ms(2) >= remaining, "lost after {lasted:?}, valid for {remaining:?}");
    assert!(lasted <= TTL + ms(500), "lost after {lasted:?}");
    let (entered_at, next) = next.await.unwrap();
    assert!(lost_at < entered_at, "two at once for {:?}", lost_at - entered_at);
    assert!(next.fence() > guard.fence());
    proxy.both(Flow::Pass);
    let healed = Instant::now();
    until("it is connected again", ms(1000), async || a.inspect(KEY).await.is_ok()).await;
    assert!(matches!(try_lock(&a).await, Err(Error::Held { .. })), "{:?}", healed.elapsed());
    assert!(!guard.is_held(), "lost is final");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_alone_are_lost_and_so_is_the_hold() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    let guard = lock(&a).await;
    proxy.replies(Flow::Hold);
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    assert!(began.elapsed() <= TTL + ms(500), "{:?}", began.elapsed());
    assert_eq!(left(&server), [MAIN], "the server was renewed all the while");
    drop(guard);
    proxy.replies(Flow::Pass);
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_noticed_within_the_response_timeout() {
    let (_server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    proxy.silence();
    let began = Instant::now();
    let error = try_lock(&a).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(began.elapsed() < ms(1000), "{:?}", began.elapsed());
    drop(try_lock(&a).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_closed_while_idle_fails_no_call() {
    let (_server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    for round in 0..5 {
        proxy.cut();
        pass(ms(100)).await;
        let guard = try_lock(&a).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        proxy.cut();
        pass(ms(100)).await;
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_outlives_a_half_open_connection() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    let guard = lock(&a).await;
    proxy.silence();
    pass(2 * TTL).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    assert_eq!(fence_at(&server), guard.fence());
}

/// The response timeout is longer than the keeper waits for a renewal of so short a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_lease_outlives_a_half_open_connection() {
    let (_server, proxy) = behind_proxy();
    let a = patient(&proxy.url(), 1000).configure(|o| o.ttl(ms(2400))).unwrap();
    let guard = lock(&a).await;
    proxy.silence();
    pass(ms(3500)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
}

/// A waiter behind a connection that goes silent gets the lock over a new one.
async fn waiter_on_a_silent_connection(response_ms: u64, place: Duration) {
    let (server, proxy) = behind_proxy();
    let set = |locks: Locks| locks.configure(|o| o.place(place)).unwrap();
    let (a, b) = (set(patient(&proxy.url(), response_ms)), patient(&server.url(), 5000));
    let held = lock(&b).await;
    let next = wait(&a);
    queued(&b, 1).await;
    proxy.silence();
    pass(ms(500)).await;
    held.release().await.unwrap();
    let (_, guard) = tokio::time::timeout(ms(5000), next).await.expect("it wakes").unwrap();
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_outlives_a_half_open_connection() {
    waiter_on_a_silent_connection(300, ms(4000)).await;
}

/// The response timeout is longer than the keeper waits for the answer to a heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_with_a_short_place_outlives_a_half_open_connection() {
    waiter_on_a_silent_connection(1000, ms(2000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_as_slow_as_the_lease_never_makes_a_dead_guard() {
    let ttl = ms(400);
    for (share, can_hold) in [(0.4, true), (0.9, true), (1.1, false)] {
        let (server, proxy) = behind_proxy();
        let a = patient(&proxy.url(), 3000).configure(|o| o.ttl(ttl).place(ttl)).unwrap();
        a.inspect(KEY).await.unwrap();
        proxy.both(Flow::Delay(ttl.mul_f64(share / 2.0)));
        match a.mutex(KEY).unwrap().try_lock_for(8 * ttl).await {
            Ok(guard) => {
                let left = guard.remaining();
                assert!(can_hold && guard.is_held(), "{share}: held with {left:?}");
                assert!(left <= ttl, "{share}: {left:?} left");
            }
            Err(Error::Lost { reason: LossReason::TooSlow, .. } | Error::Timeout { .. }) => {
                assert!(share > 0.5, "{share}: could have been held");
            }
            Err(error) => panic!("{share}: {error}"),
        }
        proxy.both(Flow::Pass);
        nothing_left(&server, ms(4000)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_trip_of_a_quarter_of_the_lease_keeps_the_hold() {
    let server = RedisServer::start();
    let proxy = distlock_testkit::servers::Proxy::to(server.port());
    let ttl = ms(1200);
    let a = patient(&proxy.url(), 3000).configure(|o| o.ttl(ttl)).unwrap();
    let guard = lock(&a).await;
    proxy.both(Flow::Delay(ttl / 8));
    pass(3 * ttl).await;
    assert!(guard.is_held(), "lost although every renewal is answered: {:?}", guard.loss());
}
