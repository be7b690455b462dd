//! The options that bound a hold: `max_hold`, `hold_at_least`, `lock_delay`.

use std::time::Duration;

use distlock::{HoldEnd, LossReason};
use distlock_core::ReleaseOutcome;
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hold_exactly_then_and_stops_its_renewals() {
    for max_hold in [ms(7), secs(5), secs(10), secs(95)] {
        let (backend, locks) = stage_with(|o| o.max_hold(max_hold));
        let guard = hold(&locks, "k").await;
        let began = Instant::now();
        assert_eq!(guard.lost().await, LossReason::MaxHold, "{max_hold:?}");
        assert_eq!(began.elapsed(), max_hold);
        let renewals = backend.count_renews();
        sleep(secs(300)).await;
        assert_eq!(backend.count_renews(), renewals, "{max_hold:?}");
        assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::MaxHold));
        assert_eq!(backend.count_releases(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hold_while_a_renewal_hangs() {
    let (backend, locks) = stage_with(|o| o.max_hold(secs(12)));
    backend.always_renew(ScriptedReply::never());
    let guard = hold(&locks, "k").await;
    let began = Instant::now();
    assert_eq!((guard.lost().await, began.elapsed()), (LossReason::MaxHold, secs(12)));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_guard_is_renewed_only_up_to_max_hold() {
    let (backend, locks) = stage_with(|o| o.max_hold(secs(60)));
    let guard = hold(&locks, "k").await;
    let watch = guard.watch();
    std::mem::forget(guard);
    assert_eq!(watch.ended().await, HoldEnd::Lost(LossReason::MaxHold));
    let last = renewed_at(&backend).last().copied().unwrap();
    sleep(secs(300)).await;
    assert!(last < secs(60) && renewed_at(&backend).last() == Some(&last));
    assert_eq!((locks.stats().held, locks.stats().tasks), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_before_hold_at_least_keeps_the_key_for_the_rest() {
    for (after, released) in
        [(secs(0), true), (secs(20), true), (secs(20), false), (secs(90), true)]
    {
        let (backend, locks) = stage_with(|o| o.hold_at_least(secs(60)));
        let guard = hold(&locks, "k").await;
        sleep(after).await;
        if released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        settle().await;
        let keep: Vec<_> = backend.releases().into_iter().map(|(_, _, how)| how.keep).collect();
        assert_eq!(keep, [secs(60).saturating_sub(after)], "after {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_to_keep_shrinks_while_the_release_is_repeated() {
    let (backend, locks) = stage_with(|o| o.hold_at_least(secs(60)));
    backend.on_release(ScriptedReply::fault(fault()).after(secs(3)));
    backend.on_release(ScriptedReply::fault(fault()).after(secs(3)));
    let _ = hold(&locks, "k").await.release().await.unwrap_err();
    sleep(secs(20)).await;
    for (at, _, how) in backend.releases() {
        assert_eq!(at + how.keep, secs(60));
    }
    assert_eq!(backend.count_releases(), 3);
}

fn fault() -> distlock::Fault {
    distlock::Fault::transient("release", "lost on the way")
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_keeps_nothing() {
    let (backend, locks) = stage_with(|o| o.hold_at_least(secs(60)));
    queue_up(&backend);
    let _ = locks.mutex("k").unwrap().try_lock_for(secs(1)).await.unwrap_err();
    settle().await;
    assert_eq!(backend.releases()[0].2.keep, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lock_delay_is_asked_for_and_not_counted_on() {
    let (backend, locks) = stage_with(|o| o.lock_delay(secs(15)));
    let guard = hold(&locks, "k").await;
    assert_eq!((backend.acquires()[0].1.ttl, guard.remaining()), (secs(45), VALID));
    sleep(ms(10_001)).await;
    assert_eq!(backend.renewals()[0].1.span, secs(45));
    assert_eq!(guard.remaining(), VALID - ms(1));
    guard.release().await.unwrap();
    let how = backend.releases()[0].2;
    assert_eq!(how.keep, Duration::ZERO, "a clean release is immediate");
}

#[tokio::test(start_paused = true)]
async fn a_lost_guard_with_a_lock_delay_lets_its_lease_run_out() {
    let (backend, locks) = stage_with(|o| o.lock_delay(secs(15)));
    backend.always_renew(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    drop(guard);
    sleep(secs(120)).await;
    assert_eq!((backend.count_releases(), locks.stats().tasks), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_found_gone_with_a_lock_delay_says_so() {
    let (backend, locks) = stage_with(|o| o.lock_delay(secs(15)));
    backend.on_release(ReleaseOutcome::Gone);
    let ended = hold(&locks, "k").await.release().await.unwrap();
    assert_eq!(ended, HoldEnd::Lost(LossReason::Gone));
}
