//! A hold that was got from the queue lasts no longer than its ttl.

use crate::support::{World, crash, go, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn a_hold_got_from_the_queue_lasts_no_longer_than_its_ttl() {
    let world = World::new();
    let first = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let short = world.locks().configure(|o| o.ttl(secs(1))).unwrap().mutex("k").unwrap();
    let waiting = go(async move { short.lock().await });
    queued(&world.locks(), "k", 1).await;
    first.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.remaining() <= secs(1), "{:?}", guard.remaining());
    crash(guard);
    pass(ms(1_001)).await;
    let _guard =
        world.locks().mutex("k").unwrap().try_lock().await.expect("the store has ended it");
}
