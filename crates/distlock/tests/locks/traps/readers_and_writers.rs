//! Readers and writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock::{Error, HoldEnd, LossReason, Order};

use crate::support::{World, crash, go, is_held, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn a_reader_joins_while_a_writer_waits_if_readers_are_preferred() {
    let world = World::new();
    let lock = || world.locks().rwlock("k").unwrap().order(Order::PreferReaders);
    let first = lock().read().await.unwrap();
    let writer = lock();
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 1).await;
    let second = lock().try_read().await.unwrap();
    let third = lock().read().await.unwrap();
    for reader in [first, second, third] {
        assert!(!writing.is_finished());
        reader.release().await.unwrap();
    }
    assert!(writing.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_a_crashed_reader_readers_and_writers_still_exclude() {
    let world = World::new();
    let lock = world.locks().configure(|o| o.ttl(secs(1))).unwrap().rwlock("k").unwrap();
    crash(lock.read().await.unwrap());
    pass(secs(2)).await;
    let reader = lock.try_read().await.unwrap();
    assert!(is_held(&lock.try_write().await));
    reader.release().await.unwrap();
    let _writer = lock.try_write().await.unwrap();
    assert!(is_held(&lock.try_read().await));
}

#[tokio::test(start_paused = true)]
async fn a_stale_release_changes_nothing_for_the_writer() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.ttl(secs(1))).unwrap();
    let lock = locks.rwlock("k").unwrap();
    let stale = lock.read().await.unwrap().into_lease();
    pass(secs(2)).await;
    let writer = lock.try_write().await.unwrap();
    for _ in 0..3 {
        let end = locks.lease("k").unwrap().release(&stale).await.unwrap();
        assert_eq!(end, HoldEnd::Lost(LossReason::Gone));
    }
    assert!(is_held(&lock.try_read().await));
    assert_eq!(writer.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_failed_leaves_nothing_that_blocks_readers() {
    let world = World::new();
    let lock = || world.locks().rwlock("k").unwrap();
    let reader = lock().read().await.unwrap();
    assert!(is_held(&lock().try_write().await));
    assert!(lock().try_read().await.is_ok(), "after a one-shot write");
    assert!(lock().try_write_for(ms(20)).await.is_err());
    assert!(lock().try_read_for(ms(5)).await.is_ok(), "after a write that timed out");
    assert!(tokio::time::timeout(ms(20), lock().write()).await.is_err());
    assert!(lock().try_read_for(ms(5)).await.is_ok(), "after a write that was dropped");
    reader.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_reader_stops_counting_and_the_last_live_one_frees_the_key() {
    let world = World::new();
    let lock = world.locks().configure(|o| o.ttl(secs(3))).unwrap().rwlock("k").unwrap();
    crash(lock.read().await.unwrap());
    let live = lock.read().await.unwrap();
    pass(secs(2)).await;
    assert_eq!(world.locks().inspect("k").await.unwrap().holders_total, 2);
    pass(secs(2)).await;
    assert_eq!(world.locks().inspect("k").await.unwrap().holders_total, 1);
    let writer = lock.clone();
    let writing = go(async move { writer.try_write_for(secs(60)).await });
    queued(&world.locks(), "k", 1).await;
    live.release().await.unwrap();
    let writer = writing.await.unwrap().unwrap();
    assert!(writer.waited() < ms(10), "{:?}", writer.waited());
}

#[tokio::test(start_paused = true)]
async fn groups_of_readers_are_separate_and_every_release_counts() {
    let world = World::new();
    let group = |name: &str| world.locks().rwlock("k").unwrap().group(name).unwrap();
    let (one, two) = (group("a").read().await.unwrap(), group("a").read().await.unwrap());
    assert!(is_held(&group("b").try_read().await));
    assert_eq!(one.release().await.unwrap(), HoldEnd::Released);
    assert!(is_held(&group("b").try_read().await));
    assert_eq!(two.release().await.unwrap(), HoldEnd::Released);
    assert!(group("b").try_read().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_work_returns_and_releases() {
    let world = World::new();
    let lock = world.locks().rwlock("k").unwrap();
    let inside = lock.clone();
    let task = tokio::spawn(async move {
        inside.with_write(async |_| std::future::pending::<()>().await).await
    });
    pass(ms(1)).await;
    assert!(is_held(&lock.try_read().await));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(lock.try_write_for(ms(10)).await.is_ok());
}

/// The running closure is told, by being dropped.
#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_when_the_lock_is_lost() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let world = World::new();
    let locks = world.locks();
    let lock = locks.rwlock("k").unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    let work = lock.with_write(async move |guard| {
        let _dropped = Dropped(flag);
        world.locks().break_hold("k", guard.fence()).await.unwrap();
        std::future::pending::<()>().await;
    });
    assert!(matches!(work.await, Err(Error::Lost { reason: LossReason::Broken, .. })));
    assert!(stopped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn two_tasks_of_one_lock_do_not_share_ownership() {
    let world = World::new();
    let lock = world.locks().rwlock("k").unwrap();
    let first = lock.write().await.unwrap();
    let second = lock.clone();
    let waiting = go(async move { second.write().await });
    queued(&world.locks(), "k", 1).await;
    pass(secs(60)).await;
    assert!(!waiting.is_finished() && first.is_held());
    let fence = first.fence();
    first.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().fence() > fence);
}
