//! Counters, queues, watchdogs, extensions.

use distlock::{Backoff, Error, HoldEnd, LossReason, WaitMode};
use distlock_core::{Answer, Busy, Standing};
use distlock_testkit::ScriptedReply;

use crate::support::{
    World, go, is_held, is_not_held, is_timeout, ms, pass, queued, scripted, secs,
};

#[tokio::test(start_paused = true)]
async fn releases_after_expiry_never_count_below_zero() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let (lock, leases) = (locks.rwlock("k").unwrap(), locks.lease("k").unwrap());
    let stale = lock.read().await.unwrap().into_lease();
    pass(secs(2)).await;
    for _ in 0..3 {
        assert!(matches!(leases.release(&stale).await.unwrap(), HoldEnd::Lost(_)));
    }
    let reader = lock.try_read().await.unwrap();
    assert!(is_held(&lock.try_write().await), "one reader counts as none");
    reader.release().await.unwrap();
    assert!(lock.try_write().await.is_ok());
}

/// Neither the crash nor the slowness of a waiter breaks the order or the exclusion.
#[tokio::test(start_paused = true)]
async fn the_queue_is_fifo_and_exclusive_also_around_a_crash() {
    let world = World::new();
    let (dead, network) = world.faulty();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..5 {
        let locks = if n == 1 { dead.clone() } else { world.locks() };
        let mutex = locks.mutex("k").unwrap();
        waiting.push(go(async move { mutex.lock().await }));
        queued(&world.locks(), "k", n + 1).await;
    }
    network.cut();
    holder.release().await.unwrap();
    for n in [0, 2, 3, 4] {
        let guard = (&mut waiting[n]).await.unwrap().unwrap();
        pass(ms(1)).await;
        let early = waiting.iter().enumerate().any(|(m, task)| m > n && task.is_finished());
        assert!(!early, "two hold, or one overtook");
        assert!(guard.waited() < secs(5), "{n} waited {:?}", guard.waited());
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_hold_of_a_key_does_not_displace_the_first() {
    let world = World::new();
    let locks = world.locks();
    let lock = locks.rwlock("k").unwrap();
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    pass(secs(120)).await;
    assert!(one.is_held() && two.is_held());
    assert_eq!(locks.stats().held, 2);
    drop(one);
    drop(two);
    pass(ms(1)).await;
    assert!(locks.inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_failed_acquire_or_extend_keeps_the_hold_that_existed() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let leases = locks.lease("k").unwrap();
    let lease = leases.acquire().await.unwrap();
    network.cut();
    assert!(leases.acquire_or_extend(lease.id()).await.is_err());
    network.heal();
    pass(secs(10)).await;
    assert_eq!(world.locks().inspect("k").await.unwrap().holders_total, 1, "dropped a valid hold");
    assert_eq!(leases.release(&lease).await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn renewals_stop_when_the_lock_is_lost() {
    let (locks, store) = scripted();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    store.always_renew(Standing::Gone);
    assert_eq!(guard.lost().await, LossReason::Gone);
    pass(secs(120)).await;
    assert_eq!(store.renewals().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn renewals_stop_when_the_guard_goes() {
    let (locks, store) = scripted();
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    drop(locks.mutex("k").unwrap().lock().await.unwrap());
    pass(secs(120)).await;
    assert_eq!((store.renewals().len(), store.count_releases()), (0, 2));
    assert_eq!(locks.stats().tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn a_leaked_guard_is_not_renewed_beyond_max_hold() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.max_hold(secs(60)).ttl(secs(10))).unwrap();
    std::mem::forget(locks.mutex("k").unwrap().lock().await.unwrap());
    let other = world.locks().mutex("k").unwrap();
    assert!(is_timeout(&other.try_lock_for(secs(59)).await));
    assert!(other.try_lock_for(secs(12)).await.is_ok());
    assert_eq!(locks.stats().held, 0);
}

#[tokio::test(start_paused = true)]
async fn extending_a_lost_lease_returns_at_once() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let leases = locks.lease("k").unwrap();
    let mut lease = leases.acquire().await.unwrap();
    pass(secs(2)).await;
    let before = tokio::time::Instant::now();
    assert!(is_not_held(&leases.extend(&mut lease).await));
    let _other = world.locks().mutex("k").unwrap().try_lock().await.unwrap();
    assert!(is_not_held(&leases.extend(&mut lease).await));
    assert_eq!(before.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn exponential_polling_stays_at_its_cap_for_ever() {
    let (locks, store) = scripted();
    let busy = Busy { ticket: None, ahead: 0, retry_after: None, holder: None };
    store.always_acquire(Answer::Busy(busy));
    let poll = WaitMode::Poll(Backoff::exponential(ms(1), secs(60)));
    let mutex = locks.configure(|o| o.wait_mode(poll)).unwrap().mutex("k").unwrap();
    assert!(is_timeout(&mutex.try_lock_for(secs(40 * 60 * 60)).await));
    let attempts = store.count_acquires();
    assert!((2_400..2_420).contains(&attempts), "{attempts} attempts in forty hours");
}

#[tokio::test(start_paused = true)]
async fn an_error_never_comes_with_a_hold() {
    let world = World::new();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let leases = world.locks().lease("k").unwrap();
    assert!(is_held(&leases.try_acquire().await));
    assert!(is_timeout(&leases.try_acquire_for(ms(50)).await));
    holder.release().await.unwrap();
    pass(ms(10)).await;
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_fault_in_a_one_shot_call_leaves_no_hold() {
    let (locks, store) = scripted();
    store.on_acquire(ScriptedReply::transient());
    let failed = locks.mutex("k").unwrap().try_lock().await;
    assert!(matches!(failed, Err(Error::Backend(_))));
    pass(ms(10)).await;
    let releases = store.releases();
    assert_eq!(releases.len(), 1, "what may be at the store was not released");
    assert!(releases[0].2.bury > secs(1), "and may still arrive");
}
