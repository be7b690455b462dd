//! A writer turns into a reader without letting go.

use distlock::{Error, Guard, Locks, LossReason, WriteGuard};
use distlock_core::{CAPACITY_MAX, Standing};
use distlock_testkit::ScriptedReply;
use tokio::time::sleep;

use crate::support::*;

async fn write(locks: &Locks) -> WriteGuard {
    locks.rwlock("k").unwrap().write().await.unwrap()
}

fn weights(backend: &distlock_testkit::Scripted) -> Vec<Option<u32>> {
    backend.renewals().into_iter().map(|(_, renewal)| renewal.weight).collect()
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_is_one_renewal_with_the_lower_weight() {
    let (backend, locks) = stage();
    let writer = write(&locks).await;
    let ask = &backend.acquires()[0].1;
    assert_eq!((ask.weight, ask.capacity), (CAPACITY_MAX, CAPACITY_MAX));
    let fence = writer.fence();
    sleep(secs(4)).await;
    let reader = writer.downgrade().await.unwrap();
    assert_eq!((reader.fence(), reader.remaining()), (fence, VALID));
    assert_eq!((weights(&backend), backend.count_releases()), (vec![Some(1)], 0));
    sleep(secs(60)).await;
    assert!(reader.is_held() && backend.count_releases() == 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_fault_the_guard_is_returned_and_the_next_renewal_carries_the_weight() {
    for hung in [true, false] {
        let (backend, locks) = stage();
        let writer = write(&locks).await;
        backend.on_renew(if hung { ScriptedReply::never() } else { ScriptedReply::transient() });
        let reader: Guard = writer.downgrade().await.unwrap();
        assert!(reader.is_held());
        sleep(secs(40)).await;
        assert!(reader.is_held() && backend.count_releases() == 0);
        let weights = weights(&backend);
        assert!(weights.len() >= 2 && weights[1] == Some(1), "{weights:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_does_not_throw_the_hold_away() {
    let (backend, locks) = stage();
    let writer = write(&locks).await;
    let watch = writer.watch();
    backend.on_renew(ScriptedReply::permanent());
    let result = writer.downgrade().await;
    settle().await;
    assert!(
        watch.is_held() && backend.count_releases() == 0,
        "released behind an error: {result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_of_a_hold_that_is_gone_is_a_loss() {
    let (backend, locks) = stage();
    let writer = write(&locks).await;
    let watch = writer.watch();
    backend.on_renew(Standing::Gone);
    let lost = writer.downgrade().await.unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LossReason::Gone, .. }), "{lost:?}");
    assert_eq!(watch.loss(), Some(LossReason::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_confirmed_after_the_end_of_validity_is_a_loss() {
    let (backend, locks) = stage_with(|o| o.ttl(secs(1)));
    let writer = write(&locks).await;
    backend.on_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(2)));
    backend.always_renew(ScriptedReply::transient());
    let result = writer.downgrade().await;
    assert!(matches!(result, Err(Error::Lost { .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_is_dropped_midway_releases() {
    let (backend, locks) = stage();
    let writer = write(&locks).await;
    backend.on_renew(ScriptedReply::never());
    assert!(tokio::time::timeout(ms(10), writer.downgrade()).await.is_err());
    settle().await;
    assert_eq!((backend.count_releases(), locks.stats().held), (1, 0));
}
