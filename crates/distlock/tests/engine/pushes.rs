//! A push is a shortcut: trusted under the right ticket, for what its place was good for.

use distlock_core::{Push, Standing};
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_push_under_the_right_ticket_grants_at_once() {
    let (backend, locks) = stage();
    queue_up(&backend);
    let locking = start_lock(&locks).await;
    let began = Instant::now();
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!((guard.fence(), guard.attempts(), began.elapsed()), (42, 1, ms(0)));
    assert_eq!((guard.remaining(), backend.count_renews()), (PLACE_VALID, 0));
}

#[tokio::test(start_paused = true)]
async fn a_push_counts_only_with_the_full_ttl_where_that_is_asked_for() {
    let (backend, locks) = stage_with(distlock::Options::full_ttl);
    queue_up(&backend);
    let locking = start_lock(&locks).await;
    let id = last_id(&backend);
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!((guard.remaining(), guard.attempts()), (VALID, 2));
    assert_eq!(last_id(&backend), id, "asking again under the same claim extends the grant");
}

#[tokio::test(start_paused = true)]
async fn a_push_under_another_ticket_or_id_is_ignored() {
    let (backend, locks) = stage();
    queue_up(&backend);
    let locking = start_lock(&locks).await;
    push(&backend, 6, 42);
    push(&backend, 8, 42);
    let id = distlock::ClaimId::from_bytes([9; 16]);
    backend.push(Push::Granted { id, ticket: 7, fence: 42 });
    backend.push(Push::Broken { id: last_id(&backend) });
    sleep(ms(5_500)).await;
    assert!(!locking.is_finished() && locks.stats().waiting == 1);
}

