//! A token of the caller's ends waits and holds.

use distlock::{Error, HoldEnd, LossReason};
use tokio_util::sync::CancellationToken;

use crate::support::{World, go, ms, pass, queued, secs};

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_token_and_leaves_no_place() {
    let (world, token) = (World::new(), CancellationToken::new());
    let (here, there) = (world.locks(), world.locks());
    let held = there.mutex("k").unwrap().lock().await.unwrap();
    let parent = token.clone();
    let mutex = here.mutex("k").unwrap().configure(|o| o.cancel_on(parent)).unwrap();
    let waiting = go(async move { mutex.lock().await });
    queued(&there, "k", 1).await;
    token.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Cancelled { .. })));
    here.drained().await.unwrap();
    queued(&there, "k", 0).await;
    assert!(held.is_held(), "another client's hold is its own");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_token_sends_nothing() {
    let (world, token) = (World::new(), CancellationToken::new());
    token.cancel();
    let locks = world.locks().configure(|o| o.cancel_on(token)).unwrap();
    assert!(matches!(locks.mutex("k").unwrap().try_lock().await, Err(Error::Cancelled { .. })));
    assert!(matches!(locks.lease("k").unwrap().acquire().await, Err(Error::Cancelled { .. })));
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_with_the_token_and_says_why() {
    let (world, token) = (World::new(), CancellationToken::new());
    let parent = token.clone();
    let locks = world.locks().configure(|o| o.cancel_on(parent)).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let (own, watch) = (guard.cancellation(), guard.watch());
    let waits = go(async move { Ok(watch.ended().await) });
    assert!(guard.is_held() && !own.is_cancelled());
    token.cancel();
    own.cancelled().await;
    assert!(!guard.is_held());
    assert_eq!(guard.loss(), Some(LossReason::Cancelled));
    assert_eq!(waits.await.unwrap().unwrap(), HoldEnd::Lost(LossReason::Cancelled));
    let work = guard.run(std::future::pending::<()>()).await;
    assert!(matches!(work, Err(Error::Lost { reason: LossReason::Cancelled, .. })), "{work:?}");
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::Cancelled));
    assert!(world.locks().mutex("k").unwrap().try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_nobody_looks_at_is_not_renewed_after_the_token() {
    let (world, token) = (World::new(), CancellationToken::new());
    let parent = token.clone();
    let locks = world.locks().configure(|o| o.ttl(secs(3)).cancel_on(parent)).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    token.cancel();
    pass(secs(10)).await;
    assert!(world.locks().inspect("k").await.unwrap().is_free());
    assert_eq!(guard.loss(), Some(LossReason::Cancelled), "the token came first");
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_hold_ends_no_other() {
    let (world, token) = (World::new(), CancellationToken::new());
    let parent = token.clone();
    let locks = world.locks().configure(|o| o.cancel_on(parent)).unwrap();
    let one = locks.mutex("one").unwrap().lock().await.unwrap();
    let two = locks.mutex("two").unwrap().lock().await.unwrap();
    one.cancellation().cancel();
    assert!(one.is_held() && two.is_held() && !token.is_cancelled());
    drop(one);
    pass(ms(10)).await;
    assert!(two.is_held());
}
