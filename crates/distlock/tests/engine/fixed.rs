//! Acquiring under an id of the caller's: it is never exchanged, and never released by half.

use distlock::{ClaimId, Error};
use distlock_core::{Answer, Standing};
use distlock_testkit::{Scripted, ScriptedCall, ScriptedReply};
use tokio::time::{sleep, timeout};

use crate::support::*;

const ID: ClaimId = ClaimId::from_bytes([7; 16]);

/// True if the last word that the store got about the id was an acquire.
fn ends_with_an_acquire(backend: &Scripted) -> bool {
    let words = backend.calls().into_iter().filter_map(|call| match call {
        ScriptedCall::Acquire { .. } => Some(true),
        ScriptedCall::Release { .. } => Some(false),
        _ => None,
    });
    words.last() == Some(true)
}

#[tokio::test(start_paused = true)]
async fn the_callers_id_is_the_one_that_is_asked_for() {
    let (backend, locks) = stage();
    let leases = locks.lease("k").unwrap();
    let first = leases.acquire_as(ID).await.unwrap();
    let again = leases.acquire_as(ID).await.unwrap();
    assert_eq!((first.id(), first.fence()), (ID, again.fence()));
    assert!(backend.acquires().iter().all(|(_, ask)| ask.claim.id == ID));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_was_given_up_is_not_exchanged() {
    let (backend, locks) = stage();
    backend.always_acquire(Answer::Dead);
    let gone = locks.lease("k").unwrap().acquire_as(ID).await.unwrap_err();
    assert!(matches!(gone, Error::NotHeld { .. }), "{gone:?}");
    assert_eq!(backend.count_acquires(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_fault_the_id_is_left_to_the_caller() {
    let (backend, locks) = stage_with(|o| o.patience(secs(1)));
    backend.always_acquire(unreachable());
    let leases = locks.lease("k").unwrap();
    for failed in [leases.try_acquire_as(ID).await, leases.acquire_as(ID).await] {
        assert!(matches!(failed, Err(Error::Backend(_))), "{failed:?}");
    }
    sleep(secs(5)).await;
    assert_eq!(backend.count_releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_fault_in_the_queue_the_id_is_left_to_the_caller() {
    let (backend, locks) = stage_with(|o| o.patience(secs(1)));
    backend.on_acquire(queued(7));
    backend.always_renew(ScriptedReply::transient());
    let leases = locks.lease("k").unwrap();
    let failed = leases.acquire_as(ID).await.unwrap_err();
    assert!(matches!(&failed, Error::Backend(fault) if fault.is_transient()), "{failed:?}");
    let again = leases.acquire_as(ID).await.unwrap();
    sleep(secs(5)).await;
    assert!(ends_with_an_acquire(&backend), "fence {} was released behind us", again.fence());
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_of_a_callers_id_is_not_released_after_it_was_asked_for_again() {
    let (backend, locks) = stage();
    backend.on_acquire(ScriptedReply::from(Answer::Granted { fence: 5 }).after(secs(40)));
    let leases = locks.lease("k").unwrap();
    let lease = leases.acquire_as(ID).await.unwrap();
    sleep(secs(5)).await;
    assert!(leases.remaining(&lease) > secs(20));
    assert!(ends_with_an_acquire(&backend), "the lease was released behind its owner");
}

#[tokio::test(start_paused = true)]
async fn a_lost_place_of_a_callers_id_is_not_released_after_it_was_asked_for_again() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_renew(Standing::Gone);
    let leases = locks.lease("k").unwrap();
    let lease = leases.acquire_as(ID).await.unwrap();
    sleep(secs(5)).await;
    assert!(leases.remaining(&lease) > secs(20));
    assert!(ends_with_an_acquire(&backend), "the lease was released behind its owner");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_under_one_id_does_not_fail_the_one_that_waits() {
    let (backend, locks) = stage();
    backend.on_acquire(queued(7));
    backend.on_acquire(queued(7));
    backend.always_renew(waiting(7));
    let leases = locks.lease("k").unwrap();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let leases = leases.clone();
        calls.push(tokio::spawn(async move { leases.acquire_as(ID).await }));
        settle().await;
    }
    push(&backend, 7, 42);
    let second = timeout(secs(60), calls.remove(1)).await.unwrap().unwrap();
    assert_eq!(second.unwrap().fence(), 42, "the caller that repeated its call");
    sleep(secs(5)).await;
    assert!(ends_with_an_acquire(&backend), "the first call released the id of the second");
}
