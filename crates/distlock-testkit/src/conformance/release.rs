//! A release ends one claim and nothing else, at once or after a while.

use distlock_core::{Answer, ReleaseOutcome};

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, busy, busy_with, gone, granted, held, keeping, waiting,
};

/// A released key is free at once.
pub async fn a_released_key_is_granted_again(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.mutex()).await);
}

/// A release of another claim is gone and changes nothing.
pub async fn a_wrong_claims_release_changes_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    assert_eq!(b.release(&x.again()).await, ReleaseOutcome::Gone);
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&x, LONG).await);
}

/// The second release of a claim is gone.
pub async fn a_second_release_is_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.release(&x).await, ReleaseOutcome::Gone);
}

/// A release after the lease is gone: it never claims to have held.
pub async fn a_release_after_expiry_is_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    stage.outlive_short().await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::Gone);
}

/// A release that comes after another took over changes nothing.
pub async fn a_late_release_changes_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, y) = (stage.mutex().lasting(SHORT), stage.mutex());
    granted(a.ask(&x).await);
    stage.outlive_short().await;
    granted(b.ask(&y).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::Gone);
    assert_eq!(a.give_up(&x, keeping(LONG)).await, ReleaseOutcome::Gone);
    busy(c.ask(&stage.mutex()).await);
    held(b.renew(&y, LONG).await);
}

/// A key released with `keep` stays taken.
pub async fn a_kept_key_stays_taken(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().owned_by("the last");
    granted(a.ask(&x).await);
    assert_eq!(a.give_up(&x, keeping(LONG)).await, ReleaseOutcome::WasHeld);
    assert_eq!(busy_with(b.ask(&stage.mutex()).await), "the last");
}

/// A kept key outlives the lease it had, if it is kept for longer.
pub async fn a_kept_key_outlives_its_lease(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    assert_eq!(a.give_up(&x, keeping(LONG)).await, ReleaseOutcome::WasHeld);
    stage.outlive_short().await;
    busy(b.ask(&stage.mutex()).await);
}

/// A kept key frees itself, however long the lease was.
pub async fn a_kept_key_frees_itself(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(LONG);
    granted(a.ask(&x).await);
    assert_eq!(a.give_up(&x, keeping(SHORT)).await, ReleaseOutcome::WasHeld);
    stage.outlive_short().await;
    granted(b.ask(&stage.mutex()).await);
}

/// A kept hold cannot be renewed, and trying does not prolong it.
pub async fn a_kept_hold_cannot_be_renewed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    a.give_up(&x, keeping(SHORT)).await;
    gone(a.renew(&x, LONG).await);
    stage.outlive_short().await;
    granted(b.ask(&stage.mutex()).await);
}

/// The claim of a kept hold cannot come back.
pub async fn a_kept_claim_cannot_come_back(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    a.give_up(&x, keeping(LONG)).await;
    assert_eq!(a.ask(&x).await, Answer::Dead);
}

/// A kept hold is released once: a repeat is gone and does not free the key.
pub async fn a_kept_hold_is_released_once(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    assert_eq!(a.give_up(&x, keeping(LONG)).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.release(&x).await, ReleaseOutcome::Gone);
    busy(b.ask(&stage.mutex()).await);
}

/// Who waits for a kept key is admitted when it ends.
pub async fn a_kept_key_admits_the_next_at_its_end(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    assert_eq!(a.give_up(&x, keeping(SHORT)).await, ReleaseOutcome::WasHeld);
    waiting(b.beat(&y, ticket).await);
    stage.outlive_short().await;
    held(b.beat(&y, ticket).await);
}
