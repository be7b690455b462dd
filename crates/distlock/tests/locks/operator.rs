//! Looking from outside: inspect, list, break.

use distlock::{Cursor, Error, HoldEnd, LossReason};

use crate::support::{World, go, is_held, is_not_held, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn inspect_shows_who_holds_and_who_waits_and_why() {
    let world = World::new();
    let named = |owner: &str, reason: &str| {
        world.locks().configure(|o| o.owner(owner).reason(reason)).unwrap()
    };
    let guard = named("ci-7", "release 1.9").mutex("k").unwrap().lock().await.unwrap();
    let waiter = named("ci-8", "release 2.0").mutex("k").unwrap();
    let waiting = go(async move { waiter.lock().await });
    queued(&world.locks(), "k", 1).await;
    pass(secs(7)).await;
    let seen = world.locks().inspect("k").await.unwrap();
    assert_eq!((seen.order, seen.holders_total, seen.waiters_total), (None, 1, 1));
    let holder = &seen.holders[0];
    assert_eq!(holder.owner.as_str(), "ci-7");
    assert_eq!(holder.reason.as_ref().unwrap().as_str(), "release 1.9");
    assert_eq!((holder.fence, holder.weight, holder.exclusive), (guard.fence(), 1, true));
    let waiter = &seen.waiters[0];
    assert_eq!(waiter.owner.as_str(), "ci-8");
    assert_eq!(waiter.reason.as_ref().unwrap().as_str(), "release 2.0");
    assert!(waiter.waited >= secs(7));
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_claim_id_is_shown_to_nobody() {
    let world = World::new();
    let locks = world.locks();
    let lease = locks.lease("k").unwrap().acquire().await.unwrap();
    let secret = lease.id().reveal();
    let other = world.locks();
    let waiter = other.mutex("k").unwrap();
    let waiting = go(async move { waiter.lock().await });
    queued(&other, "k", 1).await;
    let shown = [
        format!("{:?}", other.inspect("k").await.unwrap()),
        format!("{:?}", other.list("", None).await.unwrap()),
        format!("{:?}", other.mutex("k").unwrap().try_lock().await),
        format!("{locks:?} {other:?} {:?}", locks.adopt(&lease).await.unwrap()),
    ];
    for text in shown {
        assert!(!text.contains(&secret) && !text.contains(&secret[..12]), "{text}");
    }
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn inspecting_does_not_disturb() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let _lease = locks.lease("k").unwrap().acquire().await.unwrap();
    for _ in 0..9 {
        assert_eq!(locks.inspect("k").await.unwrap().holders_total, 1);
        pass(ms(110)).await;
    }
    pass(ms(10)).await;
    assert!(locks.inspect("k").await.unwrap().is_free());
    assert!(locks.inspect("never seen").await.unwrap().is_free());
    assert!(matches!(locks.inspect("").await, Err(Error::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn breaking_tells_the_holder_and_lets_the_next_one_in() {
    let world = World::new();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let next = world.locks().mutex("k").unwrap();
    let waiting = go(async move { next.lock().await });
    queued(&world.locks(), "k", 1).await;
    world.locks().break_hold("k", guard.fence()).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Broken);
    let entered = waiting.await.unwrap().unwrap();
    assert!(entered.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Broken));
    assert!(entered.is_held());
}

#[tokio::test(start_paused = true)]
async fn breaking_hits_only_the_fence_it_names() {
    let world = World::new();
    let old = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let fence = old.fence();
    old.release().await.unwrap();
    assert!(is_not_held(&world.locks().break_hold("k", fence).await));
    let newer = world.locks().mutex("k").unwrap().lock().await.unwrap();
    assert!(is_not_held(&world.locks().break_hold("k", fence).await));
    assert!(is_not_held(&world.locks().break_hold("other", newer.fence()).await));
    assert!(matches!(world.locks().break_hold("", 1).await, Err(Error::Invalid(_))));
    assert!(newer.is_held());
}

#[tokio::test(start_paused = true)]
async fn breaking_one_reader_leaves_the_others() {
    let world = World::new();
    let lock = || world.locks().rwlock("k").unwrap();
    let (one, two) = (lock().read().await.unwrap(), lock().read().await.unwrap());
    world.locks().break_hold("k", one.fence()).await.unwrap();
    assert_eq!(one.lost().await, LossReason::Broken);
    assert!(two.is_held());
    assert!(is_held(&lock().try_write().await));
}

#[tokio::test(start_paused = true)]
async fn an_adopted_hold_that_is_broken_is_told_at_its_next_renewal() {
    let world = World::new();
    let (here, there) = (world.locks(), world.locks());
    let lease = here.lease("k").unwrap().acquire().await.unwrap();
    let guard = there.adopt(&lease).await.unwrap();
    world.locks().break_hold("k", guard.fence()).await.unwrap();
    let told = tokio::time::timeout(secs(11), guard.lost()).await;
    assert_eq!(told, Ok(LossReason::Gone), "the push went to the client that had asked for it");
}

#[tokio::test(start_paused = true)]
async fn a_kept_hold_can_be_broken() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.hold_at_least(secs(3_600))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert_eq!(locks.inspect("k").await.unwrap().holders[0].fence, fence);
    locks.break_hold("k", fence).await.unwrap();
    assert!(locks.inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn listing_goes_page_by_page_through_the_keys_with_the_prefix() {
    let world = World::new();
    let locks = world.locks();
    let mut guards = Vec::new();
    for n in 0..250 {
        guards.push(locks.mutex(format!("a/{n:03}")).unwrap().lock().await.unwrap());
    }
    guards.push(locks.mutex("a").unwrap().lock().await.unwrap());
    guards.push(locks.mutex("b/1").unwrap().lock().await.unwrap());
    let (mut keys, mut cursor): (Vec<String>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = locks.list("a/", cursor.as_ref()).await.unwrap();
        assert!(page.locks.len() <= 100);
        keys.extend(page.locks.iter().map(|lock| lock.key.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(keys, (0..250).map(|n| format!("a/{n:03}")).collect::<Vec<_>>());
    assert_eq!(locks.list("b", None).await.unwrap().locks.len(), 1);
    assert_eq!(locks.list("c", None).await.unwrap().locks.len(), 0);
    assert_eq!(locks.list("", None).await.unwrap().locks.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn listing_shows_neither_free_nor_expired_keys() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    locks.mutex("a").unwrap().lock().await.unwrap().release().await.unwrap();
    let _lease = locks.lease("b").unwrap().acquire().await.unwrap();
    let _guard = locks.mutex("c").unwrap().lock().await.unwrap();
    pass(secs(2)).await;
    let keys: Vec<_> = locks.list("", None).await.unwrap().locks;
    assert_eq!(keys.iter().map(|lock| lock.key.as_str()).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn too_many_waiters_are_refused() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.waiters_max(2)).unwrap();
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..2 {
        let mutex = locks.mutex("k").unwrap();
        waiting.push(go(async move { mutex.lock().await }));
        queued(&locks, "k", n + 1).await;
    }
    let refused = locks.mutex("k").unwrap().lock().await;
    assert!(matches!(refused, Err(Error::TooManyWaiters { .. })));
    assert!(is_held(&locks.mutex("k").unwrap().try_lock().await));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
