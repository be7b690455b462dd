//! What a guard says about its lease.

use std::time::Duration;

use distlock::{Error, HoldEnd, LossReason};
use distlock_core::{ReleaseOutcome, Standing};
use distlock_testkit::ScriptedReply;

use crate::support::{World, ms, pass, scripted, secs};

#[tokio::test(start_paused = true)]
async fn a_release_that_finds_nothing_says_lost() {
    let (locks, store) = scripted();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    store.on_release(ReleaseOutcome::Gone);
    assert!(guard.is_held(), "nothing has told it yet");
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    assert_eq!(locks.stats().losses, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_another_took_over_is_not_released() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let mutex = locks.configure(|o| o.ttl(secs(1))).unwrap().mutex("k").unwrap();
    let stale = mutex.lock().await.unwrap();
    network.cut();
    pass(secs(2)).await;
    let newer = world.locks().mutex("k").unwrap().try_lock().await.unwrap();
    network.heal();
    assert!(matches!(stale.release().await.unwrap(), HoldEnd::Lost(_)));
    assert_eq!(newer.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_failed_renewal_frees_the_key() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    network.cut();
    pass(secs(15)).await;
    assert!(guard.is_held(), "one failed renewal is no loss");
    network.heal();
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_loses_the_hold_at_the_local_deadline() {
    let (locks, store) = scripted();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    store.always_renew(ScriptedReply::never());
    let deadline = secs(30) - ms(300) - ms(2);
    pass(deadline - ms(1)).await;
    assert!(guard.is_held());
    pass(ms(1)).await;
    assert!(!guard.is_held());
    assert!(guard.cancellation().is_cancelled());
    assert!(matches!(guard.lost().await, LossReason::Unreachable | LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_late_confirmation_does_not_bring_a_lost_hold_back() {
    let (locks, store) = scripted();
    let locks = locks.configure(|o| o.ttl(secs(3)).drift(0.0)).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    store.always_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(4)));
    assert!(matches!(guard.lost().await, LossReason::Unreachable | LossReason::Expired));
    pass(secs(10)).await;
    assert!(!guard.is_held());
    assert!(matches!(guard.release().await.unwrap(), HoldEnd::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn tiny_leases_are_refused_and_enormous_ones_do_not_wrap() {
    let world = World::new();
    let locks = world.locks();
    for ttl in [Duration::ZERO, Duration::from_micros(500), Duration::MAX] {
        let refused = locks.configure(|o| o.ttl(ttl));
        assert!(matches!(refused, Err(Error::Invalid(bad)) if bad.what == "ttl"), "{ttl:?}");
    }
    let year = secs(365 * 24 * 60 * 60);
    let guard = locks.configure(|o| o.ttl(year)).unwrap().mutex("k").unwrap();
    let guard = guard.try_lock().await.unwrap();
    pass(secs(60)).await;
    assert!(guard.remaining() > year - year / 50);
    let patient = world.locks().mutex("k").unwrap();
    let waiting = tokio::time::timeout(secs(60), patient.try_lock_for(Duration::MAX)).await;
    assert!(waiting.is_err(), "an enormous wait came back at once");
}
