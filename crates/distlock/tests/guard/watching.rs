//! A hold and its end, as its holder and others see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Error, HoldEnd, LossReason};
use distlock_core::Standing;
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_fresh_guard_says_what_it_holds() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    assert!(guard.is_held() && guard.loss().is_none() && guard.watch().end().is_none());
    assert_eq!((guard.fence(), guard.remaining(), guard.attempts()), (1, VALID, 1));
    sleep(secs(4)).await;
    assert_eq!(guard.remaining(), VALID - secs(4));
    assert_eq!(guard.key().to_string(), "k");
    let ask = &backend.acquires()[0].1;
    assert_eq!((ask.ttl, ask.weight, ask.capacity), (TTL, 1, 1));
    let shown = format!("{guard:?} {locks:?}");
    assert!(!shown.contains(&ask.claim.id.reveal()), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn the_token_is_cancelled_at_the_end_and_the_watch_knows_the_cause() {
    for (what, cause) in [
        ("released", HoldEnd::Released),
        ("dropped", HoldEnd::Released),
        ("gone", HoldEnd::Lost(LossReason::Gone)),
        ("unreachable", HoldEnd::Lost(LossReason::Unreachable)),
        ("closed", HoldEnd::Lost(LossReason::Closed)),
    ] {
        let (backend, locks) = stage();
        let guard = hold(&locks, "k").await;
        let (token, watch, clone) = (guard.cancellation(), guard.watch(), guard.watch());
        assert!(!token.is_cancelled(), "{what}");
        match what {
            "released" => drop(guard.release().await.unwrap()),
            "dropped" => drop(guard),
            "closed" => locks.close().await.unwrap(),
            "gone" => {
                backend.on_renew(Standing::Gone);
                token.cancelled().await;
            }
            _ => {
                backend.always_renew(ScriptedReply::transient());
                token.cancelled().await;
            }
        }
        assert!(token.is_cancelled(), "{what}");
        assert_eq!((watch.ended().await, clone.end()), (cause, Some(cause)), "{what}");
        assert_eq!(watch.loss().is_none(), cause == HoldEnd::Released, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_ones_copy_of_the_token_is_not_a_loss() {
    let (_backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let others = guard.cancellation();
    guard.cancellation().cancel();
    // Asked only after this: a watch whose token is cancelled while the hold lasts would spin.
    assert!(guard.is_held() && !others.is_cancelled(), "held, and everybody is told otherwise");
    assert!(timeout(secs(60), guard.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn lost_never_returns_while_the_lock_is_held() {
    let (_backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    assert!(timeout(secs(600), guard.lost()).await.is_err());
    assert!(guard.is_held());
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn run_drops_the_work_at_loss() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::never());
    let guard = hold(&locks, "k").await;
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let began = Instant::now();
    let work = async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    };
    let lost = guard.run(work).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LossReason::Unreachable, .. }), "{lost:?}");
    assert_eq!((began.elapsed(), dropped.load(Ordering::SeqCst)), (VALID, true));
}

#[tokio::test(start_paused = true)]
async fn run_begins_no_work_for_a_guard_that_is_lost() {
    let (_backend, locks) = stage_with(|o| o.max_hold(secs(1)));
    let guard = hold(&locks, "k").await;
    guard.lost().await;
    let lost = guard.run(async { panic!("never polled") }).await;
    assert!(matches!(lost, Err::<(), _>(Error::Lost { reason: LossReason::MaxHold, .. })));
}

#[tokio::test(start_paused = true)]
async fn run_hands_on_the_result_and_keeps_the_guard() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let work = async {
        sleep(secs(100)).await;
        7
    };
    assert_eq!(guard.run(work).await.unwrap(), 7);
    assert!(guard.is_held());
    assert_eq!(backend.count_releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_overstays_the_lease_without_a_look_is_told_so() {
    let (_backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let done = guard.run(tokio::time::advance(secs(60))).await;
    assert!(!guard.is_held());
    assert!(matches!(done, Err(Error::Lost { .. })), "done without protection: {done:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_the_guard_and_the_locks() {
    let (_backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let watch = guard.watch();
    drop((guard, locks));
    settle().await;
    assert_eq!((watch.is_held(), watch.end()), (false, Some(HoldEnd::Released)));
}

#[tokio::test(start_paused = true)]
async fn locks_that_are_dropped_do_not_end_their_guards() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    drop(locks);
    sleep(secs(100)).await;
    assert!(guard.is_held() && backend.count_renews() >= 9);
    drop(guard);
    sleep(secs(5)).await;
    assert_eq!(backend.count_releases(), 1);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn remaining_never_exceeds_what_the_store_promised() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(3)));
    let guard = hold(&locks, "k").await;
    let mut promised = Duration::ZERO;
    for step in 0..600 {
        let at = ms(100) * step;
        let sent = renewed_at(&backend).into_iter().rfind(|sent| *sent + secs(3) <= at);
        promised = promised.max(sent.unwrap_or_default() + TTL);
        assert!(at + guard.remaining() < promised, "at {at:?}");
        sleep(ms(100)).await;
    }
}
