//! Part A: lost replies, late requests, releases that fail.

use std::time::Instant;

use distlock::{Error, HoldEnd, LossReason};
use distlock_testkit::servers::Flow;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_does_not_take_the_lock_twice() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    proxy.cut_after(0);
    let guard = lock(&a).await;
    assert!(guard.is_held());
    assert_eq!(guard.attempts(), 2, "the first reply was lost");
    assert_eq!(left(&server), [MAIN], "one key");
    let minted = server.command(&["GET", "distlock:fence"]);
    assert!(minted.contains(&guard.fence().to_string()), "one fence was minted: {minted}");
    assert_eq!(fence_at(&server), guard.fence());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_with_a_deadline_rides_out_a_lost_reply() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    proxy.cut_after(3);
    let guard = a.mutex(KEY).unwrap().try_lock_for(ms(5000)).await.unwrap();
    assert!(guard.is_held() && guard.attempts() == 2);
    assert_eq!(fence_at(&server), guard.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_never_come_do_not_take_the_lock_twice() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    proxy.replies(Flow::Swallow);
    let waiter = wait(&a);
    until("the server has granted it", ms(2000), async || !left(&server).is_empty()).await;
    let fence = fence_at(&server);
    // The reply is still on its way to the proxy that swallows it.
    pass(ms(200)).await;
    proxy.replies(Flow::Pass);
    let (_, guard) = waiter.await.unwrap();
    assert!(guard.is_held() && guard.attempts() > 1);
    assert_eq!(guard.fence(), fence, "asked again, granted once");
    assert!(matches!(try_lock(&locks(&server.url())).await, Err(Error::Held { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_reply_is_lost_waits_once() {
    let (server, proxy) = behind_proxy();
    let (a, b) = (connected(&proxy).await, locks(&server.url()));
    let held = lock(&b).await;
    proxy.cut_after(0);
    let waiter = wait(&a);
    queued(&b, 1).await;
    pass(ms(300)).await;
    assert_eq!(b.inspect(KEY).await.unwrap().waiters_total, 1);
    held.release().await.unwrap();
    let (_, guard) = waiter.await.unwrap();
    assert!(guard.is_held());
    assert!(b.inspect(KEY).await.unwrap().waiters.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_one_shot_call_that_lost_its_reply_frees_the_key() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await;
    proxy.cut_after(0);
    let error = try_lock(&a).await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)) && error.is_transient(), "{error}");
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_gave_up_frees_the_key_after_the_network_heals() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(60_000))).unwrap();
    proxy.replies(Flow::Swallow);
    let mutex = a.mutex(KEY).unwrap();
    let asking = tokio::spawn(async move { mutex.try_lock_for(ms(400)).await });
    until("the server has granted it", ms(350), async || !left(&server).is_empty()).await;
    proxy.both(Flow::Swallow);
    let result = asking.await.unwrap();
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
    assert_eq!(left(&server), [MAIN], "no release arrives");
    proxy.both(Flow::Pass);
    until("the release is acknowledged", ms(4000), async || a.stats().releasing == 0).await;
    nothing_left(&server, ms(100)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_arrives_after_its_release_takes_nothing() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(60_000))).unwrap();
    proxy.freeze();
    let error = try_lock(&a).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    until("the claim is given up", ms(4000), async || a.stats().releasing == 0).await;
    assert!(proxy.accepted() > 1, "the release took another connection");
    proxy.thaw();
    pass(ms(200)).await;
    assert_eq!(left(&server), [] as [&str; 0], "an orphan");
    assert!(try_lock(&locks(&server.url())).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_that_arrives_late_leaves_no_place() {
    let (server, proxy) = behind_proxy();
    let (a, b) = (connected(&proxy).await, locks(&server.url()));
    let a = a.configure(|o| o.place(ms(60_000))).unwrap();
    let held = lock(&b).await;
    proxy.freeze();
    assert!(tokio::time::timeout(ms(50), lock(&a)).await.is_err());
    until("the claim is given up", ms(4000), async || a.stats().releasing == 0).await;
    proxy.thaw();
    pass(ms(200)).await;
    assert_eq!(b.inspect(KEY).await.unwrap().waiters_total, 0);
    held.release().await.unwrap();
    nothing_left(&server, ms(500)).await;
}

/// The old connection is not killed after a reconnect: what it still carries is buried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_of_an_ask_that_was_repeated_takes_nothing() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(60_000))).unwrap();
    proxy.freeze();
    let guard = lock(&a).await;
    assert!(guard.attempts() > 1 && proxy.accepted() > 1, "asked again over a new connection");
    drop(guard);
    until("it is released", ms(6000), async || a.stats().releasing == 0).await;
    nothing_left(&server, ms(100)).await;
    proxy.thaw();
    pass(ms(200)).await;
    assert_eq!(left(&server), [] as [&str; 0], "an orphan");
    assert!(try_lock(&locks(&server.url())).await.is_ok());
}

/// Late renewals and releases of an old connection change nothing for the holder now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_connection_still_carries_does_not_touch_the_next_holder() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(900))).unwrap();
    let b = locks(&server.url()).configure(|o| o.ttl(ms(60_000))).unwrap();
    let guard = lock(&a).await;
    // The next renewal is caught in the old connection; those over a new one are refused.
    proxy.freeze();
    proxy.refuse();
    assert!(matches!(guard.lost().await, LossReason::Unreachable | LossReason::Expired));
    let next = lock(&b).await;
    // A grant from the queue is extended to the full ttl a moment later, by its own client.
    let ends_in = || number(&server, &["PTTL", MAIN]);
    until("the grant is extended", ms(5000), async || ends_in() > 10_000).await;
    let before = ends_in();
    proxy.thaw();
    pass(ms(200)).await;
    assert_eq!(fence_at(&server), next.fence());
    assert!(ends_in() <= before, "renewed by another client");
    assert_eq!(next.release().await.unwrap(), HoldEnd::Released);
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_not_answered_is_uncertain_and_repeated() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(60_000))).unwrap();
    let guard = lock(&a).await;
    let watch = guard.watch();
    proxy.both(Flow::Swallow);
    let releasing = tokio::spawn(guard.release());
    until("no longer held", ms(100), async || !watch.is_held()).await;
    let error = releasing.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::ReleaseUncertain { .. }), "{error}");
    assert_eq!(left(&server), [MAIN], "the requests are swallowed");
    proxy.both(Flow::Pass);
    nothing_left(&server, ms(6000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_guard_is_released_after_an_outage() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(60_000))).unwrap();
    let guard = lock(&a).await;
    proxy.refuse();
    proxy.cut();
    drop(guard);
    pass(ms(300)).await;
    assert_eq!(left(&server), [MAIN]);
    proxy.admit();
    nothing_left(&server, ms(4000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_does_not_touch_the_next_holder() {
    let (server, proxy) = behind_proxy();
    let a = connected(&proxy).await.configure(|o| o.ttl(ms(200))).unwrap();
    let b = locks(&server.url());
    let late = lock(&a).await;
    proxy.both(Flow::Hold);
    let began = Instant::now();
    let next = lock(&b).await;
    assert!(began.elapsed() < ms(3000) && !late.is_held());
    proxy.both(Flow::Pass);
    let end = late.release().await.unwrap();
    assert!(matches!(end, HoldEnd::Lost(_)), "{end:?}");
    assert!(next.is_held());
    assert_eq!(fence_at(&server), next.fence());
    assert_eq!(next.release().await.unwrap(), HoldEnd::Released);
}
