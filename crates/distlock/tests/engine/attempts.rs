//! How often and when the store is asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Backoff, BackoffRule, Capabilities, Error, Holder, Label, WaitMode};
use distlock_core::{Answer, Busy};
use distlock_testkit::{ScriptedCall, ScriptedReply};
use tokio::time::{Instant, sleep};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_free_lock_costs_one_acquire_and_nothing_before_its_renewal() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    assert_eq!((guard.attempts(), guard.waited()), (1, Duration::ZERO));
    sleep(ms(9_999)).await;
    let calls = backend.calls();
    let kinds = (
        matches!(calls[0], ScriptedCall::Pushes { .. }),
        matches!(calls[1], ScriptedCall::Acquire { .. }),
    );
    assert_eq!((calls.len(), kinds), (2, (true, true)), "{calls:?}");
    assert_eq!(calls[1].at(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn try_lock_asks_once_without_waiting_and_says_who_has_it() {
    let (backend, locks) = stage();
    let holder = Holder {
        owner: Label::new("owner", "rival").unwrap(),
        reason: None,
        fence: 41,
        weight: 1,
        capacity: Some(1),
        exclusive: true,
        group: None,
        held_for: secs(3),
        expires_in: Some(secs(9)),
    };
    let (retry_after, holder) = (Some(secs(9)), Some(holder));
    let busy = Busy { ticket: None, ahead: 5, retry_after, holder: holder.clone() };
    backend.always_acquire(Answer::Busy(busy));
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    let Error::Held { key, retry_after, holder: seen, ahead } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((key.to_string().as_str(), retry_after, ahead), ("k", Some(secs(9)), 5));
    assert_eq!(seen.map(|holder| *holder), holder);
    sleep(secs(60)).await;
    assert_eq!((asked_at(&backend), backend.count_releases()), (vec![Duration::ZERO], 0));
    assert!(backend.acquires()[0].1.wait.is_none(), "a one-shot ask never queues");
}

#[tokio::test(start_paused = true)]
async fn the_first_attempt_of_every_form_is_immediate() {
    let (backend, locks) = polling(Backoff::fixed(secs(60)));
    let began = Instant::now();
    let mutex = locks.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    mutex.try_lock().await.unwrap().release().await.unwrap();
    mutex.try_lock_for(secs(5)).await.unwrap().release().await.unwrap();
    let _ = locks.lease("k").unwrap().acquire().await.unwrap();
    assert_eq!((began.elapsed(), backend.count_acquires()), (Duration::ZERO, 4));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_to_the_millisecond_whatever_the_store_does() {
    let minute = || WaitMode::Poll(Backoff::fixed(secs(60)));
    let table = [
        ("a long pause", minute(), ScriptedReply::from(refused(None))),
        ("a queue", WaitMode::Queue, ScriptedReply::from(queued(7))),
        ("a hanging ask", WaitMode::Queue, ScriptedReply::never()),
        ("a slow ask", minute(), ScriptedReply::from(refused(None)).after(ms(99))),
        ("faults", WaitMode::Queue, unreachable()),
    ];
    for (what, way, reply) in table {
        let (backend, locks) = stage_with(|o| o.wait_mode(way));
        backend.always_acquire(reply);
        backend.always_renew(ScriptedReply::never());
        let began = Instant::now();
        let late = locks.mutex("k").unwrap().try_lock_for(ms(100)).await.unwrap_err();
        assert_eq!(began.elapsed(), ms(100), "{what}");
        let in_time = matches!(late, Error::Timeout { waited, .. } if waited >= ms(100));
        assert!(in_time, "{what}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn max_wait_bounds_the_waiting_forms() {
    let (backend, locks) = stage_with(|o| o.max_wait(ms(1_234)));
    queue_up(&backend);
    let began = Instant::now();
    let late = locks.mutex("k").unwrap().lock().await.unwrap_err();
    assert!(matches!(late, Error::Timeout { source: None, .. }), "{late:?}");
    assert_eq!(began.elapsed(), ms(1_234));
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_one_shot() {
    let (backend, locks) = stage_with(|o| o.max_wait(Duration::ZERO));
    backend.always_acquire(refused(None));
    let mutex = locks.mutex("k").unwrap();
    let began = Instant::now();
    for refused in [mutex.lock().await, mutex.try_lock_for(Duration::ZERO).await] {
        assert!(matches!(refused, Err(Error::Held { .. })), "{refused:?}");
    }
    assert_eq!((began.elapsed(), backend.count_acquires()), (Duration::ZERO, 2));
    assert!(backend.acquires().iter().all(|(_, ask)| ask.wait.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_zero_does_not_spin() {
    let (backend, locks) = polling(Backoff::fixed(Duration::ZERO));
    backend.always_acquire(refused(Some(Duration::ZERO)));
    let _ = locks.mutex("k").unwrap().try_lock_for(ms(20)).await.unwrap_err();
    let asked = asked_at(&backend);
    assert!(asked.len() <= 21, "{} attempts in 20 ms", asked.len());
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] >= ms(1)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_is_not_made_up_for_by_a_burst() {
    let (backend, locks) = polling(Backoff::fixed(ms(10)));
    backend.on_acquire(ScriptedReply::from(refused(None)).after(ms(100)));
    backend.always_acquire(refused(None));
    let _ = locks.mutex("k").unwrap().try_lock_for(ms(135)).await.unwrap_err();
    assert_eq!(asked_at(&backend), [0, 110, 120, 130].map(ms));
}

#[tokio::test(start_paused = true)]
async fn no_pause_goes_beyond_the_end_of_the_lease_ahead() {
    let (backend, locks) = polling(Backoff::fixed(secs(60)));
    backend.on_acquire(ScriptedReply::from(refused(Some(ms(300)))).after(ms(5)));
    backend.on_acquire(refused(Some(secs(90))));
    let guard = hold(&locks, "k").await;
    assert_eq!(asked_at(&backend), [ms(0), ms(305), ms(60_305)]);
    assert_eq!(guard.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn retries_end_after_as_many_as_the_pacing_allows() {
    for (retries, expected) in [(0, 1), (1, 2), (3, 4)] {
        let (backend, locks) = polling(Backoff::fixed(ms(5)).max_retries(retries));
        backend.always_acquire(refused(None));
        let tired = locks.mutex("k").unwrap().lock().await.unwrap_err();
        let Error::RetriesExhausted { attempts, .. } = tired else { panic!("{tired:?}") };
        assert_eq!((attempts, backend.count_acquires()), (expected, expected as usize));
        settle().await;
        assert_eq!(backend.count_releases(), 0, "nothing was left at the store");
    }
}

#[tokio::test(start_paused = true)]
async fn exponential_pauses_double_up_to_their_limit() {
    let (backend, locks) = polling(Backoff::exponential(ms(10), ms(100)));
    backend.always_acquire(refused(None));
    let _ = locks.mutex("k").unwrap().try_lock_for(ms(351)).await.unwrap_err();
    assert_eq!(asked_at(&backend), [0, 10, 30, 70, 150, 250, 350].map(ms));
}

struct Counting(Arc<std::sync::Mutex<Vec<u32>>>);

impl BackoffRule for Counting {
    fn pause(&self, retry: u32, random: f64) -> Duration {
        assert!((0.0..1.0).contains(&random));
        self.0.lock().unwrap().push(retry);
        ms(7)
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_ones_own_is_asked_before_every_retry() {
    let retries = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (backend, locks) = polling(Backoff::custom(Counting(Arc::clone(&retries))));
    for _ in 0..3 {
        backend.on_acquire(refused(None));
    }
    let _guard = hold(&locks, "k").await;
    assert_eq!(*retries.lock().unwrap(), [1, 2, 3]);
    assert_eq!(asked_at(&backend), [0, 7, 14, 21].map(ms));
}

#[tokio::test(start_paused = true)]
async fn a_store_without_a_queue_is_polled() {
    let mut lesser = Capabilities::ALL;
    (lesser.queue, lesser.push) = (false, false);
    let (backend, locks) = stage();
    let _ = backend.clone().with_capabilities(lesser);
    for _ in 0..20 {
        backend.on_acquire(refused(None));
    }
    let guard = hold(&locks, "k").await;
    assert_eq!((guard.attempts(), backend.count_renews()), (21, 0));
    assert!(backend.acquires().iter().all(|(_, ask)| ask.wait.is_none()));
    let asked = asked_at(&backend);
    let paced = asked.windows(2).all(|p| (ms(1)..=ms(501)).contains(&(p[1] - p[0])));
    assert!(paced, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_id_is_new_for_each_acquisition_and_constant_over_its_retries() {
    let (backend, locks) = polling(Backoff::fixed(ms(1)));
    let mut ids = BTreeSet::new();
    for _ in 0..100 {
        backend.forget_calls();
        backend.on_acquire(refused(None));
        backend.on_acquire(unreachable());
        hold(&locks, "k").await.release().await.unwrap();
        let asked: BTreeSet<_> = backend.acquires().iter().map(|(_, ask)| ask.claim.id).collect();
        assert_eq!((asked.len(), backend.count_acquires()), (1, 3));
        ids.extend(asked);
    }
    assert_eq!(ids.len(), 100);
}
