//! Many readers or one writer.

use distlock::{Error, HoldEnd, LossReason, Order, RwLock};

use crate::support::{World, crash, go, is_held, ms, pass, queued, secs};

fn lock(world: &World) -> RwLock {
    world.locks().rwlock("k").unwrap()
}

#[tokio::test(start_paused = true)]
async fn three_readers_a_writer_and_a_reader_again() {
    let world = World::new();
    let a = lock(&world).read().await.unwrap();
    let b = lock(&world).read().await.unwrap();
    let c = lock(&world).read().await.unwrap();
    assert_eq!(world.locks().inspect("k").await.unwrap().holders_total, 3);
    assert!(is_held(&lock(&world).try_write().await));
    a.release().await.unwrap();
    b.release().await.unwrap();
    assert!(is_held(&lock(&world).try_write().await));
    c.release().await.unwrap();
    let x = lock(&world).try_write().await.unwrap();
    assert!(is_held(&lock(&world).try_read().await));
    assert!(is_held(&lock(&world).try_write().await));
    assert_eq!(x.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn readers_and_writers_are_renewed_far_beyond_their_ttl() {
    let world = World::new();
    let short = || world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let reader = short().rwlock("r").unwrap().read().await.unwrap();
    let writer = short().rwlock("w").unwrap().write().await.unwrap();
    pass(secs(600)).await;
    assert!(reader.is_held() && writer.is_held());
    assert!(is_held(&world.locks().rwlock("r").unwrap().try_write().await));
    assert!(is_held(&world.locks().rwlock("w").unwrap().try_read().await));
}

#[tokio::test(start_paused = true)]
async fn a_crashed_writer_frees_the_key_at_the_end_of_its_lease() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let writer = locks.configure(|o| o.ttl(secs(2))).unwrap().rwlock("k").unwrap();
    let writer = writer.write().await.unwrap();
    network.cut();
    let reader = lock(&world).read().await.unwrap();
    assert!(reader.waited() <= ms(2_010), "{:?}", reader.waited());
    assert!(!writer.is_held(), "two that exclude each other believe they hold");
}

#[tokio::test(start_paused = true)]
async fn a_crashed_waiting_writer_blocks_readers_no_longer_than_its_place() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let _reader = lock(&world).read().await.unwrap();
    let dead = locks.rwlock("k").unwrap();
    let writing = go(async move { dead.write().await });
    queued(&world.locks(), "k", 1).await;
    network.cut();
    let second = lock(&world).read().await.unwrap();
    assert!(second.waited() > secs(2) && second.waited() <= ms(4_010), "{:?}", second.waited());
    assert_eq!(world.locks().inspect("k").await.unwrap().waiters_total, 0);
    writing.abort();
}

