//! A grant to a waiter is pushed to that waiter, and to no other client.

use distlock_core::{Push, ReleaseOutcome};

use super::Subject;
use super::support::{AskExt, KitStage, LONG, SHORT, granted, held, waiting};

/// A granted waiter is pushed its claim, the ticket it was told and the fence it has.
pub async fn a_granted_waiter_is_pushed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let mut inbox = b.listen();
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    // Some stores subscribe only after the first busy; the heartbeat after it makes up for that.
    assert_eq!(waiting(b.beat(&y, ticket).await).ticket, ticket);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let push = inbox.hear().await;
    let fence = held(b.beat(&y, ticket).await);
    assert_eq!(push, Push::Granted { id: y.claim.id, ticket, fence });
}

/// Only the waiter that was granted is pushed: no herd.
pub async fn nobody_else_is_pushed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let mut inbox = c.listen();
    let (x, y, z) = (stage.mutex(), stage.mutex().queued(LONG), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    b.queue(&y).await;
    let ticket = c.queue(&z).await;
    waiting(c.beat(&z, ticket).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
    // Pushes to one client keep their sequence: a push at the first release would be the first.
    let push = inbox.hear().await;
    let fence = held(c.beat(&z, ticket).await);
    assert_eq!(push, Push::Granted { id: z.claim.id, ticket, fence });
}

/// The push goes to the client that renewed the place last.
pub async fn a_push_follows_the_place(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let mut inbox = c.listen();
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    waiting(c.beat(&y, ticket).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert!(matches!(inbox.hear().await, Push::Granted { ticket: got, .. } if got == ticket));
}

/// An immediate grant is answered and not pushed.
pub async fn an_immediate_grant_is_not_pushed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let mut inbox = b.listen();
    let (w, x, y) = (stage.mutex().queued(LONG), stage.mutex(), stage.mutex().queued(LONG));
    granted(b.ask(&w).await);
    assert_eq!(b.release(&w).await, ReleaseOutcome::WasHeld);
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    waiting(b.beat(&y, ticket).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert!(matches!(inbox.hear().await, Push::Granted { id, .. } if id == y.claim.id));
}

/// Who is admitted because another leaves the line is pushed.
pub async fn a_leaving_waiter_wakes_the_next(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let mut inbox = c.listen();
    let big = stage.permits(3, 3).queued(LONG);
    let small = stage.permits(1, 3).queued(LONG);
    granted(a.ask(&stage.permits(1, 3)).await);
    b.queue(&big).await;
    let ticket = c.queue(&small).await;
    waiting(c.beat(&small, ticket).await);
    assert_eq!(b.release(&big).await, ReleaseOutcome::WasWaiting);
    assert!(matches!(inbox.hear().await, Push::Granted { ticket: got, .. } if got == ticket));
}

/// A waiter that is admitted because a client notices an expiry gets a push.
pub async fn an_expiry_wakes_the_next(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let mut inbox = b.listen();
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    let ticket = b.queue(&y).await;
    waiting(b.beat(&y, ticket).await);
    stage.outlive_short().await;
    c.ask(&stage.mutex()).await;
    assert!(matches!(inbox.hear().await, Push::Granted { ticket: got, .. } if got == ticket));
}

/// A holder that an operator breaks is pushed that it is broken.
pub async fn a_broken_holder_is_pushed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let mut inbox = a.listen();
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    assert_eq!(b.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    assert_eq!(inbox.hear().await, Push::Broken { id: x.claim.id });
}

/// Every stream of pushes of a client hears every push.
pub async fn every_listener_hears_the_push(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (mut left, mut right) = (b.listen(), b.listen());
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    waiting(b.beat(&y, ticket).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(left.hear().await, right.hear().await);
}

/// A listener that goes away does not silence the others.
pub async fn a_listener_that_leaves_disturbs_nobody(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (mut inbox, leaving) = (b.listen(), b.listen());
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    waiting(b.beat(&y, ticket).await);
    drop(leaving);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert!(matches!(inbox.hear().await, Push::Granted { ticket: got, .. } if got == ticket));
}
