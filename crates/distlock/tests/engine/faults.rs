//! Not knowing is not the same as being refused.

use std::time::Duration;

use distlock::{Error, Fault};
use distlock_core::Answer;
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_one_shot_call_returns_the_fault_at_once() {
    let (backend, locks) = stage();
    backend.always_acquire(unreachable());
    let failed = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(&failed, Error::Backend(fault) if fault.is_transient()), "{failed:?}");
    assert!(failed.is_transient());
    settle().await;
    assert_eq!(asked_at(&backend), [Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_rides_out_faults() {
    let (backend, locks) = stage();
    for _ in 0..5 {
        backend.on_acquire(unreachable());
    }
    let guard = locks.mutex("k").unwrap().try_lock_for(secs(60)).await.unwrap();
    assert_eq!(guard.attempts(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_carries_the_last_fault() {
    let (backend, locks) = stage();
    backend.on_acquire(unreachable());
    backend
        .always_acquire(ScriptedReply::fault(Fault::transient("reach node seven", "it is gone")));
    let late = locks.mutex("k").unwrap().try_lock_for(secs(3)).await.unwrap_err();
    let Error::Timeout { source: Some(fault), .. } = &late else { panic!("{late:?}") };
    assert!(fault.to_string().contains("node seven"), "{fault}");
    assert!(late.to_string().contains("node seven"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_in_the_queue_carries_the_last_fault_of_its_heartbeats() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.always_renew(ScriptedReply::fault(Fault::transient("beat", "no pulse")));
    let late = locks.mutex("k").unwrap().try_lock_for(secs(60)).await.unwrap_err();
    let Error::Timeout { source: Some(fault), .. } = &late else { panic!("{late:?}") };
    assert!(fault.to_string().contains("no pulse"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn an_unbounded_wait_has_patience_and_no_more() {
    for (patience, atmost) in [(secs(0), secs(0)), (ms(500), ms(1_500)), (secs(20), secs(21))] {
        let (backend, locks) = stage_with(|o| o.patience(patience));
        backend.always_acquire(unreachable());
        let began = Instant::now();
        let failed = locks.mutex("k").unwrap().lock().await.unwrap_err();
        assert!(matches!(failed, Error::Backend(_)), "{failed:?}");
        let took = began.elapsed();
        assert!(took >= patience && took <= atmost, "patience {patience:?} took {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn patience_counts_from_the_last_answer() {
    let (backend, locks) = polling_with_patience(secs(2));
    for _ in 0..10 {
        for _ in 0..3 {
            backend.on_acquire(unreachable());
        }
        backend.on_acquire(ScriptedReply::from(refused(None)).after(secs(1)));
    }
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.attempts(), 41);
}

fn polling_with_patience(patience: Duration) -> (distlock_testkit::Scripted, distlock::Locks) {
    let backoff = distlock::Backoff::fixed(ms(1));
    stage_with(|o| o.wait_mode(distlock::WaitMode::Poll(backoff)).patience(patience))
}

#[tokio::test(start_paused = true)]
async fn an_unbounded_wait_in_the_queue_has_patience_and_no_more() {
    let (backend, locks) = stage_with(|o| o.patience(secs(10)));
    backend.on_acquire(queued(7));
    backend.always_renew(ScriptedReply::transient());
    let began = Instant::now();
    let failed = locks.mutex("k").unwrap().lock().await.unwrap_err();
    assert!(matches!(failed, Error::Backend(_)), "{failed:?}");
    let took = began.elapsed();
    assert!(took >= secs(10) && took <= secs(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_returns_at_once_from_every_form() {
    let (backend, locks) = stage();
    backend.always_acquire(ScriptedReply::permanent());
    let mutex = locks.mutex("k").unwrap();
    let began = Instant::now();
    for failed in [mutex.lock().await, mutex.try_lock().await, mutex.try_lock_for(secs(9)).await] {
        let failed = failed.unwrap_err();
        assert!(matches!(failed, Error::Backend(_)) && !failed.is_transient(), "{failed:?}");
    }
    assert_eq!((began.elapsed(), backend.count_acquires()), (Duration::ZERO, 3));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_in_the_queue_ends_the_wait() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.always_renew(ScriptedReply::permanent());
    let began = Instant::now();
    let failed = locks.mutex("k").unwrap().lock().await.unwrap_err();
    assert!(matches!(failed, Error::Backend(_)), "{failed:?}");
    assert_eq!(began.elapsed(), secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_does_not_take_the_lock_twice() {
    let (backend, locks) = stage();
    backend.on_acquire(unreachable());
    let guard = hold(&locks, "k").await;
    let asked = backend.acquires();
    assert_eq!((asked.len(), guard.attempts()), (2, 2));
    assert_eq!(asked[0].1.claim, asked[1].1.claim);
    assert_eq!(guard.fence(), 1, "the grant of that claim, not another one");
}

#[tokio::test(start_paused = true)]
async fn a_store_out_of_reach_is_asked_at_a_decent_pace() {
    let (backend, locks) = stage();
    backend.always_acquire(unreachable());
    let _ = locks.mutex("k").unwrap().try_lock_for(secs(60)).await.unwrap_err();
    let asked = asked_at(&backend);
    assert!((60..=140).contains(&asked.len()), "{} attempts in a minute", asked.len());
    let spaced = asked.windows(2).all(|p| (ms(10)..=ms(1_001)).contains(&(p[1] - p[0])));
    assert!(spaced, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_fault_is_no_reason_to_try_again() {
    let (backend, locks) = stage();
    backend.always_acquire(ScriptedReply::fault(Fault::unsupported("time travel")));
    let failed = locks.mutex("k").unwrap().lock().await.unwrap_err();
    assert!(matches!(failed, Error::Unsupported { what: "time travel" }), "{failed:?}");
    settle().await;
    assert_eq!((backend.count_acquires(), backend.count_releases()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_abstains_is_asked_again_when_it_said() {
    let (backend, locks) = stage();
    backend.on_acquire(Answer::Quarantined(secs(7)));
    let guard = hold(&locks, "k").await;
    assert_eq!(asked_at(&backend), [secs(0), secs(7)]);
    drop(guard);
    backend.on_acquire(Answer::Quarantined(secs(7)));
    let failed = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert!(matches!(&failed, Error::Backend(fault) if fault.is_transient()), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_abstains_for_ever_wears_out_patience() {
    let (backend, locks) = stage_with(|o| o.patience(secs(20)));
    backend.always_acquire(Answer::Quarantined(secs(5)));
    let mutex = locks.mutex("k").unwrap();
    let failed = timeout(secs(3_600), mutex.lock()).await;
    assert!(matches!(failed, Ok(Err(Error::Backend(_)))), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn dead_answers_without_end_do_not_spin() {
    let (backend, locks) = stage();
    for _ in 0..1_000 {
        backend.on_acquire(Answer::Dead);
    }
    let mutex = locks.mutex("k").unwrap();
    let locking = tokio::spawn(async move { mutex.try_lock_for(secs(1)).await });
    sleep(ms(2)).await;
    let asked = backend.count_acquires();
    assert!(asked < 100, "{asked} asks within 2 ms");
    drop(locking);
}
