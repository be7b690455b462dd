//! A thread of work that is inside may enter again; each entry is a claim of its own.

use distlock_core::{ReleaseOutcome, Renewal};

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, busy, fresh_reentry, gone, granted, held, keeping, waiting,
};

/// Who is inside enters again past the queue, under the same fence.
pub async fn who_is_inside_enters_again(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let outer = stage.mutex().reentering(fresh_reentry());
    let waiter = stage.mutex().queued(LONG);
    let fence = granted(a.ask(&outer).await);
    let ticket = b.queue(&waiter).await;
    assert_eq!(granted(a.ask(&outer.again()).await), fence);
    assert_eq!(granted(a.ask(&outer.again().queued(LONG)).await), fence);
    waiting(b.beat(&waiter, ticket).await);
}

/// The key is held until the last entry is released, in whatever sequence.
pub async fn the_last_entry_frees_the_key(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let outer = stage.mutex().reentering(fresh_reentry());
    let (middle, inner) = (outer.again(), outer.again());
    for entry in [&outer, &middle, &inner] {
        granted(a.ask(entry).await);
    }
    for entry in [&middle, &outer, &inner] {
        busy(b.ask(&stage.mutex()).await);
        assert_eq!(a.release(entry).await, ReleaseOutcome::WasHeld);
        assert_eq!(a.release(entry).await, ReleaseOutcome::Gone, "nothing is counted down twice");
    }
    granted(b.ask(&stage.mutex()).await);
}

/// An entry that is asked for again is one entry.
pub async fn an_entry_asked_again_is_one(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let outer = stage.mutex().reentering(fresh_reentry());
    let inner = outer.again();
    granted(a.ask(&outer).await);
    granted(a.ask(&inner).await);
    granted(a.ask(&inner).await);
    assert_eq!(a.release(&inner).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.release(&outer).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.mutex()).await);
}

/// An inner entry with a short lease does not shorten the outer one.
pub async fn an_inner_entry_never_shortens_the_outer(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let outer = stage.mutex().reentering(fresh_reentry());
    let inner = outer.again().lasting(SHORT);
    granted(a.ask(&outer).await);
    granted(a.ask(&inner).await);
    stage.outlive_short().await;
    gone(a.renew(&inner, LONG).await);
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&outer, LONG).await);
}

/// Every entry has its own lease: an inner one outlives an outer one that died.
pub async fn an_inner_entry_outlives_the_outer(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let outer = stage.mutex().reentering(fresh_reentry()).lasting(SHORT);
    let inner = outer.again().lasting(LONG);
    granted(a.ask(&outer).await);
    let fence = granted(a.ask(&inner).await);
    stage.outlive_short().await;
    gone(a.renew(&outer, LONG).await);
    busy(b.ask(&stage.mutex()).await);
    assert_eq!(held(a.renew(&inner, LONG).await), fence);
}

/// An inner entry that was renewed for long lives as long, also when the outer one has left.
pub async fn a_renewed_inner_entry_outlives_the_outer(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let outer = stage.mutex().reentering(fresh_reentry()).lasting(10 * LONG);
    let inner = outer.again().lasting(SHORT);
    let fence = granted(a.ask(&outer).await);
    granted(a.ask(&inner).await);
    held(a.renew(&inner, 5 * LONG).await);
    stage.pass(3 * LONG).await;
    assert_eq!(a.release(&outer).await, ReleaseOutcome::WasHeld);
    busy(b.ask(&stage.mutex()).await);
    assert_eq!(held(a.renew(&inner, LONG).await), fence);
}

/// Another thread of work is excluded, be it of the same owner and the same client.
pub async fn another_thread_of_work_is_excluded(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let outer = stage.mutex().reentering(fresh_reentry());
    granted(a.ask(&outer).await);
    busy(a.ask(&outer.again().reentering(fresh_reentry())).await);
    busy(a.ask(&stage.mutex()).await);
}

/// Who has left is outside: it enters like everybody else, with a new fence.
pub async fn who_has_left_queues_again(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let entry = stage.mutex().reentering(fresh_reentry());
    let waiter = stage.mutex().queued(LONG);
    let before = granted(a.ask(&entry).await);
    b.queue(&waiter).await;
    assert_eq!(a.release(&entry).await, ReleaseOutcome::WasHeld);
    busy(a.ask(&entry.again()).await);
    assert_eq!(b.release(&waiter).await, ReleaseOutcome::WasHeld);
    assert!(granted(a.ask(&entry.again()).await) > before);
}

/// Entries of one thread of work that wait are admitted together.
pub async fn waiting_entries_enter_together(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, between) = (stage.mutex(), stage.mutex().queued(LONG));
    let one = stage.mutex().reentering(fresh_reentry()).queued(LONG);
    let two = one.again();
    granted(a.ask(&x).await);
    let first = b.queue(&one).await;
    let second = c.queue(&between).await;
    let third = b.queue(&two).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let fence = held(b.beat(&one, first).await);
    assert_eq!(held(b.beat(&two, third).await), fence);
    waiting(c.beat(&between, second).await);
}

/// A hold that is released but kept is not entered again: its thread of work has left.
pub async fn a_kept_hold_is_not_entered_again(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let entry = stage.mutex().reentering(fresh_reentry());
    granted(a.ask(&entry).await);
    assert_eq!(a.give_up(&entry, keeping(LONG)).await, ReleaseOutcome::WasHeld);
    busy(a.ask(&entry.again()).await);
}

/// Entries share one fence, also after one of them raised it.
pub async fn a_raised_fence_is_every_entrys(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let outer = stage.mutex().reentering(fresh_reentry());
    let inner = outer.again();
    let raised = granted(a.ask(&outer).await) + 1_000;
    granted(a.ask(&inner).await);
    let raise = Renewal::hold(inner.claim.clone(), LONG);
    held(a.renewal(Renewal { fence_floor: Some(raised), ..raise }).await);
    assert_eq!(held(a.renew(&outer, LONG).await), raised);
    assert_eq!(granted(a.ask(&outer.again()).await), raised);
}
