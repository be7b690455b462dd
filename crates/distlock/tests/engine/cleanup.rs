//! Whatever ends an acquisition, what may be left of it at the store is released.

use std::time::Duration;

use distlock::{Backoff, Error, WaitMode};
use distlock_core::{Answer, Ask, ReleaseOutcome};
use distlock_testkit::{Scripted, ScriptedReply};
use tokio::time::{sleep, timeout};

use crate::support::*;

type Replies = Vec<ScriptedReply<Ask, Answer>>;

/// What is released of an acquisition that ends by itself or is dropped after 500 ms: none, or one
/// claim that is buried or not.
async fn releases(replies: Replies, way: WaitMode, end: End) -> (Scripted, Vec<bool>) {
    let (backend, locks) = stage_with(|o| o.wait_mode(way));
    backend.always_renew(waiting(7));
    for reply in replies {
        backend.on_acquire(reply);
    }
    let mutex = locks.mutex("k").unwrap();
    match end {
        End::Once => drop(mutex.try_lock().await.unwrap_err()),
        End::Deadline => drop(mutex.try_lock_for(ms(500)).await.unwrap_err()),
        End::Dropped => drop(timeout(ms(500), mutex.lock()).await.unwrap_err()),
        End::Failed => drop(mutex.lock().await.unwrap_err()),
    }
    sleep(secs(2)).await;
    let stats = locks.stats();
    assert_eq!((stats.held, stats.waiting, stats.releasing), (0, 0, 0));
    let buried = backend.releases().iter().map(|(_, _, how)| !how.bury.is_zero()).collect();
    (backend, buried)
}

#[derive(Clone, Copy, Debug)]
enum End {
    Once,
    Deadline,
    Dropped,
    Failed,
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_ask_is_released_and_buried_if_an_acquire_went_unanswered() {
    let poll = || WaitMode::Poll(Backoff::fixed(secs(9)));
    let busy = || ScriptedReply::from(refused(None));
    let place = || ScriptedReply::from(queued(7));
    let table: Vec<(&str, Replies, WaitMode, End, &[bool])> = vec![
        ("refused once", vec![busy()], WaitMode::Queue, End::Once, &[]),
        ("fault once", vec![unreachable()], WaitMode::Queue, End::Once, &[true]),
        ("permanent", vec![ScriptedReply::permanent()], WaitMode::Queue, End::Failed, &[true]),
        ("full", vec![Answer::Full.into()], WaitMode::Queue, End::Failed, &[]),
        ("conflict", vec![Answer::Conflict.into()], WaitMode::Queue, End::Failed, &[]),
        ("fault, full", vec![unreachable(), Answer::Full.into()], poll(), End::Failed, &[true]),
        ("hung, deadline", vec![ScriptedReply::never()], WaitMode::Queue, End::Deadline, &[true]),
        ("hung, dropped", vec![ScriptedReply::never()], WaitMode::Queue, End::Dropped, &[true]),
        ("queued, deadline", vec![place()], WaitMode::Queue, End::Deadline, &[false]),
        ("queued, dropped", vec![place()], WaitMode::Queue, End::Dropped, &[false]),
        ("fault, queued", vec![unreachable(), place()], WaitMode::Queue, End::Dropped, &[true]),
        ("polled, deadline", vec![busy()], poll(), End::Deadline, &[]),
        ("polled, dropped", vec![busy()], poll(), End::Dropped, &[]),
        ("fault, polled", vec![unreachable(), busy()], poll(), End::Deadline, &[true]),
        ("polled, fault", vec![busy(), unreachable()], poll(), End::Deadline, &[]),
    ];
    for (what, replies, way, end, expected) in table {
        let (backend, buried) = releases(replies, way, end).await;
        assert_eq!(buried, expected, "{what}");
        let asked: Vec<_> = backend.acquires().into_iter().map(|(_, ask)| ask.claim).collect();
        for (_, target, how) in backend.releases() {
            assert_eq!(target, distlock_core::Target::Claim(asked[0].clone()), "{what}");
            assert_eq!(how.keep, Duration::ZERO, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_leaves_no_trace() {
    let (backend, locks) = stage();
    let mutex = locks.mutex("k").unwrap();
    drop((mutex.lock(), mutex.try_lock(), mutex.try_lock_for(secs(1))));
    settle().await;
    assert!(backend.calls().is_empty() && locks.stats().tasks == 0);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_claim_is_released_until_that_is_acknowledged() {
    let (backend, locks) = stage();
    backend.on_acquire(ScriptedReply::never());
    for _ in 0..4 {
        backend.on_release(ScriptedReply::transient());
    }
    backend.on_release(ReleaseOutcome::Gone);
    let _ = locks.mutex("k").unwrap().try_lock_for(ms(10)).await.unwrap_err();
    sleep(secs(60)).await;
    let at: Vec<_> = backend.releases().into_iter().map(|(at, ..)| at).collect();
    assert_eq!(at.len(), 5, "{at:?}");
    assert_eq!(at[0], ms(10));
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= ms(50)), "{at:?}");
    assert_eq!(locks.stats().releasing, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_repeated_buries_no_claim_whose_asks_were_all_answered() {
    let (backend, locks) = stage();
    backend.on_release(ScriptedReply::transient());
    backend.on_release(ScriptedReply::transient());
    drop(hold(&locks, "k").await);
    sleep(secs(5)).await;
    let bury: Vec<_> = backend.releases().into_iter().map(|(_, _, how)| how.bury).collect();
    assert_eq!(bury, [Duration::ZERO; 3], "zero if every acquire of it has been answered");
}

#[tokio::test(start_paused = true)]
async fn a_guard_whose_first_ask_was_lost_buries_its_claim_when_it_goes() {
    let (backend, locks) = stage();
    for released in [true, false] {
        backend.forget_calls();
        backend.on_acquire(unreachable());
        let guard = hold(&locks, "k").await;
        if released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        settle().await;
        let how: Vec<_> = backend.releases().into_iter().map(|(_, _, how)| how).collect();
        assert!(how.len() == 1 && !how[0].bury.is_zero(), "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_together_with_the_deadline_is_not_leaked() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    let mutex = locks.mutex("k").unwrap();
    let locking = tokio::spawn(async move { mutex.try_lock_for(ms(500)).await });
    sleep(ms(500)).await;
    push(&backend, 7, 9);
    match locking.await.unwrap() {
        Ok(guard) => assert_eq!(guard.release().await.unwrap(), distlock::HoldEnd::Released),
        Err(error) => assert!(matches!(error, Error::Timeout { .. }), "{error:?}"),
    }
    sleep(secs(1)).await;
    assert_eq!(backend.count_releases(), 1);
}
