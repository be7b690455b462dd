//! Owners, leases and waiting.

use distlock::{Backoff, Error, HoldEnd, LossReason, Order, WaitMode};

use crate::support::{World, crash, go, is_held, is_timeout, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn the_same_owner_does_not_write_twice() {
    let world = World::new();
    let lock = world.locks().configure(|o| o.owner("me")).unwrap().rwlock("k").unwrap();
    let first = lock.write().await.unwrap();
    assert!(is_held(&lock.try_write().await));
    assert!(is_held(&lock.try_read().await));
    assert_eq!(first.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_short_ttl_does_not_purge_a_long_reader() {
    let world = World::new();
    let long = world.locks().rwlock("k").unwrap().read().await.unwrap();
    crash(long);
    let short = world.locks().configure(|o| o.ttl(ms(50))).unwrap().rwlock("k").unwrap();
    pass(secs(20)).await;
    assert!(is_held(&short.try_write().await));
    short.try_read().await.unwrap().release().await.unwrap();
    assert!(is_held(&short.try_write().await));
    pass(secs(11)).await;
    assert!(short.try_write().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_short_reader_does_not_end_a_long_one() {
    let world = World::new();
    let long = world.locks().rwlock("k").unwrap().read().await.unwrap();
    let short = world.locks().configure(|o| o.ttl(ms(150))).unwrap().rwlock("k").unwrap();
    crash(short.read().await.unwrap());
    pass(ms(200)).await;
    assert!(long.is_held());
    assert!(is_held(&short.try_write().await));
    long.release().await.unwrap();
    assert!(short.try_write().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn two_tasks_that_share_a_lock_do_not_both_write() {
    let world = World::new();
    let lock = world.locks().rwlock("k").unwrap();
    let (one, two) = (lock.clone(), lock.clone());
    let first = go(async move { one.try_write().await }).await.unwrap();
    let second = go(async move { two.try_write().await }).await.unwrap();
    assert!(first.is_ok() && is_held(&second));
}

#[tokio::test(start_paused = true)]
async fn two_read_guards_of_one_lock_are_two_readers() {
    let world = World::new();
    let lock = world.locks().rwlock("k").unwrap();
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    one.release().await.unwrap();
    pass(secs(60)).await;
    assert!(two.is_held());
    assert!(is_held(&lock.try_write().await));
    assert_eq!(two.release().await.unwrap(), HoldEnd::Released);
    assert!(lock.try_write().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_twin_with_the_same_owner_cannot_release_or_extend() {
    let world = World::new();
    let twin = || world.locks().configure(|o| o.owner("twin").ttl(secs(1))).unwrap();
    let (one, two) = (twin(), twin());
    let stale = one.lease("k").unwrap().acquire().await.unwrap();
    pass(secs(2)).await;
    let guard = two.mutex("k").unwrap().lock().await.unwrap();
    let leases = one.lease("k").unwrap();
    assert_eq!(leases.release(&stale).await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    assert!(leases.extend(&mut stale.clone()).await.is_err());
    pass(secs(5)).await;
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_interval_does_not_outlast_the_deadline() {
    let world = World::new();
    let _guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let poll = WaitMode::Poll(Backoff::fixed(secs(60)));
    let other = world.locks().configure(|o| o.wait_mode(poll)).unwrap().mutex("k").unwrap();
    match other.try_lock_for(ms(100)).await {
        Err(Error::Timeout { waited, .. }) => assert!(waited >= ms(100) && waited < ms(110)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_thousand_dead_readers_do_not_wedge_the_lock() {
    let world = World::new();
    let lock = world.locks().configure(|o| o.ttl(secs(1))).unwrap().rwlock("k").unwrap();
    for _ in 0..20_000 {
        crash(lock.try_read().await.unwrap());
    }
    assert!(is_held(&lock.try_write().await));
    pass(secs(1)).await;
    assert!(lock.try_write().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_answer_leaves_no_hold() {
    let world = World::new();
    let (locks, network) = world.faulty();
    network.cut_replies();
    let mutex = locks.mutex("k").unwrap();
    let dropped = tokio::time::timeout(ms(100), mutex.lock()).await;
    assert!(dropped.is_err());
    let other = world.locks();
    assert_eq!(other.inspect("k").await.unwrap().holders_total, 1, "the store had granted it");
    network.heal();
    pass(secs(3)).await;
    assert!(other.inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_wants_to_write_times_out_instead_of_waiting_for_itself() {
    let world = World::new();
    for order in [Order::PreferWriters, Order::PreferReaders, Order::Fifo] {
        let lock = world.locks().rwlock("k").unwrap().order(order);
        let reader = lock.read().await.unwrap();
        assert!(is_timeout(&lock.try_write_for(secs(5)).await));
        let bounded = lock.clone().configure(|o| o.max_wait(secs(5))).unwrap();
        assert!(is_timeout(&bounded.write().await));
        assert!(lock.try_read_for(ms(5)).await.is_ok(), "the attempt left something behind");
        reader.release().await.unwrap();
        pass(ms(5)).await;
    }
}

/// A fault in the middle of a waiting write.
#[tokio::test(start_paused = true)]
async fn a_writer_that_fails_while_it_waits_blocks_no_reader() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let other = world.locks().rwlock("k").unwrap();
    let reader = other.read().await.unwrap();
    let writer = locks.configure(|o| o.patience(secs(1))).unwrap().rwlock("k").unwrap();
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 1).await;
    network.cut();
    pass(secs(5)).await;
    assert!(matches!(writing.await.unwrap(), Err(Error::Backend(_))));
    assert!(other.try_read().await.is_ok(), "its place outlived it");
    assert!(reader.is_held());
}
