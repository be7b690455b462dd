//! How long a hold lasts: renewals, `hold_at_least`, `lock_delay`, `max_hold`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::backends::Memory;
use distlock::{Event, HoldEnd, Locks, LossReason, ManualClock};

use crate::support::{World, is_held, ms, pass, scripted, secs};

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_after_a_third_of_its_ttl_from_the_send_of_the_last() {
    let (locks, store) = scripted();
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    pass(secs(10) - ms(1)).await;
    assert_eq!(store.renewals().len(), 0);
    pass(secs(21)).await;
    let sent: Vec<_> = store.renewals().into_iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(sent, [10, 20, 30]);
}

/// Whatever options are accepted, a lock on a perfect store can be held with them.
#[tokio::test(start_paused = true)]
async fn accepted_options_are_able_to_hold_a_lock() {
    let world = World::new();
    let mut lost = Vec::new();
    for ttl in [3, 4, 5, 10, 100, 3_600_000].map(ms) {
        for (renew_at, drift) in [(1.0 / 3.0, 0.01), (0.9, 0.01), (0.995, 0.01), (0.5, 0.5)] {
            let options = |o: distlock::Options| o.ttl(ttl).renew_at(renew_at).drift(drift);
            let Ok(locks) = world.locks().configure(options) else { continue };
            let guard = locks.mutex(format!("{ttl:?} {renew_at}")).unwrap().lock().await.unwrap();
            pass(ttl * 3).await;
            if !guard.is_held() {
                lost.push((ttl, renew_at, drift, guard.loss()));
            }
        }
    }
    assert!(lost.is_empty(), "accepted, but lost on a perfect store: {lost:?}");
}

/// The panic in the callback ends the keeper, which would never let anybody else run.
#[tokio::test(start_paused = true)]
async fn a_tiny_renewal_fraction_does_not_spin() {
    let world = World::new();
    let Ok(locks) = world.locks().configure(|o| o.renew_at(1e-9)) else { return };
    let renewals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&renewals);
    locks.on_event(move |event| {
        if matches!(event, Event::Renewed { .. }) {
            assert!(counted.fetch_add(1, Ordering::SeqCst) < 1_000, "the keeper spins");
        }
    });
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    pass(ms(5)).await;
    assert!(renewals.load(Ordering::SeqCst) < 1_000, "the keeper spins");
}

#[tokio::test(start_paused = true)]
async fn a_release_before_hold_at_least_keeps_the_key() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.hold_at_least(secs(60))).unwrap();
    for drops in [false, true] {
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        pass(secs(10)).await;
        if drops {
            drop(guard);
        } else {
            assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
        }
        pass(secs(49)).await;
        assert!(is_held(&world.locks().mutex("k").unwrap().try_lock().await));
        let next = world.locks().mutex("k").unwrap().lock().await.unwrap();
        assert!(next.waited() <= ms(1_010), "{:?}", next.waited());
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_after_hold_at_least_frees_the_key_at_once() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.hold_at_least(secs(5))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    pass(secs(6)).await;
    guard.release().await.unwrap();
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn closing_respects_hold_at_least() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.hold_at_least(secs(60))).unwrap();
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    locks.close().await.unwrap();
    assert!(is_held(&world.locks().mutex("k").unwrap().try_lock().await));
    pass(secs(60)).await;
    assert!(world.locks().mutex("k").unwrap().try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lock_delay_follows_a_loss_and_not_a_release() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let locks = locks.configure(|o| o.ttl(secs(10)).lock_delay(secs(30))).unwrap();
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    let guard = locks.mutex("k").unwrap().try_lock().await.unwrap();
    network.cut();
    assert!(guard.remaining() <= secs(10));
    guard.lost().await;
    network.heal();
    drop(guard);
    let other = world.locks().mutex("k").unwrap().lock().await.unwrap();
    assert!(other.waited() >= secs(30), "{:?}", other.waited());
}

#[tokio::test(start_paused = true)]
async fn a_lock_delay_outlasts_a_release_that_comes_after_the_loss() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let locks = locks.configure(|o| o.ttl(secs(10)).lock_delay(secs(30))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    network.cut();
    guard.lost().await;
    network.heal();
    assert!(matches!(guard.release().await.unwrap(), HoldEnd::Lost(_)));
    let other = world.locks().mutex("k").unwrap().try_lock().await;
    assert!(is_held(&other), "dropping the guard would have kept the delay, releasing did not");
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_the_hold_with_a_reason_of_its_own() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(3)).max_hold(secs(60))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    pass(secs(60) - ms(1)).await;
    assert!(guard.is_held());
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::MaxHold));
    assert!(world.locks().mutex("k").unwrap().try_lock().await.is_ok());
}

/// As for the lease itself: a runtime that is late with its timers must not prolong a hold.
#[tokio::test(start_paused = true)]
async fn max_hold_is_seen_without_the_keeper() {
    let clock = ManualClock::new();
    let store = Memory::with_clock(Arc::new(clock.clone()));
    let locks = Locks::with_clock(Arc::new(store), Arc::new(clock.clone()));
    let locks = locks.configure(|o| o.max_hold(secs(5))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    clock.advance(secs(6));
    assert!(!guard.is_held(), "held for longer than max_hold");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_seen_to_end_without_the_keeper() {
    let clock = ManualClock::new();
    let store = Memory::with_clock(Arc::new(clock.clone()));
    let locks = Locks::with_clock(Arc::new(store), Arc::new(clock.clone()));
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    clock.advance(Duration::from_micros(29_697_999));
    assert!(guard.is_held());
    clock.advance(Duration::from_micros(1));
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.loss(), Some(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_locks_cost_one_task_and_none_afterwards() {
    let world = World::new();
    let locks = world.locks();
    assert_eq!(locks.stats().tasks, 0);
    let mut guards = Vec::new();
    for n in 0..100 {
        guards.push(locks.mutex(format!("k{n}")).unwrap().lock().await.unwrap());
    }
    assert_eq!((locks.stats().tasks, locks.stats().held), (1, 100));
    drop(guards);
    pass(secs(5)).await;
    let stats = locks.stats();
    assert_eq!((stats.tasks, stats.held, stats.releasing), (0, 0, 0));
    assert!(locks.mutex("again").unwrap().lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn every_hold_is_accounted_for_in_the_events() {
    let world = World::new();
    let locks = world.locks();
    let seen = Arc::new(Mutex::new((0, 0, 0)));
    let counts = Arc::clone(&seen);
    locks.on_event(move |event| {
        let mut counts = counts.lock().unwrap();
        match event {
            Event::Granted { .. } => counts.0 += 1,
            Event::Released { .. } => counts.1 += 1,
            Event::Lost { .. } => counts.2 += 1,
            _ => {}
        }
    });
    let mutex = locks.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    drop(mutex.lock().await.unwrap());
    let guard = mutex.lock().await.unwrap();
    world.locks().break_hold("k", guard.fence()).await.unwrap();
    guard.lost().await;
    drop(guard);
    pass(secs(1)).await;
    assert_eq!(*seen.lock().unwrap(), (3, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_does_not_end_the_renewals() {
    let world = World::new();
    let locks = world.locks();
    let once = AtomicUsize::new(0);
    locks.on_event(move |event| {
        let first =
            matches!(event, Event::Renewed { .. }) && once.fetch_add(1, Ordering::SeqCst) == 0;
        assert!(!first, "a mistake in the callback of a user");
    });
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    pass(secs(90)).await;
    assert!(guard.is_held(), "lost by {:?}: no client renews any more", guard.loss());
}
