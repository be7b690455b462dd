//! How one waits decides nothing about who goes first.

use distlock::{Backoff, RwLock, WaitMode};

use crate::support::{World, go, is_held, ms, pass, queued, secs};

fn polling(world: &World, pause_ms: u64) -> RwLock {
    let backoff = Backoff::fixed(ms(pause_ms));
    let locks = world.locks().configure(|o| o.wait_mode(WaitMode::Poll(backoff))).unwrap();
    locks.rwlock("k").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_polls_goes_before_readers_that_come_later() {
    let world = World::new();
    let reader = || world.locks().rwlock("k").unwrap();
    let first = reader().read().await.unwrap();
    let writer = polling(&world, 50);
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 1).await;
    assert!(is_held(&reader().try_read().await), "the writer came before");
    first.release().await.unwrap();
    let guard = writing.await.unwrap().unwrap();
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_a_writer_that_polls_keep_its_place_however_long_it_pauses() {
    let world = World::new();
    let first = world.locks().rwlock("k").unwrap().read().await.unwrap();
    let writer = polling(&world, 60_000);
    let writing = go(async move { writer.write().await });
    queued(&world.locks(), "k", 1).await;
    for _ in 0..20 {
        pass(secs(1)).await;
        assert_eq!(world.locks().inspect("k").await.unwrap().waiters_total, 1);
    }
    first.release().await.unwrap();
    pass(secs(3)).await;
    assert!(writing.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_polls_and_gives_up_leaves_no_place() {
    let world = World::new();
    let _first = world.locks().rwlock("k").unwrap().read().await.unwrap();
    polling(&world, 50).try_write_for(secs(1)).await.unwrap_err();
    assert_eq!(world.locks().inspect("k").await.unwrap().waiters_total, 0);
    let _guard = world.locks().rwlock("k").unwrap().try_read().await.unwrap();
}
