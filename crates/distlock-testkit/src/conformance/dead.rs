//! A claim id that was given up never holds again, however late its acquire arrives.

use distlock_core::{Answer, ReleaseOutcome};

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, STORE_LATE_MAX, burying, gone, granted, held, waiting,
};

/// A buried claim is refused although the store never saw it before: its acquire was late.
pub async fn a_buried_claim_is_refused(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let late = stage.mutex();
    assert_eq!(a.give_up(&late, burying(LONG)).await, ReleaseOutcome::Gone);
    assert_eq!(a.ask(&late).await, Answer::Dead);
    assert_eq!(b.ask(&late).await, Answer::Dead, "over whatever connection");
    gone(a.renew(&late, LONG).await);
}

/// A held claim that is released and buried cannot come back.
pub async fn a_released_and_buried_claim_is_refused(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    assert_eq!(a.give_up(&x, burying(LONG)).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.ask(&x).await, Answer::Dead);
}

/// A waiting claim that is given up and buried takes no place again.
pub async fn a_buried_waiter_takes_no_place(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    b.queue(&y).await;
    assert_eq!(b.give_up(&y, burying(LONG)).await, ReleaseOutcome::WasWaiting);
    assert_eq!(b.ask(&y).await, Answer::Dead);
    assert_eq!(a.inspect(&stage.key()).await.waiters_total, 0);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert!(a.inspect(&stage.key()).await.is_free());
}

/// A grave stands in no client's way.
pub async fn a_grave_keeps_nobody_out(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    a.give_up(&stage.mutex(), burying(LONG)).await;
    assert!(a.inspect(&stage.key()).await.is_free());
    let x = stage.mutex();
    granted(b.ask(&x).await);
    a.give_up(&stage.mutex(), burying(LONG)).await;
    held(b.renew(&x, LONG).await);
}

/// A grave is forgotten after its time.
pub async fn a_grave_is_forgotten(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let late = stage.mutex();
    a.give_up(&late, burying(SHORT)).await;
    assert_eq!(a.ask(&late).await, Answer::Dead);
    stage.outlive_short().await;
    granted(a.ask(&late).await);
}

/// A grave lasts although the key is taken and freed meanwhile.
pub async fn a_grave_outlives_other_holders(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let late = stage.mutex();
    a.give_up(&late, burying(LONG)).await;
    for _ in 0..3 {
        let x = stage.mutex().lasting(SHORT);
        granted(b.ask(&x).await);
        assert_eq!(b.release(&x).await, ReleaseOutcome::WasHeld);
    }
    granted(b.ask(&stage.mutex().lasting(SHORT)).await);
    stage.pass(SHORT + STORE_LATE_MAX).await;
    assert_eq!(a.ask(&late).await, Answer::Dead);
}

/// A buried claim stays dead also where its acquire is the step that admits a crowd.
pub async fn a_buried_claim_stays_dead_while_many_are_admitted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let late = stage.reader(a.order());
    a.give_up(&late, burying(LONG)).await;
    granted(b.ask(&stage.writer(b.order()).lasting(SHORT)).await);
    let readers: Vec<_> = (0..12).map(|_| stage.reader(b.order()).queued(LONG)).collect();
    for reader in &readers {
        b.queue(reader).await;
    }
    stage.outlive_short().await;
    assert_eq!(a.ask(&late).await, Answer::Dead);
    for reader in &readers {
        held(b.renew(reader, LONG).await);
    }
}

/// Burying one claim of a client leaves its others alone.
pub async fn a_grave_is_for_one_claim(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y, z) = (stage.mutex(), stage.mutex().queued(LONG), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    b.queue(&y).await;
    let ticket = b.queue(&z).await;
    b.give_up(&y, burying(LONG)).await;
    assert_eq!(waiting(b.beat(&z, ticket).await).ahead, 0);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(b.beat(&z, ticket).await);
}
