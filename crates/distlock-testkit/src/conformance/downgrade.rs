//! A writer turns into a reader without letting go.

use distlock_core::{Ask, CAPACITY_MAX, ReleaseOutcome, Renewal};

use super::Subject;
use super::support::{AskExt, KitStage, LONG, busy, gone, granted, held, waiting};

fn to_weight(ask: &Ask, weight: u32) -> Renewal {
    Renewal { weight: Some(weight), ..Renewal::hold(ask.claim.clone(), LONG) }
}

/// A downgraded writer holds on, under its fence, and lets readers in.
pub async fn a_downgraded_writer_shares(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let w = stage.writer(a.order());
    let fence = granted(a.ask(&w).await);
    busy(b.ask(&stage.reader(a.order())).await);
    assert_eq!(held(a.renewal(to_weight(&w, 1)).await), fence);
    granted(b.ask(&stage.reader(a.order())).await);
    assert_eq!(held(a.renew(&w, LONG).await), fence);
}

/// A downgraded writer keeps writers out until it releases.
pub async fn a_downgraded_writer_keeps_writers_out(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let w = stage.writer(a.order());
    granted(a.ask(&w).await);
    held(a.renewal(to_weight(&w, 1)).await);
    // A repeat after a lost reply changes nothing more.
    held(a.renewal(to_weight(&w, 1)).await);
    busy(b.ask(&stage.writer(a.order())).await);
    assert_eq!(a.release(&w).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.writer(a.order())).await);
}

/// Readers who wait are admitted in the same step.
pub async fn a_downgrade_admits_waiting_readers(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let w = stage.writer(a.order());
    let reader = stage.reader(a.order()).queued(LONG);
    granted(a.ask(&w).await);
    let ticket = b.queue(&reader).await;
    waiting(b.beat(&reader, ticket).await);
    held(a.renewal(to_weight(&w, 1)).await);
    assert_eq!(a.inspect(&stage.key()).await.holders_total, 2);
    held(b.beat(&reader, ticket).await);
}

/// A renewal never raises a weight: a reader cannot become a writer.
pub async fn nothing_upgrades(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let reader = stage.reader(a.order());
    granted(a.ask(&reader).await);
    held(a.renewal(to_weight(&reader, CAPACITY_MAX)).await);
    granted(b.ask(&stage.reader(a.order())).await);
}

/// The downgrade of a claim that is lost is gone and creates nothing.
pub async fn a_lost_claim_cannot_be_downgraded(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let w = stage.writer(a.order());
    granted(a.ask(&w).await);
    assert_eq!(a.release(&w).await, ReleaseOutcome::WasHeld);
    gone(a.renewal(to_weight(&w, 1)).await);
    granted(b.ask(&stage.writer(a.order())).await);
}
