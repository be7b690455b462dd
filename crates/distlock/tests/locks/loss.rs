//! Losing a lock, and the fence that makes a late writer harmless.

use std::collections::BTreeMap;

use distlock::{Error, Guard, HoldEnd, LossReason};

use crate::support::{World, go, ms, pass, queued, scripted, secs};

/// A resource that remembers the largest fence it has seen.
#[derive(Default)]
struct Ledger {
    rows: BTreeMap<&'static str, (u64, &'static str)>,
}

impl Ledger {
    fn write(&mut self, row: &'static str, fence: u64, text: &'static str) -> bool {
        let newest = self.rows.get(row).map_or(0, |(fence, _)| *fence);
        let accepted = fence >= newest;
        if accepted {
            self.rows.insert(row, (fence, text));
        }
        accepted
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_write_with_an_old_fence_is_refused() {
    let world = World::new();
    let (slow, network) = world.faulty();
    let mut ledger = Ledger::default();
    let a = slow.mutex("row").unwrap().lock().await.unwrap();
    assert!(ledger.write("row", a.fence(), "a1"));
    network.cut();
    let b = world.locks().mutex("row").unwrap().lock().await.unwrap();
    assert!(!a.is_held(), "two that exclude each other believe they hold");
    assert!(ledger.write("row", b.fence(), "b"));
    assert!(!ledger.write("row", a.fence(), "a2"), "A was paused between check and write");
    assert!(ledger.write("row", b.fence(), "b2"), "the same holder writes again");
}

#[tokio::test(start_paused = true)]
async fn fences_grow_over_release_drop_expiry_breaking_and_kinds() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let mut fences = Vec::new();
    for _ in 0..3 {
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        fences.push(guard.fence());
        guard.release().await.unwrap();
        let guard = locks.semaphore("k", 3).unwrap().acquire().await.unwrap();
        fences.push(guard.fence());
        drop(guard);
        fences.push(locks.lease("k").unwrap().acquire().await.unwrap().fence());
        let guard = world.locks().reentrant("k").unwrap().owner().unwrap().lock().await.unwrap();
        fences.push(guard.fence());
        world.locks().break_hold("k", guard.fence()).await.unwrap();
        pass(secs(2 * 60 * 60)).await;
    }
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
    assert!(fences.iter().all(|fence| *fence < 1 << 53));
}

#[tokio::test(start_paused = true)]
async fn a_fence_stays_the_same_over_renewals() {
    let world = World::new();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let fence = guard.fence();
    pass(secs(300)).await;
    assert_eq!(world.locks().inspect("k").await.unwrap().holders[0].fence, fence);
    assert_eq!(guard.fence(), fence);
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_lease_is_ridden_out() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    for _ in 0..20 {
        network.cut();
        pass(secs(15)).await;
        network.heal();
        pass(secs(15)).await;
        assert!(guard.is_held());
    }
    assert_eq!(locks.stats().losses, 0);
}

#[tokio::test(start_paused = true)]
async fn the_holder_knows_before_another_can_enter() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let lost = locks.mutex("k").unwrap().lock().await.unwrap();
    network.cut();
    let watch = lost.watch();
    let other = world.locks().mutex("k").unwrap();
    let entering = go(async move {
        let guard = other.lock().await?;
        Ok((guard, watch.end()))
    });
    let (_other, seen) = entering.await.unwrap().unwrap();
    assert!(matches!(seen, Some(HoldEnd::Lost(_))), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn the_reason_does_not_depend_on_who_notices_first() {
    let mut reasons = Vec::new();
    for looks in [false, true] {
        let (locks, store) = scripted();
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        store.always_renew(distlock_testkit::ScriptedReply::transient());
        let sleep = tokio::time::sleep(secs(30) - ms(302));
        if looks {
            sleep.await;
            assert!(!guard.is_held());
        }
        reasons.push(guard.lost().await);
    }
    assert_eq!(reasons, [LossReason::Unreachable; 2]);
}

#[tokio::test(start_paused = true)]
async fn lost_is_final_and_everybody_agrees() {
    let world = World::new();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let (watch, token) = (guard.watch(), guard.cancellation());
    assert_eq!((watch.end(), token.is_cancelled()), (None, false));
    world.locks().break_hold("k", guard.fence()).await.unwrap();
    token.cancelled().await;
    assert_eq!(watch.ended().await, HoldEnd::Lost(LossReason::Broken));
    assert_eq!((guard.is_held(), guard.loss()), (false, Some(LossReason::Broken)));
    assert_eq!(guard.remaining(), ms(0));
    let refused = guard.run(async { "done" }).await;
    assert!(matches!(refused, Err(Error::Lost { reason: LossReason::Broken, .. })));
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Broken));
    assert_eq!(watch.end(), Some(HoldEnd::Lost(LossReason::Broken)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_agrees_with_what_the_release_returned() {
    let (locks, store) = scripted();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let watch = guard.watch();
    store.on_release(distlock_core::ReleaseOutcome::Gone);
    let end = guard.release().await.unwrap();
    assert_eq!(watch.end(), Some(end));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_silent_for_too_long_queues_again_at_the_end() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let (slow, quick) = (locks.mutex("k").unwrap(), world.locks().mutex("k").unwrap());
    let first = go(async move { slow.lock().await });
    queued(&world.locks(), "k", 1).await;
    let second = go(async move { quick.lock().await });
    queued(&world.locks(), "k", 2).await;
    network.cut();
    pass(secs(10)).await;
    network.heal();
    pass(secs(3)).await;
    assert_eq!(locks.stats().places_lost, 1);
    holder.release().await.unwrap();
    let next = second.await.unwrap().unwrap();
    assert!(!first.is_finished());
    next.release().await.unwrap();
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_reach_the_store_says_so_and_is_repeated() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let watch = guard.watch();
    network.cut();
    let uncertain = guard.release().await;
    assert!(matches!(uncertain, Err(Error::ReleaseUncertain { .. })), "{uncertain:?}");
    assert!(!watch.is_held());
    network.heal();
    pass(secs(5)).await;
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

/// Dropped in a thread without a runtime, and while a panic unwinds.
#[tokio::test(start_paused = true)]
async fn a_guard_may_be_dropped_anywhere() {
    let world = World::new();
    let mutex = world.locks().mutex("k").unwrap();
    let guard = mutex.lock().await.unwrap();
    std::thread::spawn(move || drop::<Guard>(guard)).join().unwrap();
    let guard = mutex.try_lock_for(secs(2)).await.unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("with a guard in hand");
    }));
    assert!(panicked.is_err());
    assert!(mutex.try_lock_for(secs(2)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn run_ends_the_work_at_the_loss_and_leaves_the_guard() {
    let world = World::new();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    let cancelled = tokio::time::timeout(ms(10), guard.run(std::future::pending::<()>())).await;
    assert!(cancelled.is_err() && guard.is_held(), "cancelling the work gave the lock away");
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
}