#[tokio::test(start_paused = true)]
async fn a_push_that_overtakes_its_own_place_waits_for_it() {
    for (pushed, granted) in [(7, true), (6, false)] {
        let (backend, locks) = stage();
        let (gate, reply) = ScriptedReply::from(queued(7)).gated();
        backend.on_acquire(reply);
        backend.always_renew(waiting(7));
        let locking = start_lock(&locks).await;
        gate.reached().await;
        push(&backend, pushed, 42);
        settle().await;
        gate.open();
        settle().await;
        assert_eq!(locking.is_finished(), granted, "ticket {pushed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_echo_before_the_place_does_not_hide_the_push_that_belongs_to_it() {
    let (backend, locks) = stage();
    let (gate, reply) = ScriptedReply::from(queued(7)).gated();
    backend.on_acquire(reply);
    backend.always_renew(waiting(7));
    let locking = start_lock(&locks).await;
    gate.reached().await;
    push(&backend, 6, 41);
    push(&backend, 7, 42);
    settle().await;
    gate.open();
    settle().await;
    assert!(locking.is_finished(), "the push under ticket 7 was dropped with the echo");
}

#[tokio::test(start_paused = true)]
async fn a_pushed_grant_counts_from_the_last_acknowledged_send() {
    let slow = || ScriptedReply::from(waiting(7)).after(ms(200));
    for (beat, from) in [
        (slow(), secs(1)),
        (ScriptedReply::never(), secs(0)),
        (ScriptedReply::transient(), secs(0)),
    ] {
        let (backend, locks) = stage();
        backend.on_acquire(ScriptedReply::from(queued(7)).after(ms(100)));
        backend.on_renew(beat);
        let locking = start_lock(&locks).await;
        sleep(ms(1_490)).await;
        push(&backend, 7, 42);
        let guard = locking.await.unwrap().unwrap();
        assert_eq!(guard.remaining(), from + PLACE_VALID - ms(1_490), "from {from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_answer_that_arrives_after_the_push_still_extends_the_grant() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_renew(ScriptedReply::from(waiting(7)).after(ms(300)));
    let locking = start_lock(&locks).await;
    sleep(ms(1_100)).await;
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!(guard.remaining(), PLACE_VALID - ms(1_100));
    sleep(ms(300)).await;
    assert_eq!(guard.remaining(), secs(1) + PLACE_VALID - ms(1_400));
}

#[tokio::test(start_paused = true)]
async fn a_held_answer_that_arrives_after_the_push_extends_the_grant_by_a_place() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_renew(ScriptedReply::from(Standing::Held { fence: 42 }).after(ms(300)));
    let locking = start_lock(&locks).await;
    sleep(ms(1_100)).await;
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    sleep(ms(300)).await;
    assert_eq!(guard.remaining(), secs(1) + PLACE_VALID - ms(1_400));
}

#[tokio::test(start_paused = true)]
async fn a_pushed_grant_is_extended_to_the_full_ttl_a_quarter_place_later() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    let locking = start_lock(&locks).await;
    sleep(ms(500)).await;
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    sleep(ms(999)).await;
    assert_eq!(backend.count_renews(), 0);
    sleep(ms(1)).await;
    settle().await;
    assert_eq!((renewed_at(&backend), guard.remaining()), (vec![ms(1_500)], VALID));
    let renewal = &backend.renewals()[0].1;
    assert_eq!((renewal.span, renewal.ticket), (TTL, None));
    sleep(ms(10_001)).await;
    assert_eq!(renewed_at(&backend), [ms(1_500), ms(11_500)], "from then on as any other");
}

#[tokio::test(start_paused = true)]
async fn a_short_hold_pays_for_no_extension() {
    let (backend, locks) = stage();
    queue_up(&backend);
    let locking = start_lock(&locks).await;
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    sleep(ms(990)).await;
    guard.release().await.unwrap();
    sleep(secs(60)).await;
    assert_eq!((backend.count_renews(), backend.count_releases()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_push_with_next_to_no_validity_left_is_asked_again_under_the_same_id() {
    for (at, again) in [(ms(3_900), false), (ms(3_955), true), (ms(3_990), true), (ms(9_000), true)]
    {
        let (backend, locks) = stage();
        backend.on_acquire(queued(7));
        backend.always_renew(ScriptedReply::never());
        let locking = start_lock(&locks).await;
        sleep(at).await;
        push(&backend, 7, 42);
        let guard = locking.await.unwrap().unwrap();
        let asked = backend.acquires();
        assert_eq!((asked.len(), guard.fence()), (if again { 2 } else { 1 }, 42), "{at:?}");
        assert_eq!(asked[0].1.claim, asked.last().unwrap().1.claim, "{at:?}");
        let left = if again { VALID } else { PLACE_VALID - at };
        assert_eq!(guard.remaining(), left, "{at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_pushed_is_good_for_the_full_ttl_when_it_is_told() {
    let (backend, locks) = stage();
    queue_up(&backend);
    let leases = locks.lease("k").unwrap();
    let asking = leases.clone();
    let acquiring = tokio::spawn(async move { asking.acquire().await });
    sleep(ms(500)).await;
    push(&backend, 7, 42);
    let lease = acquiring.await.unwrap().unwrap();
    assert_eq!((lease.fence(), leases.remaining(&lease)), (42, VALID));
    assert_eq!(backend.acquires()[0].1.claim, backend.acquires()[1].1.claim);
}

#[tokio::test(start_paused = true)]
async fn a_push_that_comes_twice_grants_once() {
    let (backend, locks) = stage();
    queue_up(&backend);
    let locking = start_lock(&locks).await;
    push(&backend, 7, 42);
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    guard.release().await.unwrap();
    queue_up(&backend);
    let next = locks.mutex("k").unwrap();
    assert!(timeout(ms(900), next.lock()).await.is_err(), "the second push went to another claim");
    assert_eq!(locks.stats().grants, 1);
}

#[tokio::test(start_paused = true)]
async fn pushes_are_listened_for_before_the_first_ask() {
    let (backend, locks) = stage();
    let _guard = hold(&locks, "k").await;
    let calls = backend.calls();
    assert!(matches!(calls[0], distlock_testkit::ScriptedCall::Pushes { .. }), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn after_an_interruption_everybody_who_waits_asks_at_once_where_it_stands() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    let locking = start_lock(&locks).await;
    sleep(ms(300)).await;
    backend.push(Push::Interrupted);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!((renewed_at(&backend), guard.waited()), (vec![ms(300)], ms(300)));
}

#[tokio::test(start_paused = true)]
async fn an_interruption_during_a_heartbeat_is_followed_by_another_heartbeat() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    // Decided by the store before the grant, answered after the interruption.
    let (gate, reply) = ScriptedReply::from(waiting(7)).gated();
    backend.on_renew(reply);
    backend.always_renew(Standing::Held { fence: 42 });
    let locking = start_lock(&locks).await;
    gate.reached().await;
    backend.push(Push::Interrupted);
    settle().await;
    assert_eq!(backend.count_renews(), 1, "not beside the one under way");
    gate.open();
    let guard = timeout(ms(10), locking).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.fence(), 42);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_before_the_answer_to_an_ask_is_followed_by_a_heartbeat() {
    let (backend, locks) = stage();
    // Queued and granted by the store; the push is lost before the answer arrives.
    let (gate, reply) = ScriptedReply::from(queued(7)).gated();
    backend.on_acquire(reply);
    backend.always_renew(Standing::Held { fence: 42 });
    let locking = start_lock(&locks).await;
    gate.reached().await;
    backend.push(Push::Interrupted);
    settle().await;
    gate.open();
    let guard = timeout(ms(10), locking).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.fence(), 42);
}
