//! Leases end by themselves, and only by themselves.

use std::time::Duration;

use distlock_core::ReleaseOutcome;

use super::Subject;
use super::support::{AskExt, KitStage, LONG, SHORT, STORE_LATE_MAX, busy, gone, granted, held};

/// A key whose holder vanished is free after the lease.
pub async fn an_expired_key_is_granted_again(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    stage.outlive_short().await;
    granted(b.ask(&stage.mutex()).await);
}

/// A lease lasts as long as it was asked for.
pub async fn a_lease_lasts(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT * 2);
    granted(a.ask(&x).await);
    stage.pass(SHORT).await;
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&x, SHORT).await);
}

/// A renewal extends the lease.
pub async fn a_renewal_extends(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    held(a.renew(&x, LONG).await);
    stage.outlive_short().await;
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&x, LONG).await);
}

/// Renewed in time, a hold lives well past its lease.
pub async fn renewals_in_time_hold_for_ever(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    for _ in 0..5 {
        stage.pass(SHORT / 2).await;
        held(a.renew(&x, SHORT).await);
        busy(b.ask(&stage.mutex()).await);
    }
}

/// A renewal for less time does not shorten the lease.
pub async fn a_renewal_never_shortens(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    held(a.renew(&x, Duration::from_millis(1)).await);
    stage.pass(STORE_LATE_MAX).await;
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&x, LONG).await);
}

/// A renewal of a claim that was never granted is gone and creates nothing.
pub async fn a_renewal_never_creates(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    gone(a.renew(&x, LONG).await);
    gone(a.renew(&x, LONG).await);
    granted(b.ask(&stage.mutex()).await);
}

/// After the lease a renewal is gone, even if no other client came, and does not bring it back.
pub async fn a_renewal_after_expiry_is_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    stage.outlive_short().await;
    gone(a.renew(&x, LONG).await);
    granted(b.ask(&stage.mutex()).await);
}

/// After another took over, the old holder's renewal is gone and the new one untouched.
pub async fn a_renewal_after_takeover_is_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, y) = (stage.mutex().lasting(SHORT), stage.mutex().lasting(SHORT));
    granted(a.ask(&x).await);
    stage.outlive_short().await;
    granted(b.ask(&y).await);
    gone(a.renew(&x, LONG).await);
    held(b.renew(&y, SHORT).await);
    // The stale renewal gave the new holder no time either.
    stage.outlive_short().await;
    granted(c.ask(&stage.mutex()).await);
}

/// A hold that was lost and taken anew by others does not continue when they are done.
pub async fn a_lost_hold_stays_lost(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex().lasting(SHORT), stage.mutex());
    granted(a.ask(&x).await);
    stage.outlive_short().await;
    granted(b.ask(&y).await);
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&x, LONG).await);
    granted(b.ask(&stage.mutex()).await);
}

/// A renewal of another claim is gone and gives the holder no time.
pub async fn a_wrong_claims_renewal_changes_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    gone(b.renew(&x.again(), LONG).await);
    held(a.renew(&x, SHORT).await);
    stage.outlive_short().await;
    granted(b.ask(&stage.mutex()).await);
}

/// A released claim cannot be renewed.
pub async fn a_released_claim_cannot_be_renewed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&x, LONG).await);
    granted(b.ask(&stage.mutex()).await);
}
