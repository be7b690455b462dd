//! Readers of one group share; different groups exclude each other.

use distlock_core::{Label, ReleaseOutcome};

use super::Subject;
use super::support::{AskExt, KitStage, LONG, SHORT, busy, granted, held, waiting};

/// Readers of one group hold together.
pub async fn readers_of_one_group_share(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.reader(a.order()).grouped("blue")).await);
    granted(b.ask(&stage.reader(a.order()).grouped("blue")).await);
    assert_eq!(a.inspect(&stage.key()).await.holders_total, 2);
}

/// Readers of different groups exclude each other, and a reader without a group is a group.
pub async fn different_groups_exclude(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let blue = stage.reader(a.order()).grouped("blue");
    granted(a.ask(&blue).await);
    let named = busy(b.ask(&stage.reader(a.order()).grouped("green")).await);
    let group = named.holder.and_then(|holder| holder.group);
    assert_eq!(group.as_ref().map(Label::as_str), Some("blue"));
    busy(b.ask(&stage.reader(a.order())).await);
    assert_eq!(a.release(&blue).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.reader(a.order())).await);
    busy(a.ask(&blue.again()).await);
}

/// A writer excludes every group and is excluded by each.
pub async fn a_writer_excludes_every_group(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let blue = stage.reader(a.order()).grouped("blue");
    granted(a.ask(&blue).await);
    busy(b.ask(&stage.writer(a.order())).await);
    assert_eq!(a.release(&blue).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.writer(a.order())).await);
    busy(a.ask(&blue.again()).await);
}

/// A release is by claim and not by group: the others of the group go on.
pub async fn a_release_ends_one_claim_of_a_group(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let one = stage.reader(a.order()).grouped("blue").owned_by("me");
    let two = one.again();
    granted(a.ask(&one).await);
    granted(a.ask(&two).await);
    assert_eq!(b.release(&one.again()).await, ReleaseOutcome::Gone, "a group is no password");
    assert_eq!(a.release(&one).await, ReleaseOutcome::WasHeld);
    busy(b.ask(&stage.reader(a.order()).grouped("green")).await);
    held(a.renew(&two, LONG).await);
    assert_eq!(a.release(&two).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.reader(a.order()).grouped("green")).await);
}

/// A group that left its key to expire makes room for another.
pub async fn a_dead_group_makes_room(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.reader(a.order()).grouped("blue").lasting(SHORT)).await);
    stage.outlive_short().await;
    granted(b.ask(&stage.reader(a.order()).grouped("green")).await);
    busy(a.ask(&stage.reader(a.order()).grouped("blue")).await);
}

/// A waiting group enters together when the group inside has gone.
pub async fn a_waiting_group_enters_together(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let blue = stage.reader(a.order()).grouped("blue");
    let [one, two] = [(); 2].map(|()| stage.reader(a.order()).grouped("green").queued(LONG));
    granted(a.ask(&blue).await);
    let (first, second) = (b.queue(&one).await, b.queue(&two).await);
    waiting(b.beat(&one, first).await);
    assert_eq!(a.release(&blue).await, ReleaseOutcome::WasHeld);
    held(b.beat(&one, first).await);
    held(b.beat(&two, second).await);
}
