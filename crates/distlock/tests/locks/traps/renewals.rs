//! Renewals.

use distlock::{HoldEnd, LossReason};
use distlock_core::Standing;
use distlock_testkit::ScriptedReply;

use crate::support::{World, go, ms, pass, scripted, secs};

#[tokio::test(start_paused = true)]
async fn a_renewal_never_waits_for_its_answer_beyond_the_lease() {
    let (locks, store) = scripted();
    let locks = locks.configure(|o| o.ttl(secs(9)).renew_at(0.9)).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    store.always_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(2)));
    pass(secs(9)).await;
    assert!(!guard.is_held(), "believed in an answer that came after the lease");
    assert_eq!(locks.stats().renewals, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_key_does_not_lose_another() {
    let world = World::new();
    let locks = world.hung_on("slow").configure(|o| o.ttl(secs(3))).unwrap();
    let slow = locks.mutex("slow").unwrap().lock().await.unwrap();
    let mut others = Vec::new();
    for n in 0..50 {
        others.push(locks.mutex(format!("other/{n}")).unwrap().lock().await.unwrap());
    }
    assert_eq!(slow.lost().await, LossReason::Unreachable);
    pass(secs(30)).await;
    assert!(others.iter().all(distlock::Guard::is_held));
    assert_eq!(locks.stats().losses, 1);
}

#[tokio::test(start_paused = true)]
async fn a_short_blip_with_three_failures_loses_nothing() {
    let (locks, store) = scripted();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    (0..3).for_each(|_| store.on_renew(ScriptedReply::transient()));
    pass(secs(60)).await;
    assert!(guard.is_held());
    let sent: Vec<_> = store.renewals().into_iter().map(|(at, _)| at).collect();
    assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= secs(1)), "not spaced: {sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_does_not_hold_for_ever() {
    let world = World::new();
    let mutex = world.locks().mutex("k").unwrap();
    let holder = mutex.clone();
    let task = go(async move {
        let _guard = holder.lock().await?;
        std::future::pending::<Result<(), _>>().await
    });
    pass(ms(10)).await;
    assert!(mutex.try_lock().await.is_err());
    task.abort();
    assert!(mutex.try_lock_for(ms(10)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_lost_lock_reaches_the_store() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    network.cut_replies();
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    let other = world.locks();
    assert_eq!(other.inspect("k").await.unwrap().holders_total, 1, "renewed without our knowledge");
    network.heal();
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Unreachable));
    assert!(other.inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_lost_lock_reaches_the_store_too() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    network.cut_replies();
    guard.lost().await;
    network.heal();
    drop(guard);
    pass(ms(100)).await;
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}