#[tokio::test(start_paused = true)]
async fn readers_next_in_line_are_let_in_together() {
    let world = World::new();
    let writer = lock(&world).write().await.unwrap();
    let mut reading = Vec::new();
    for n in 0..20 {
        let reader = lock(&world);
        reading.push(go(async move { reader.read().await }));
        queued(&world.locks(), "k", n + 1).await;
    }
    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for task in reading {
        guards.push(task.await.unwrap().unwrap());
    }
    assert_eq!(world.locks().inspect("k").await.unwrap().holders_total, 20);
    let mut fences: Vec<_> = guards.iter().map(distlock::Guard::fence).collect();
    fences.dedup();
    assert!(fences.is_sorted() && fences.len() == 20, "each grant has a fence of its own");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_lets_readers_in_and_keeps_writers_out() {
    let world = World::new();
    let writer = lock(&world).write().await.unwrap();
    let fence = writer.fence();
    let reader = lock(&world);
    let reading = go(async move { reader.read().await });
    queued(&world.locks(), "k", 1).await;
    let downgraded = writer.downgrade().await.unwrap();
    assert_eq!(downgraded.fence(), fence);
    let other = reading.await.unwrap().unwrap();
    pass(secs(120)).await;
    assert!(downgraded.is_held() && other.is_held());
    assert!(is_held(&lock(&world).try_write().await));
    other.release().await.unwrap();
    assert!(is_held(&lock(&world).try_write().await));
    assert_eq!(downgraded.release().await.unwrap(), HoldEnd::Released);
    assert!(lock(&world).try_write().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_downgraded_writer_lets_the_waiting_writer_in_when_it_leaves() {
    let world = World::new();
    let writer = lock(&world).write().await.unwrap();
    let next = lock(&world);
    let writing = go(async move { next.write().await });
    queued(&world.locks(), "k", 1).await;
    let downgraded = writer.downgrade().await.unwrap();
    pass(secs(60)).await;
    assert!(!writing.is_finished());
    assert!(is_held(&lock(&world).try_read().await), "the writer goes first");
    drop(downgraded);
    assert!(writing.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_through_an_outage_happens_with_the_next_renewal() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let writer = locks.rwlock("k").unwrap().write().await.unwrap();
    network.cut();
    let downgraded = writer.downgrade().await.unwrap();
    assert!(downgraded.is_held());
    assert!(is_held(&lock(&world).try_read().await));
    network.heal();
    pass(secs(15)).await;
    assert!(downgraded.is_held());
    assert!(lock(&world).try_read().await.is_ok());
    assert!(is_held(&lock(&world).try_write().await));
}

#[tokio::test(start_paused = true)]
async fn a_lost_writer_cannot_be_downgraded() {
    let world = World::new();
    let held = world.locks().configure(|o| o.max_hold(secs(5))).unwrap().rwlock("k").unwrap();
    let writer = held.write().await.unwrap();
    assert_eq!(writer.lost().await, LossReason::MaxHold);
    match writer.downgrade().await {
        Err(Error::Lost { reason, .. }) => assert_eq!(reason, LossReason::MaxHold),
        other => panic!("downgraded a lock that is lost: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_writer_that_downgrades_is_told_that_it_was_broken() {
    let world = World::new();
    let writer = lock(&world).write().await.unwrap();
    world.locks().break_hold("k", writer.fence()).await.unwrap();
    assert_eq!(writer.lost().await, LossReason::Broken);
    match writer.downgrade().await {
        Err(Error::Lost { reason, .. }) => assert_eq!(reason, LossReason::Broken),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn groups_share_within_and_exclude_without() {
    let world = World::new();
    let group = |name| lock(&world).group(name).unwrap();
    let one = group("batch").read().await.unwrap();
    let two = group("batch").try_read().await.unwrap();
    assert!(is_held(&group("web").try_read().await));
    assert!(is_held(&lock(&world).try_read().await), "no group is a group, too");
    assert!(is_held(&group("batch").try_write().await));
    let web = group("web");
    let reading = go(async move { web.read().await });
    queued(&world.locks(), "k", 1).await;
    assert!(is_held(&group("batch").try_read().await), "the other group waits and goes first");
    one.release().await.unwrap();
    two.release().await.unwrap();
    assert!(reading.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn readers_that_differ_on_the_order_conflict_until_the_key_is_free() {
    let world = World::new();
    let reader = lock(&world).read().await.unwrap();
    let other = lock(&world).order(Order::PreferReaders);
    assert!(matches!(other.try_read().await, Err(Error::Conflict { .. })));
    assert!(is_held(&other.try_write().await), "a writer has no order of readers");
    assert!(is_held(&world.locks().mutex("k").unwrap().try_lock().await), "nor has a mutex");
    reader.release().await.unwrap();
    assert!(other.try_read().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn with_read_and_with_write_release_whatever_happens() {
    let world = World::new();
    let shared = lock(&world);
    assert!(shared.with_read(async |guard| guard.is_held()).await.unwrap());
    let panicking = shared.clone();
    let task = tokio::spawn(async move {
        panicking
            .with_write(async |_| {
                if true {
                    panic!("the work fails")
                }
            })
            .await
    });
    assert!(task.await.unwrap_err().is_panic());
    assert!(shared.try_write_for(ms(5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_crashed_reader_of_a_group_does_not_keep_another_group_out_for_ever() {
    let world = World::new();
    let short = world.locks().configure(|o| o.ttl(secs(1))).unwrap().rwlock("k").unwrap();
    crash(short.group("a").unwrap().read().await.unwrap());
    let other = lock(&world).group("b").unwrap().read().await.unwrap();
    assert!(other.waited() <= ms(1_010), "{:?}", other.waited());
}
