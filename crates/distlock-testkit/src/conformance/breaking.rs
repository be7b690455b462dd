//! An operator frees a key, and hits exactly the holder that was meant.

use distlock_core::{Answer, ReleaseOutcome};

use super::Subject;
use super::support::{AskExt, KitStage, LONG, busy_with, gone, granted, held, mutex};

/// A break with the holder's fence frees the key.
pub async fn a_break_frees_the_key(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, operator] = stage.clients().await;
    let fence = granted(a.ask(&stage.mutex()).await);
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::Gone);
    granted(operator.ask(&stage.mutex()).await);
}

/// A break with another fence hits no client.
pub async fn a_break_with_another_fence_changes_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, operator] = stage.clients().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    for wrong in [fence - 1, fence + 1, 0] {
        assert_eq!(operator.break_hold(&stage.key(), wrong).await, ReleaseOutcome::Gone);
    }
    held(a.renew(&x, LONG).await);
}

/// A break meant for an earlier holder does not hit its successor.
pub async fn a_late_break_hits_nobody(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, operator] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex());
    let fence = granted(a.ask(&x).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&y).await);
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::Gone);
    held(b.renew(&y, LONG).await);
}

/// A break at one key leaves another alone.
pub async fn a_break_is_for_one_key(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, operator] = stage.clients().await;
    let x = mutex(&stage.named("/here"));
    let fence = granted(a.ask(&x).await);
    let there = stage.named("/there");
    assert_eq!(operator.break_hold(&there, fence).await, ReleaseOutcome::Gone);
    held(a.renew(&x, LONG).await);
}

/// A broken claim is gone to its holder and cannot come back.
pub async fn a_broken_claim_cannot_come_back(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, operator] = stage.clients().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&x, LONG).await);
    assert_eq!(a.ask(&x).await, Answer::Dead);
    assert_eq!(a.release(&x).await, ReleaseOutcome::Gone);
}

/// A break admits the first in line.
pub async fn a_break_admits_the_next(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, operator] = stage.clients().await;
    let y = stage.mutex().queued(LONG).owned_by("next");
    let fence = granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    assert_eq!(busy_with(operator.ask(&stage.mutex()).await), "next");
    held(b.beat(&y, ticket).await);
}

/// A break of one reader leaves the others alone.
pub async fn a_break_hits_one_reader(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, operator] = stage.clients().await;
    let (one, two) = (stage.reader(a.order()), stage.reader(a.order()));
    let fence = granted(a.ask(&one).await);
    granted(b.ask(&two).await);
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&one, LONG).await);
    held(b.renew(&two, LONG).await);
}

/// A break ends every entry of the thread of work that holds.
pub async fn a_break_ends_every_entry(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, operator] = stage.clients().await;
    let outer = stage.mutex().reentering(super::support::fresh_reentry());
    let inner = outer.again();
    let fence = granted(a.ask(&outer).await);
    granted(a.ask(&inner).await);
    assert_eq!(operator.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&outer, LONG).await);
    gone(a.renew(&inner, LONG).await);
    granted(operator.ask(&stage.mutex()).await);
}
