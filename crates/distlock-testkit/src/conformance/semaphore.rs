//! Some of many: permits by weight, each with a lease of its own.

use distlock_core::{Mode, ReleaseOutcome};
use futures_util::future::join_all;

use super::Subject;
use super::support::{AskExt, KitStage, LONG, SHORT, busy, granted, held, waiting};

/// At most N hold 1 of N.
pub async fn at_most_n_hold(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let permits: Vec<_> = (0..3).map(|_| stage.permits(1, 3)).collect();
    for permit in &permits {
        granted(a.ask(permit).await);
    }
    busy(b.ask(&stage.permits(1, 3)).await);
    let mode = Mode::Permits { weight: 1, capacity: 3 };
    let look = b.inspect(&stage.key()).await;
    assert!(look.holders.iter().all(|holder| holder.mode() == mode), "{look:?}");
    assert_eq!(a.release(&permits[1]).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.permits(1, 3)).await);
    busy(b.ask(&stage.permits(1, 3)).await);
}

/// However many ask at once, no more than N hold.
pub async fn concurrent_asks_never_exceed_n(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let clients: [_; 5] = stage.clients().await;
    let asks: Vec<_> = (0..50).map(|_| stage.permits(1, 7)).collect();
    let answers =
        join_all(asks.iter().enumerate().map(|(nth, ask)| clients[nth % 5].ask(ask))).await;
    let grants = answers
        .iter()
        .filter(|answer| matches!(answer, distlock_core::Answer::Granted { .. }))
        .count();
    assert_eq!(grants, 7);
}

/// Weights add up.
pub async fn weights_add_up(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let three = stage.permits(3, 5);
    granted(a.ask(&three).await);
    busy(b.ask(&stage.permits(3, 5)).await);
    granted(b.ask(&stage.permits(2, 5)).await);
    busy(b.ask(&stage.permits(1, 5)).await);
    assert_eq!(a.release(&three).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.permits(3, 5)).await);
}

/// A permit that is asked for again is taken once.
pub async fn a_permit_asked_again_counts_once(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let permit = stage.permits(1, 2);
    let fence = granted(a.ask(&permit).await);
    assert_eq!(granted(a.ask(&permit).await), fence);
    granted(b.ask(&stage.permits(1, 2)).await);
    busy(b.ask(&stage.permits(1, 2)).await);
}

/// Who believes in a larger capacity counts by that; who believes in the smaller one does not.
pub async fn a_larger_capacity_counts_by_its_own(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    for _ in 0..3 {
        granted(a.ask(&stage.permits(1, 3)).await);
    }
    busy(b.ask(&stage.permits(1, 3)).await);
    granted(b.ask(&stage.permits(1, 5)).await);
    granted(b.ask(&stage.permits(1, 5)).await);
    busy(b.ask(&stage.permits(1, 5)).await);
}

/// Lowering the capacity evicts no client; newcomers wait until there are few enough.
pub async fn a_lower_capacity_evicts_nobody(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let permits: Vec<_> = (0..4).map(|_| stage.permits(1, 4)).collect();
    for permit in &permits {
        granted(a.ask(permit).await);
    }
    for permit in &permits {
        busy(b.ask(&stage.permits(1, 2)).await);
        held(a.renew(permit, LONG).await);
    }
    for permit in &permits[..3] {
        busy(b.ask(&stage.permits(1, 2)).await);
        assert_eq!(a.release(permit).await, ReleaseOutcome::WasHeld);
    }
    granted(b.ask(&stage.permits(1, 2)).await);
}

/// The whole capacity is exclusive, whatever capacity others believe in.
pub async fn the_whole_capacity_is_exclusive(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let whole = stage.permits(3, 3);
    granted(a.ask(&whole).await);
    busy(b.ask(&stage.permits(1, 100)).await);
    busy(b.ask(&stage.mutex()).await);
    assert_eq!(a.release(&whole).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.permits(1, 100)).await);
    busy(a.ask(&stage.permits(3, 3)).await);
    busy(a.ask(&stage.mutex()).await);
}

/// A small ask does not pass a big one that waits, although there is room for it.
pub async fn a_small_ask_does_not_pass_a_big_one(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let inside = stage.permits(2, 4);
    let (big, small) = (stage.permits(3, 4).queued(LONG), stage.permits(1, 4).queued(LONG));
    granted(a.ask(&inside).await);
    let first = b.queue(&big).await;
    let second = c.queue(&small).await;
    assert_eq!(waiting(c.beat(&small, second).await).ahead, 1);
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    held(b.beat(&big, first).await);
    held(c.beat(&small, second).await);
}

/// One release admits as many as there is room for.
pub async fn a_release_admits_all_that_fit(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let inside = stage.permits(3, 3);
    let line: Vec<_> = (0..4).map(|_| stage.permits(1, 3).queued(LONG)).collect();
    granted(a.ask(&inside).await);
    let mut tickets = Vec::new();
    for ask in &line {
        tickets.push(b.queue(ask).await);
    }
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    for nth in 0..3 {
        held(b.beat(&line[nth], tickets[nth]).await);
    }
    assert_eq!(waiting(b.beat(&line[3], tickets[3]).await).ahead, 0);
}

/// A permit whose holder died comes back after its own lease.
pub async fn a_dead_permit_comes_back(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let live = stage.permits(1, 2);
    granted(a.ask(&stage.permits(1, 2).lasting(SHORT)).await);
    granted(a.ask(&live).await);
    busy(b.ask(&stage.permits(1, 2)).await);
    stage.outlive_short().await;
    granted(b.ask(&stage.permits(1, 2)).await);
    busy(b.ask(&stage.permits(1, 2)).await);
    held(a.renew(&live, LONG).await);
}

/// Late and repeated releases never make room that is not there.
pub async fn late_releases_make_no_room(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (dead, done) = (stage.permits(1, 2).lasting(SHORT), stage.permits(1, 2));
    granted(a.ask(&dead).await);
    granted(a.ask(&done).await);
    assert_eq!(a.release(&done).await, ReleaseOutcome::WasHeld);
    stage.outlive_short().await;
    granted(b.ask(&stage.permits(1, 2)).await);
    granted(b.ask(&stage.permits(1, 2)).await);
    for late in [&dead, &done, &dead, &done] {
        assert_eq!(a.release(late).await, ReleaseOutcome::Gone);
    }
    busy(a.ask(&stage.permits(1, 2)).await);
}
