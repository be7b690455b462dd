//! A mutex that its owner may enter again.

use distlock::{HoldEnd, ReentryId};

use crate::support::{World, go, is_held, is_timeout, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn a_nested_call_keeps_the_mutex_until_the_outer_one_leaves() {
    let world = World::new();
    let mutex = world.locks().reentrant("k").unwrap();
    let (me, other) = (mutex.owner().unwrap(), mutex.owner().unwrap());
    let process = me.lock().await.unwrap();
    let inventory = me.lock().await.unwrap();
    assert_eq!((me.holds(), inventory.holds()), (2, 2));
    assert_eq!(process.fence(), inventory.fence());
    assert_eq!(inventory.release().await.unwrap(), HoldEnd::Released);
    assert_eq!(me.holds(), 1);
    assert!(is_held(&other.try_lock().await));
    assert_eq!(process.release().await.unwrap(), HoldEnd::Released);
    assert_eq!(me.holds(), 0);
    assert!(other.try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_outer_guard_may_leave_first() {
    let world = World::new();
    let mutex = world.locks().reentrant("k").unwrap();
    let me = mutex.owner().unwrap();
    let (outer, inner) = (me.lock().await.unwrap(), me.lock().await.unwrap());
    outer.release().await.unwrap();
    pass(secs(120)).await;
    assert!(inner.is_held());
    assert!(is_held(&mutex.owner().unwrap().try_lock().await));
}

#[tokio::test(start_paused = true)]
async fn an_inner_lease_never_shortens_the_outer() {
    let world = World::new();
    let long = world.locks().reentrant("k").unwrap().owner().unwrap();
    let short = world.locks().configure(|o| o.ttl(ms(100))).unwrap();
    let short = short.reentrant("k").unwrap().owner_as(long.id());
    let outer = long.lock().await.unwrap();
    let inner = short.lock().await.unwrap();
    inner.release().await.unwrap();
    pass(secs(5)).await;
    assert!(outer.is_held());
    assert!(is_held(&world.locks().mutex("k").unwrap().try_lock().await));
    assert_eq!(outer.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn the_label_does_not_make_the_owner() {
    let world = World::new();
    let named = || world.locks().configure(|o| o.owner("me")).unwrap().reentrant("k").unwrap();
    let (one, two) = (named().owner().unwrap(), named().owner().unwrap());
    let _guard = one.lock().await.unwrap();
    assert!(is_held(&two.try_lock().await));
    assert!(one.clone().try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_secret_carries_the_owner_into_another_process() {
    let world = World::new();
    let (here, there) = (world.locks(), world.locks());
    let me = here.reentrant("k").unwrap().owner().unwrap();
    let outer = me.lock().await.unwrap();
    let text = me.id().reveal();
    let far = there.reentrant("k").unwrap().owner_as(text.parse().unwrap());
    let inner = far.lock().await.unwrap();
    assert_eq!(inner.fence(), outer.fence());
    assert_eq!(here.inspect("k").await.unwrap().holders_total, 2);
    outer.release().await.unwrap();
    assert!(is_held(&here.mutex("k").unwrap().try_lock().await));
    pass(secs(90)).await;
    assert_eq!(inner.release().await.unwrap(), HoldEnd::Released);
    assert!(here.inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn reentry_passes_the_queue_and_others_wait_for_the_last_guard() {
    let world = World::new();
    let me = world.locks().reentrant("k").unwrap().owner().unwrap();
    let outer = me.lock().await.unwrap();
    let other = world.locks().reentrant("k").unwrap().owner().unwrap();
    let waiting = go(async move { other.lock().await });
    queued(&world.locks(), "k", 1).await;
    let inner = me.try_lock().await.unwrap();
    drop(outer);
    pass(secs(60)).await;
    assert!(!waiting.is_finished());
    let fence = inner.fence();
    drop(inner);
    assert!(waiting.await.unwrap().unwrap().fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn siblings_that_wait_enter_together() {
    let world = World::new();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let me = world.locks().reentrant("k").unwrap().owner().unwrap();
    let rival = world.locks().reentrant("k").unwrap().owner().unwrap();
    let (one, two) = (me.clone(), me.clone());
    let first = go(async move { one.lock().await });
    queued(&world.locks(), "k", 1).await;
    let between = go(async move { rival.lock().await });
    queued(&world.locks(), "k", 2).await;
    let second = go(async move { two.lock().await });
    queued(&world.locks(), "k", 3).await;
    holder.release().await.unwrap();
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!(first.fence(), second.fence());
    assert_eq!(me.holds(), 2);
    pass(secs(40)).await;
    assert!(first.is_held() && second.is_held() && !between.is_finished());
    drop((first, second));
    assert!(between.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_release_changes_neither_count_nor_lease() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let stale = locks.lease("k").unwrap().acquire().await.unwrap();
    pass(secs(2)).await;
    let me = world.locks().reentrant("k").unwrap().owner().unwrap();
    let (outer, inner) = (me.lock().await.unwrap(), me.lock().await.unwrap());
    assert!(matches!(locks.lease("k").unwrap().release(&stale).await.unwrap(), HoldEnd::Lost(_)));
    assert_eq!(locks.inspect("k").await.unwrap().holders_total, 2);
    assert!(outer.is_held() && inner.is_held());
}

#[tokio::test(start_paused = true)]
async fn counts_follow_every_way_to_leave() {
    let world = World::new();
    let mutex = world.locks().reentrant("k").unwrap();
    let me = mutex.owner().unwrap();
    let nested = me.with(async |_| me.with(async |_| me.holds()).await).await.unwrap().unwrap();
    assert_eq!((nested, me.holds()), (2, 0));
    drop(me.lock().await.unwrap());
    assert_eq!(me.holds(), 0);
    let other = mutex.owner().unwrap();
    let _inside = other.try_lock_for(ms(10)).await.unwrap();
    assert!(is_timeout(&me.try_lock_for(ms(10)).await));
    assert_eq!(me.holds(), 0, "an entry that failed counts");
}

#[tokio::test(start_paused = true)]
async fn breaking_a_reentrant_hold_ends_all_of_it() {
    let world = World::new();
    let me = world.locks().reentrant("k").unwrap().owner().unwrap();
    let (outer, inner) = (me.lock().await.unwrap(), me.lock().await.unwrap());
    world.locks().break_hold("k", outer.fence()).await.unwrap();
    pass(ms(1)).await;
    assert!(!outer.is_held() && !inner.is_held());
    assert!(world.locks().mutex("k").unwrap().try_lock().await.is_ok());
}

#[test]
fn the_secret_shows_in_no_debug_output() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let id: ReentryId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    let owner = distlock::Locks::memory().reentrant("k").unwrap().owner_as(id);
    let shown = format!("{owner:?}");
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}
