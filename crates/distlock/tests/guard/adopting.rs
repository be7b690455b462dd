//! A hold as plain data, handed over and taken back.

use distlock::{Error, HoldEnd, Lease, Locks, LossReason};
use distlock_core::Standing;
use distlock_testkit::{Scripted, ScriptedReply};
use tokio::time::{sleep, timeout};

use crate::support::*;

async fn lease(backend: &Scripted, locks: &Locks) -> Lease {
    let lease = hold(locks, "k").await.into_lease();
    sleep(secs(3)).await;
    assert_eq!(locks.stats().tasks, 0);
    backend.forget_calls();
    lease
}

#[tokio::test(start_paused = true)]
async fn a_guard_turned_into_a_lease_is_neither_renewed_nor_released() {
    let (backend, locks) = stage();
    let guard = hold(&locks, "k").await;
    let (watch, fence) = (guard.watch(), guard.fence());
    sleep(secs(4)).await;
    let lease = guard.into_lease();
    let leases = locks.lease("k").unwrap();
    assert_eq!((lease.fence(), leases.remaining(&lease)), (fence, VALID - secs(4)));
    assert!(!watch.is_held());
    sleep(secs(300)).await;
    assert_eq!((backend.count_renews(), backend.count_releases()), (0, 0));
    assert_eq!((locks.stats().tasks, locks.stats().losses), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_adopted_lease_is_extended_and_kept() {
    let (backend, locks) = stage();
    let lease = lease(&backend, &locks).await;
    let guard = locks.adopt(&lease).await.unwrap();
    assert_eq!((guard.fence(), guard.remaining()), (lease.fence(), VALID));
    assert_eq!(backend.renewals()[0].1.claim.id, lease.id());
    sleep(secs(300)).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_lease_is_kept_though_the_store_took_its_time() {
    for delay in [ms(500), ms(1_500), secs(4)] {
        let (backend, locks) = stage();
        let lease = lease(&backend, &locks).await;
        backend.on_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(delay));
        let guard = locks.adopt(&lease).await.unwrap();
        assert_eq!(guard.remaining(), VALID - delay, "it counts from before the send");
        sleep(secs(300)).await;
        assert!(guard.is_held(), "adopted after {delay:?} and never renewed");
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_cannot_be_adopted() {
    let (backend, locks) = stage();
    let lease = lease(&backend, &locks).await;
    for standing in [Standing::Gone, waiting(7)] {
        backend.on_renew(standing);
        let refused = locks.adopt(&lease).await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld { .. }), "{refused:?}");
    }
    sleep(secs(60)).await;
    assert_eq!((backend.count_renews(), backend.count_releases()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fault_leaves_the_lease_with_its_owner() {
    let (backend, locks) = stage();
    let lease = lease(&backend, &locks).await;
    backend.on_renew(ScriptedReply::transient());
    backend.on_renew(ScriptedReply::never());
    for _ in 0..2 {
        let failed = locks.adopt(&lease).await.unwrap_err();
        assert!(matches!(failed, Error::Backend(_)), "{failed:?}");
    }
    backend.on_renew(ScriptedReply::never());
    assert!(timeout(secs(1), locks.adopt(&lease)).await.is_err());
    sleep(secs(60)).await;
    assert_eq!(backend.count_releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_adoption_slower_than_the_lease_is_no_hold() {
    let (backend, locks) = stage_with(|o| o.ttl(secs(2)));
    let lease = lease(&backend, &locks).await;
    backend.on_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(3)));
    let refused = locks.adopt(&lease).await.unwrap_err();
    assert!(matches!(refused, Error::Lost { reason: LossReason::TooSlow, .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_slower_than_the_lease_is_no_success() {
    let (backend, locks) = stage_with(|o| o.ttl(secs(2)));
    let mut lease = lease(&backend, &locks).await;
    backend.on_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(3)));
    let leases = locks.lease("k").unwrap().configure(|o| o.ttl(secs(2))).unwrap();
    let extended = leases.extend(&mut lease).await;
    let left = leases.remaining(&lease);
    assert!(extended.is_err() || !left.is_zero(), "extended, and {left:?} are left");
}

#[tokio::test(start_paused = true)]
async fn an_adopted_guard_is_counted_as_one_grant() {
    let (backend, locks) = stage();
    let lease = lease(&backend, &locks).await;
    let seen = listen(&locks);
    locks.adopt(&lease).await.unwrap().release().await.unwrap();
    assert_eq!((count(&seen, granted), count(&seen, released)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn adopting_a_lease_twice_does_not_take_it_from_the_first_guard() {
    let (backend, locks) = stage();
    let lease = lease(&backend, &locks).await;
    let guard = locks.adopt(&lease).await.unwrap();
    let refused = locks.adopt(&lease).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    sleep(secs(300)).await;
    assert_eq!((guard.is_held(), backend.count_releases()), (true, 0), "taken by a refused call");
}
