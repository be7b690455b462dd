//! Holds as plain data.

use std::time::Duration;

use distlock::{ClaimId, Error, HoldEnd, Leases, LossReason};
use distlock_core::{Answer, Standing};
use distlock_testkit::{Faults, ScriptedCall, ScriptedReply};

use crate::support::{
    World, go, is_held, is_not_held, is_timeout, ms, pass, queued, scripted, secs,
};

fn leases(world: &World, ttl: Duration) -> Leases {
    world.locks().configure(|o| o.ttl(ttl)).unwrap().lease("k").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_neither_renewed_nor_released_by_itself() {
    let world = World::new();
    let leases = leases(&world, secs(10));
    let lease = leases.acquire().await.unwrap();
    assert_eq!((lease.key().as_str(), lease.ttl()), ("k", secs(10)));
    assert_eq!(leases.remaining(&lease), secs(10) - ms(102));
    drop(lease.clone());
    pass(secs(9)).await;
    assert!(is_held(&leases.try_acquire().await));
    pass(secs(1)).await;
    assert_eq!(leases.remaining(&lease), ms(0));
    assert!(leases.try_acquire().await.unwrap().fence() > lease.fence());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_gets_the_full_ttl() {
    let world = World::new();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let mine = leases(&world, secs(100));
    let waiter = mine.clone();
    let waiting = go(async move { waiter.acquire().await });
    queued(&world.locks(), "k", 1).await;
    pass(secs(10)).await;
    holder.release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    assert!(mine.remaining(&lease) > secs(98), "{:?}", mine.remaining(&lease));
    pass(secs(90)).await;
    assert!(is_held(&mine.try_acquire().await));
}

#[tokio::test(start_paused = true)]
async fn extending_never_shortens() {
    let world = World::new();
    let (long, short) = (leases(&world, secs(100)), leases(&world, secs(1)));
    let mut lease = long.acquire().await.unwrap();
    short.extend(&mut lease).await.unwrap();
    assert!(long.remaining(&lease) > secs(98));
    pass(secs(50)).await;
    assert!(is_held(&world.locks().mutex("k").unwrap().try_lock().await));
    long.extend(&mut lease).await.unwrap();
    pass(secs(90)).await;
    assert_eq!(long.release(&lease).await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn extending_never_creates() {
    let world = World::new();
    let leases = leases(&world, secs(1));
    let mut lease = leases.acquire().await.unwrap();
    leases.release(&lease).await.unwrap();
    assert!(is_not_held(&leases.extend(&mut lease).await));
    pass(secs(1)).await;
    assert!(is_not_held(&leases.extend(&mut lease).await));
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_id_is_harmless() {
    let world = World::new();
    let leases = leases(&world, secs(10));
    let stale = leases.acquire().await.unwrap();
    leases.release(&stale).await.unwrap();
    let lease = leases.acquire().await.unwrap();
    assert_eq!(leases.release(&stale).await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    assert_eq!(leases.release(&stale).await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    assert_eq!(leases.release(&lease).await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_key_is_refused() {
    let world = World::new();
    let locks = world.locks();
    let (mine, other) = (locks.lease("k").unwrap(), locks.lease("other").unwrap());
    let mut lease = mine.acquire().await.unwrap();
    assert!(is_not_held(&other.extend(&mut lease).await));
    assert!(is_not_held(&other.release(&lease).await));
    assert!(is_not_held(&other.acquire_or_extend(lease.id()).await) || other_holds(&other).await);
    assert_eq!(mine.release(&lease).await.unwrap(), HoldEnd::Released);
}

async fn other_holds(other: &Leases) -> bool {
    is_held(&other.try_acquire().await)
}

#[tokio::test(start_paused = true)]
async fn the_same_id_asked_again_gets_the_same_lease() {
    let world = World::new();
    let leases = leases(&world, secs(10));
    let id = ClaimId::random().unwrap();
    let first = leases.acquire_as(id).await.unwrap();
    pass(secs(8)).await;
    let again = leases.try_acquire_as(id).await.unwrap();
    assert_eq!((first.fence(), first.id()), (again.fence(), again.id()));
    pass(secs(8)).await;
    assert!(is_held(&leases.try_acquire().await), "the repeat did not refresh the lease");
    assert!(is_held(&leases.try_acquire_as(ClaimId::random().unwrap()).await));
}

#[tokio::test(start_paused = true)]
async fn acquire_or_extend_does_either_and_waits_for_others() {
    let world = World::new();
    let leases = leases(&world, secs(10));
    let id = ClaimId::random().unwrap();
    let first = leases.acquire_or_extend(id).await.unwrap();
    pass(secs(8)).await;
    assert_eq!(leases.acquire_or_extend(id).await.unwrap().fence(), first.fence());
    pass(secs(8)).await;
    assert!(is_held(&leases.try_acquire().await), "it was extended");
    pass(secs(3)).await;
    let anew = leases.acquire_or_extend(id).await.unwrap();
    assert!(anew.fence() > first.fence());
    let bounded = leases.clone().configure(|o| o.max_wait(secs(2))).unwrap();
    assert!(is_timeout(&bounded.acquire_or_extend(ClaimId::random().unwrap()).await));
    assert_eq!(leases.release(&anew).await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn repeating_a_call_that_still_waits_does_not_end_it() {
    let world = World::new();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let id = ClaimId::random().unwrap();
    let locks = world.locks();
    let ask = || locks.lease("k").unwrap();
    let (one, two) = (ask(), ask());
    let first = go(async move { one.acquire_as(id).await });
    queued(&world.locks(), "k", 1).await;
    let second = go(async move { two.acquire_as(id).await });
    pass(secs(3)).await;
    holder.release().await.unwrap();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(!matches!(first, Err(Error::Closed)), "no client closed these locks");
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
}

/// A fixed id whose first answer came too late must not be released behind the second.
#[tokio::test(start_paused = true)]
async fn an_id_of_the_callers_is_not_released_after_a_late_answer() {
    let (locks, store) = scripted();
    let leases = locks.configure(|o| o.ttl(secs(1))).unwrap().lease("k").unwrap();
    store.on_acquire(ScriptedReply::from(Answer::Granted { fence: 1 }).after(secs(2)));
    let got = leases.acquire_as(ClaimId::random().unwrap()).await;
    pass(ms(100)).await;
    let calls = store.calls();
    let granted =
        calls.iter().rposition(|call| matches!(call, ScriptedCall::Acquire { .. })).unwrap();
    let released = calls[granted..].iter().any(|call| matches!(call, ScriptedCall::Release { .. }));
    assert!(got.is_err() || !released, "handed out a lease and released it");
}

#[tokio::test(start_paused = true)]
async fn an_id_of_the_callers_that_lost_its_place_queues_again() {
    let world = World::new();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let (locks, network) = world.faulty();
    let leases = locks.configure(|o| o.max_wait(secs(60))).unwrap().lease("k").unwrap();
    let waiting = go(async move { leases.acquire_as(ClaimId::random().unwrap()).await });
    queued(&world.locks(), "k", 1).await;
    network.cut();
    pass(secs(6)).await;
    network.set(Faults { delay: (1.0, ms(50)), ..Faults::NONE });
    pass(secs(10)).await;
    let waiters = world.locks().inspect("k").await.unwrap().waiters_total;
    holder.release().await.unwrap();
    let got = waiting.await.unwrap();
    assert!(got.is_ok(), "{waiters} waiting, then {got:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_confirmed_after_its_end_is_no_success() {
    let (locks, store) = scripted();
    let leases = locks.configure(|o| o.ttl(secs(1))).unwrap().lease("k").unwrap();
    let mut lease = leases.acquire().await.unwrap();
    store.on_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(secs(2)));
    let extended = leases.extend(&mut lease).await;
    let left = leases.remaining(&lease);
    assert!(extended.is_err() || left > ms(0), "extended, with nothing left of it");
}

#[tokio::test(start_paused = true)]
async fn a_guard_becomes_a_lease_and_a_guard_again_in_another_process() {
    let world = World::new();
    let (here, there) = (world.locks(), world.locks());
    let guard = here.mutex("k").unwrap().lock().await.unwrap();
    let watch = guard.watch();
    let lease = guard.into_lease();
    assert!(!watch.is_held());
    pass(secs(20)).await;
    let adopted = there.adopt(&lease).await.unwrap();
    assert_eq!(adopted.fence(), lease.fence());
    here.close().await.unwrap();
    pass(secs(120)).await;
    assert!(adopted.is_held());
    assert_eq!(adopted.release().await.unwrap(), HoldEnd::Released);
    assert!(is_not_held(&there.adopt(&lease).await));
    assert!(matches!(here.adopt(&lease).await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_adopted_twice() {
    let world = World::new();
    let locks = world.locks();
    let lease = locks.lease("k").unwrap().acquire().await.unwrap();
    let one = locks.adopt(&lease).await.unwrap();
    let refused = locks.adopt(&lease).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    pass(secs(60)).await;
    assert!(one.is_held(), "the refusal took it away");
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_written_down_is_adopted_elsewhere() {
    use distlock::Lease;
    let world = World::new();
    let lease = leases(&world, secs(10)).acquire().await.unwrap();
    let text = serde_json::to_string(&lease).unwrap();
    let there = world.locks();
    let read: Lease = serde_json::from_str(&text).unwrap();
    assert_eq!((read.key(), read.id()), (lease.key(), lease.id()));
    assert_eq!((read.fence(), read.ttl()), (lease.fence(), lease.ttl()));
    assert_eq!(there.lease("k").unwrap().remaining(&read), ms(0), "no clock crosses machines");
    let guard = there.adopt(&read).await.unwrap();
    pass(secs(60)).await;
    assert!(guard.is_held());
}

#[cfg(feature = "serde")]
#[test]
fn a_lease_that_was_tampered_with_is_refused() {
    let good = r#"{"key":"k","id":"0123456789abcdef0123456789abcdef","fence":7,"ttl_ms":1000}"#;
    assert!(serde_json::from_str::<distlock::Lease>(good).is_ok());
    let bad = [
        good.replace("\"k\"", "\"\""),
        good.replace("\"k\"", &format!("{:?}", "x".repeat(513))),
        good.replace("0123456789abcdef0123456789abcdef", "012"),
        good.replace(":7", ":-7"),
        good.replace("\"fence\":7,", ""),
        good.replace("}", ",\"valid_until\":9}"),
    ];
    for text in bad {
        assert!(serde_json::from_str::<distlock::Lease>(&text).is_err(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_shows_no_secret_to_a_log() {
    let world = World::new();
    let lease = leases(&world, secs(10)).acquire().await.unwrap();
    let (shown, secret) = (format!("{lease:?}"), lease.id().reveal());
    assert!(!shown.contains(&secret) && !shown.contains(&secret[..12]), "{shown}");
}
