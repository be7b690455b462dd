//! Time that jumps, and runtimes that do not turn.

use std::sync::Arc;
use std::time::Duration;

use distlock::clock::TokioClock;
use distlock::{Clock, HoldEnd, Locks, LossReason, ManualClock, Moment};
use distlock_testkit::Scripted;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// The runtime's clock, and what the machine slept beside it.
#[derive(Clone, Debug)]
struct Suspended(TokioClock, ManualClock);

const NAP: Duration = Duration::from_millis(250);

impl Clock for Suspended {
    fn now(&self) -> Moment {
        self.0.now().after(self.1.now().since(Moment::ORIGIN))
    }

    fn nap(&self) -> Duration {
        NAP
    }
}

fn suspendable() -> (Scripted, Locks, ManualClock) {
    let (backend, slept) = (Scripted::new(), ManualClock::new());
    let clock = Suspended(TokioClock::new(), slept.clone());
    let locks = Locks::with_clock(Arc::new(backend.clone()), Arc::new(clock));
    (backend, locks, slept)
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_the_first_look_knows() {
    let (_backend, locks, slept) = suspendable();
    let guard = hold(&locks, "k").await;
    sleep(secs(1)).await;
    slept.advance(secs(3_600));
    assert_eq!((guard.is_held(), guard.remaining()), (false, Duration::ZERO));
    assert_eq!(guard.loss(), Some(LossReason::Expired));
    assert!(guard.cancellation().is_cancelled(), "the look tells everybody");
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_everybody_is_told_within_one_nap() {
    let (backend, locks, slept) = suspendable();
    let guard = hold(&locks, "k").await;
    let token = guard.cancellation();
    sleep(ms(1_111)).await;
    slept.advance(secs(3_600));
    timeout(NAP, token.cancelled()).await.unwrap();
    assert_eq!((guard.loss(), backend.count_renews()), (Some(LossReason::Expired), 0));
}

#[tokio::test(start_paused = true)]
async fn a_short_suspend_only_brings_the_renewal_forward() {
    let (backend, locks, slept) = suspendable();
    let guard = hold(&locks, "k").await;
    sleep(ms(1_111)).await;
    slept.advance(secs(15));
    sleep(NAP).await;
    assert_eq!((backend.count_renews(), guard.is_held()), (1, true));
    sleep(secs(100)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_taken_after_a_suspend_is_a_good_one() {
    let (backend, locks, slept) = suspendable();
    let stale = hold(&locks, "a").await;
    slept.advance(secs(3_600));
    let fresh = hold(&locks, "b").await;
    sleep(secs(100)).await;
    assert_eq!((stale.is_held(), fresh.is_held()), (false, true));
    assert_eq!(locks.stats().tasks, 1);
    let renewed = backend.renewals();
    assert!(renewed.iter().all(|(_, renewal)| &renewal.claim.key == fresh.key()));
}

#[tokio::test(start_paused = true)]
async fn a_starved_runtime_is_never_falsely_held() {
    let (backend, clock) = (Scripted::new(), ManualClock::new());
    let locks = Locks::with_clock(Arc::new(backend.clone()), Arc::new(clock.clone()));
    let guard = hold(&locks, "k").await;
    clock.advance(VALID - ms(1));
    assert!(guard.is_held());
    clock.advance(ms(1));
    assert!(!guard.is_held(), "no task has run since");
    assert_eq!(guard.watch().end(), Some(HoldEnd::Lost(LossReason::Expired)));
    settle().await;
    assert_eq!((backend.count_renews(), locks.stats().losses), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_was_blocked_past_the_lease_sends_no_renewal() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    settle().await;
    tokio::time::advance(secs(60)).await;
    settle().await;
    assert_eq!((guard.is_held(), backend.count_renews()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_was_blocked_for_less_renews_at_once() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    settle().await;
    tokio::time::advance(secs(29)).await;
    settle().await;
    assert_eq!((backend.count_renews(), guard.remaining()), (1, VALID));
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_slept_through_is_not_trusted() {
    let (backend, locks, slept) = suspendable();
    queue_up(&backend);
    let locking = start_lock(&locks).await;
    slept.advance(secs(3_600));
    push(&backend, 7, 42);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!(backend.count_acquires(), 2, "the pushed grant was over: it is asked again");
    assert!(guard.is_held());
}
