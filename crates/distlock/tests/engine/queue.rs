//! Waiting in the store's queue: heartbeats keep the place, and find what a lost push left behind.

use std::time::Duration;

use distlock::{Error, Event};
use distlock_core::{Standing, Target};
use distlock_testkit::{ScriptedCall, ScriptedReply};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_waiting_form_asks_for_a_place() {
    let (backend, locks) = stage_with(|o| o.place(secs(2)).waiters_max(5));
    let _guard = hold(&locks, "k").await;
    let wait = backend.acquires()[0].1.wait.unwrap();
    assert_eq!((wait.place, wait.waiters_max), (secs(2), 5));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_go_out_four_times_a_place_counted_from_the_send() {
    let (backend, locks) = stage();
    backend.on_acquire(ScriptedReply::from(queued(7)).after(ms(300)));
    backend.always_renew(ScriptedReply::from(waiting(7)).after(ms(200)));
    let locking = start_lock(&locks).await;
    sleep(ms(4_500)).await;
    assert_eq!(renewed_at(&backend), [1, 2, 3, 4].map(secs));
    for (_, renewal) in backend.renewals() {
        assert_eq!((renewal.span, renewal.ticket), (secs(4), Some(7)));
        assert_eq!(renewal.claim.id, last_id(&backend));
    }
    assert!(!locking.is_finished() && locks.stats().waiting == 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_looks_exactly_when_the_lease_ahead_can_end() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_renew(ScriptedReply::from(first(7, ms(1_500))).after(ms(10)));
    backend.on_renew(first(7, ms(500)));
    backend.on_renew(Standing::Held { fence: 3 });
    let guard = start_lock(&locks).await.await.unwrap().unwrap();
    assert_eq!(renewed_at(&backend), [1_000, 2_000, 2_500].map(ms));
    assert_eq!((guard.fence(), guard.waited()), (3, ms(2_500)));
}

#[tokio::test(start_paused = true)]
async fn those_behind_do_not_look_early() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    let soon = distlock_core::QueuePosition { ticket: 7, ahead: 3, retry_after: Some(ms(10)) };
    backend.always_renew(Standing::Waiting(soon));
    let _locking = start_lock(&locks).await;
    sleep(ms(3_500)).await;
    assert_eq!(renewed_at(&backend), [1, 2, 3].map(secs));
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_takes_along_all_who_wait_at_its_key_and_nobody_else() {
    let (backend, locks) = stage();
    let mut waiting_calls = JoinSet::new();
    let mut start = async |key: &str, ticket| {
        backend.on_acquire(queued(ticket));
        let mutex = locks.mutex(key).unwrap();
        waiting_calls.spawn(async move { mutex.lock().await });
        settle().await;
    };
    backend.always_renew(waiting(9));
    start("k", 7).await;
    sleep(ms(600)).await;
    start("k", 8).await;
    start("other", 9).await;
    backend.forget_calls();
    sleep(ms(3_500)).await;
    let at_once = |call| match call {
        ScriptedCall::Renew { at, renewals } => Some((at, renewals.len())),
        _ => None,
    };
    let sent: Vec<_> = backend.calls().into_iter().filter_map(at_once).collect();
    let all = [(1_000, 2), (1_600, 1), (2_000, 2), (2_600, 1), (3_000, 2), (3_600, 1), (4_000, 2)];
    assert_eq!(sent, all.map(|(at, claims)| (ms(at), claims)));
}

#[tokio::test(start_paused = true)]
async fn whoever_listens_hears_how_the_line_gets_shorter() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_acquire(queued(7));
    backend.on_renew(waiting(7));
    backend.on_renew(first(7, secs(9)));
    let _guard = start_lock(&locks).await.await.unwrap().unwrap();
    let ahead = |event: &Event| match event {
        Event::Waiting { ahead, .. } => Some(*ahead),
        _ => None,
    };
    let told: Vec<_> = seen.lock().unwrap().iter().filter_map(ahead).collect();
    assert_eq!(told, [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_push_costs_one_heartbeat() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    let guard = start_lock(&locks).await.await.unwrap().unwrap();
    assert_eq!((guard.waited(), backend.count_renews()), (secs(1), 1));
}

#[tokio::test(start_paused = true)]
async fn a_hold_found_by_a_heartbeat_is_valid_for_a_place_counted_from_its_send() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_renew(ScriptedReply::from(Standing::Held { fence: 3 }).after(ms(400)));
    let guard = start_lock(&locks).await.await.unwrap().unwrap();
    assert_eq!(guard.remaining(), PLACE_VALID - ms(400));
    sleep(secs(1)).await;
    settle().await;
    assert_eq!(guard.remaining(), VALID, "then it is extended to the full ttl");
    assert_eq!(backend.renewals()[1].1.span, TTL);
}

#[tokio::test(start_paused = true)]
async fn a_lost_heartbeat_is_made_up_for_before_the_place_dies() {
    for hung in [true, false] {
        let (backend, locks) = stage();
        backend.on_acquire(queued(7));
        backend.on_renew(if hung { ScriptedReply::never() } else { ScriptedReply::transient() });
        backend.on_renew(if hung { ScriptedReply::never() } else { ScriptedReply::transient() });
        backend.always_renew(waiting(7));
        let locking = start_lock(&locks).await;
        sleep(secs(10)).await;
        let beats = renewed_at(&backend);
        assert!(beats[2] < secs(4), "three tries within the life of a place: {beats:?}");
        assert!(beats.windows(2).all(|p| p[1] - p[0] >= ms(500)), "no burst: {beats:?}");
        assert!(!locking.is_finished());
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_gone_is_asked_for_anew_under_another_id() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_acquire(queued(7));
    backend.on_acquire(queued(9));
    backend.on_renew(Standing::Gone);
    let guard = start_lock(&locks).await.await.unwrap().unwrap();
    let asked = backend.acquires();
    assert_ne!(asked[0].1.claim.id, asked[1].1.claim.id);
    assert_eq!(asked_at(&backend), [secs(0), secs(1)]);
    assert_eq!((locks.stats().places_lost, guard.attempts()), (1, 2));
    assert_eq!(count(&seen, |event| matches!(event, Event::PlaceLost { .. })), 1);
    let released: Vec<_> = backend.releases().into_iter().map(|(_, target, _)| target).collect();
    assert_eq!(released, [Target::Claim(asked[0].1.claim.clone())], "the closing release");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_went_back_does_not_silence_the_heartbeats() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_renew(waiting(3));
    let mutex = locks.mutex("k").unwrap();
    let locking = timeout(secs(60), mutex.lock()).await;
    assert!(matches!(locking, Ok(Ok(_))), "hangs: {:?}", renewed_at(&backend));
}

#[tokio::test(start_paused = true)]
async fn many_waiters_share_the_heartbeat_calls() {
    let (backend, locks) = stage();
    backend.always_acquire(queued(7));
    backend.always_renew(waiting(7));
    let mut waiters = Vec::new();
    for _ in 0..500 {
        waiters.push(start_lock(&locks).await);
    }
    backend.forget_calls();
    sleep(secs(10)).await;
    let (calls, beats) = (backend.count_renews(), backend.renewals().len());
    assert!((8..=12).contains(&calls), "{calls} calls for {beats} heartbeats");
    assert_eq!((locks.stats().waiting, locks.stats().tasks), (500, 1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_sends_no_further_heartbeat() {
    let (backend, locks) = stage();
    queue_up(&backend);
    let late = locks.mutex("k").unwrap().try_lock_for(ms(1_500)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
    sleep(secs(60)).await;
    assert_eq!((renewed_at(&backend), backend.count_releases()), (vec![secs(1)], 1));
    assert_eq!(locks.stats().tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_heartbeat_of_one_key_delays_no_other() {
    let (backend, locks) = stage();
    backend.always_acquire(queued(7));
    backend.always_renew(waiting(7));
    backend.on_renew(ScriptedReply::never());
    backend.on_renew(Standing::Held { fence: 3 });
    let began = Instant::now();
    let (one, two) = (locks.mutex("a").unwrap(), locks.mutex("b").unwrap());
    let (one, two) = tokio::join!(timeout(secs(3), one.lock()), timeout(secs(3), two.lock()));
    let winners = [one, two].into_iter().filter_map(Result::ok).filter_map(Result::ok);
    let waited: Vec<Duration> = winners.map(|guard| guard.waited()).collect();
    assert_eq!((waited, began.elapsed()), (vec![secs(1)], secs(3)));
}
