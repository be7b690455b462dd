//! What is counted and told: every grant ends in exactly one event.

use distlock::{Event, Fault, LossReason};
use distlock_core::{ReleaseOutcome, Standing};
use distlock_testkit::ScriptedReply;
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// Granted, released, lost.
fn books(seen: &Seen) -> (usize, usize, usize) {
    (count(seen, granted), count(seen, released), count(seen, lost))
}

#[tokio::test(start_paused = true)]
async fn every_grant_is_live_released_or_lost() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    hold(&locks, "released").await.release().await.unwrap();
    drop(hold(&locks, "dropped").await);
    settle().await;
    backend.on_release(ReleaseOutcome::Gone);
    hold(&locks, "found gone").await.release().await.unwrap();
    let gone = hold(&locks, "gone").await;
    backend.on_renew(Standing::Gone);
    gone.lost().await;
    drop(gone);
    let _live = hold(&locks, "live").await;
    sleep(secs(60)).await;
    assert_eq!(books(&seen), (5, 2, 2));
    let stats = locks.stats();
    assert_eq!((stats.grants, stats.losses, stats.held, stats.releasing), (5, 2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_in_doubt_is_told_as_one_end() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_release(ScriptedReply::transient());
    let _ = hold(&locks, "k").await.release().await.unwrap_err();
    sleep(secs(60)).await;
    let (grants, releases, losses) = books(&seen);
    assert_eq!((grants, releases + losses), (1, 1), "{:?}", seen.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_midway_is_told_as_one_end() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_release(ScriptedReply::never());
    let guard = hold(&locks, "k").await;
    assert!(timeout(ms(10), guard.release()).await.is_err());
    sleep(secs(60)).await;
    assert_eq!(books(&seen), (1, 1, 0), "{:?}", seen.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_once_however_often_it_is_looked_at() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.always_renew(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    guard.lost().await;
    assert!(!guard.is_held() && guard.loss().is_some() && guard.remaining().is_zero());
    guard.release().await.unwrap();
    assert_eq!(books(&seen), (1, 0, 1));
    assert_eq!(locks.stats().losses, 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_noticed_by_a_look_has_the_reason_of_a_loss_noticed_by_the_timer() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    sleep(VALID - ms(1)).await;
    tokio::time::advance(ms(1)).await;
    assert!(!guard.is_held());
    assert_eq!(guard.loss(), Some(LossReason::Unreachable), "renewals had failed all along");
}

#[tokio::test(start_paused = true)]
async fn a_life_is_told_in_sequence_to_streams_and_callbacks_alike() {
    let (backend, locks) = stage();
    let (seen, stream) = (listen(&locks), locks.events());
    backend.on_renew(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    let (key, fence) = (guard.key().clone(), guard.fence());
    sleep(secs(15)).await;
    guard.release().await.unwrap();
    let told = seen.lock().unwrap().clone();
    let kinds: Vec<_> = told.iter().map(kind).collect();
    assert_eq!(kinds, ["granted", "at risk", "renewed", "released"]);
    let streamed: Vec<_> = stream.take(4).collect().await;
    assert_eq!(streamed, told);
    let remaining = VALID - secs(10);
    let Event::AtRisk { key: at, fence: of, remaining: left, fault } = &told[1] else {
        panic!("{told:?}")
    };
    assert_eq!((at, *of, *left), (&key, fence, remaining));
    assert!(fault.is_transient() && fault.key() == Some(&key), "{fault}");
    assert_eq!(told[3], Event::Released { key, fence, held: secs(15) });
}

#[tokio::test(start_paused = true)]
async fn every_renewal_that_fails_is_told_once_with_its_fault() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    for why in ["first", "second", "third"] {
        backend.on_renew(ScriptedReply::fault(Fault::transient("renew", why)));
    }
    let guard = hold(&locks, "k").await;
    sleep(secs(25)).await;
    guard.release().await.unwrap();
    let told = seen.lock().unwrap().clone();
    let fault = |event: &Event| match event {
        Event::AtRisk { fault, .. } => Some(fault.to_string()),
        _ => None,
    };
    let faults: Vec<_> = told.iter().filter_map(fault).collect();
    let expected = ["first", "second", "third"]
        .map(|why| format!("could not renew \"k\" at a scripted store: {why}"));
    assert_eq!(faults, expected);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_slow_and_then_fails_is_told_once() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_renew(ScriptedReply::transient().after(secs(7)));
    let guard = hold(&locks, "k").await;
    sleep(secs(22)).await;
    guard.release().await.unwrap();
    let told = seen.lock().unwrap().clone();
    let kinds: Vec<_> = told.iter().map(kind).collect();
    assert_eq!(kinds, ["granted", "at risk", "renewed", "released"], "{told:?}");
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Granted { .. } => "granted",
        Event::Renewed { .. } => "renewed",
        Event::AtRisk { .. } => "at risk",
        Event::Lost { .. } => "lost",
        Event::Released { .. } => "released",
        Event::PlaceLost { .. } => "place lost",
        _ => "other",
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_too_slow_is_told_how_much_it_missed() {
    let (_backend, locks) = stage();
    let mut stream = locks.events();
    for _ in 0..1_000 {
        hold(&locks, "k").await.release().await.unwrap();
    }
    assert_eq!(stream.next().await, Some(Event::Missed(2_000 - 1_024)));
    assert!(matches!(stream.next().await, Some(Event::Granted { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_callback_may_look_at_the_locks() {
    let (backend, locks) = stage();
    let inside = locks.clone();
    let (told, seen) = (listen(&locks), listen(&locks));
    locks.on_event(move |_| assert!(inside.stats().grants == 1));
    backend.on_renew(ScriptedReply::transient());
    backend.on_renew(Standing::Gone);
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.lost().await, LossReason::Gone);
    drop(guard);
    settle().await;
    assert_eq!((books(&told), books(&seen)), ((1, 0, 1), (1, 0, 1)));
}

#[tokio::test(start_paused = true)]
async fn counts_of_waiting_and_releasing_go_up_and_down() {
    let (backend, locks) = stage();
    queue_up(&backend);
    backend.on_release(ScriptedReply::from(ReleaseOutcome::WasWaiting).after(secs(1)));
    let locking = start_lock(&locks).await;
    assert_eq!((locks.stats().waiting, locks.stats().releasing), (1, 0));
    locking.abort();
    settle().await;
    assert_eq!((locks.stats().waiting, locks.stats().releasing), (0, 1));
    sleep(secs(2)).await;
    assert_eq!((locks.stats().waiting, locks.stats().releasing), (0, 0));
}
