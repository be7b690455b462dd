//! Who goes first among readers and writers.

use std::sync::{Arc, Mutex};

use distlock::{Error, Locks, Order, RwLock};
use tokio::task::JoinHandle;

use crate::support::{World, go, is_held, ms, pass, queued, secs};

fn lock(locks: &Locks, order: Order) -> RwLock {
    locks.rwlock("k").unwrap().order(order)
}

/// Queues up `kinds` behind a writer, one after the other (`r` reads, `w` writes), and says in
/// which sequence they got in; each stays for a second.
async fn entered(order: Order, kinds: &str) -> String {
    let world = World::new();
    let holder = lock(&world.locks(), order).write().await.unwrap();
    let log = Arc::new(Mutex::new(String::new()));
    let mut tasks: Vec<JoinHandle<Result<(), Error>>> = Vec::new();
    for (n, kind) in kinds.chars().enumerate() {
        let (lock, log) = (lock(&world.locks(), order), Arc::clone(&log));
        tasks.push(go(async move {
            let _reader = if kind == 'r' { Some(lock.read().await?) } else { None };
            let _writer = if kind == 'w' { Some(lock.write().await?) } else { None };
            log.lock().unwrap().push_str(&format!("{kind}{n} "));
            pass(secs(1)).await;
            Ok(())
        }));
        queued(&world.locks(), "k", n as u64 + 1).await;
    }
    holder.release().await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let log = log.lock().unwrap();
    log.trim_end().to_owned()
}

#[tokio::test(start_paused = true)]
async fn each_order_serves_the_same_queue_in_its_own_way() {
    let table = [
        (Order::Fifo, "r0 w1 r2 r3 w4"),
        (Order::PreferWriters, "w1 w4 r0 r2 r3"),
        (Order::PreferReaders, "r0 r2 r3 w1 w4"),
    ];
    for (order, expected) in table {
        assert_eq!(entered(order, "rwrrw").await, expected, "{order}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_writer_keeps_new_readers_out_if_writers_are_preferred() {
    let world = World::new();
    let new = || lock(&world.locks(), Order::PreferWriters);
    let reader = new().read().await.unwrap();
    let writer = new();
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 1).await;
    assert!(is_held(&new().try_read().await));
    let late = new();
    let reading = go(async move { late.read().await });
    queued(&world.locks(), "k", 2).await;
    reader.release().await.unwrap();
    let writer = writing.await.unwrap().unwrap();
    pass(secs(60)).await;
    assert!(!reading.is_finished(), "a reader won over the writer");
    writer.release().await.unwrap();
    assert!(reading.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_writer_blocked_by_a_writer_wins_over_a_reader() {
    let world = World::new();
    let new = || lock(&world.locks(), Order::PreferWriters);
    let holder = new().write().await.unwrap();
    let (reader, writer) = (new(), new());
    let reading = go(async move { reader.read().await });
    queued(&world.locks(), "k", 1).await;
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 2).await;
    holder.release().await.unwrap();
    let second = writing.await.unwrap().unwrap();
    assert!(!reading.is_finished());
    second.release().await.unwrap();
    assert!(reading.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_single_attempt_to_write_yields_to_a_writer_in_the_queue() {
    let world = World::new();
    for order in [Order::PreferWriters, Order::PreferReaders, Order::Fifo] {
        let new = || lock(&world.locks(), order);
        let (locks, network) = world.faulty();
        let holder = new().write().await.unwrap();
        let slow = lock(&locks, order);
        let waiting = go(async move { slow.write().await });
        queued(&world.locks(), "k", 1).await;
        network.cut();
        holder.release().await.unwrap();
        assert!(is_held(&new().try_write().await), "{order}");
        network.heal();
        let next = waiting.await.unwrap().unwrap();
        next.release().await.unwrap();
        pass(ms(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_never_refused_without_a_writer_inside_if_readers_are_preferred() {
    let world = World::new();
    let new = || lock(&world.locks(), Order::PreferReaders);
    let first = new().read().await.unwrap();
    let writer = new();
    let writing = go(async move { writer.try_write_for(secs(30)).await });
    queued(&world.locks(), "k", 1).await;
    let mut last = first;
    for _ in 0..40 {
        let next = new().try_read().await.unwrap();
        last.release().await.unwrap();
        last = next;
        pass(secs(1)).await;
    }
    assert!(matches!(writing.await.unwrap(), Err(Error::Timeout { .. })), "it may starve");
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served_starves_nobody() {
    let world = World::new();
    let new = || lock(&world.locks(), Order::Fifo);
    let reader = new().read().await.unwrap();
    assert!(new().try_read().await.is_ok(), "readers share while no client waits");
    pass(ms(1)).await;
    let writer = new();
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 1).await;
    assert!(is_held(&new().try_read().await), "a reader passed an earlier writer");
    reader.release().await.unwrap();
    assert!(writing.await.unwrap().is_ok());
}
