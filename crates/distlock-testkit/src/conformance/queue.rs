//! Who waits stands in line: in sequence, without gaps, without overtaking.

use distlock_core::{Answer, Ask, ReleaseOutcome, Wait};

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, busy, busy_with, gone, granted, held, waiting,
};

/// Waiters are served exactly in the sequence in which they came.
pub async fn waiters_are_served_in_sequence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let clients: [_; 4] = stage.clients().await;
    let first = stage.mutex();
    granted(clients[0].ask(&first).await);
    let mut line = Vec::new();
    for nth in 0..20 {
        let ask = stage.mutex().queued(LONG);
        let ticket = clients[nth % 4].queue(&ask).await;
        line.push((&clients[nth % 4], ask, ticket));
    }
    assert_eq!(clients[0].release(&first).await, ReleaseOutcome::WasHeld);
    for (nth, (client, ask, ticket)) in line.iter().enumerate() {
        held(client.beat(ask, *ticket).await);
        for (behind, (client, ask, ticket)) in line[nth + 1..].iter().enumerate() {
            assert_eq!(waiting(client.beat(ask, *ticket).await).ahead, behind as u64);
        }
        assert_eq!(client.release(ask).await, ReleaseOutcome::WasHeld);
    }
    granted(clients[0].ask(&stage.mutex()).await);
}

/// Tickets grow in the sequence of arrival.
pub async fn tickets_grow(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex()).await);
    let mut last = 0;
    for _ in 0..10 {
        let ticket = b.queue(&stage.mutex().queued(LONG)).await;
        assert!(ticket > last, "{ticket} after {last}");
        last = ticket;
    }
}

/// Tickets do not restart when the queue and the key were empty in between.
pub async fn tickets_never_restart(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let mut last = 0;
    for _ in 0..3 {
        let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
        granted(a.ask(&x).await);
        let ticket = b.queue(&y).await;
        assert!(ticket > last, "{ticket} after {last}");
        last = ticket;
        assert_eq!(b.release(&y).await, ReleaseOutcome::WasWaiting);
        assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    }
}

/// A waiter that asks again keeps its place and its ticket.
pub async fn asking_again_keeps_the_place(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let x = stage.mutex();
    let (y, z) = (stage.mutex().queued(LONG), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    let behind = c.queue(&z).await;
    assert_eq!(b.queue(&y).await, ticket);
    assert_eq!(busy(b.ask(&y).await).ahead, 0);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(b.beat(&y, ticket).await);
    waiting(c.beat(&z, behind).await);
}

/// Every waiter is told how many are ahead of it, when it asks and when it renews.
pub async fn ahead_counts_those_in_front(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex()).await);
    let line: Vec<_> = (0..5).map(|_| stage.mutex().queued(LONG)).collect();
    for (ahead, ask) in line.iter().enumerate() {
        let busy = busy(b.ask(ask).await);
        assert_eq!(busy.ahead, ahead as u64);
        let ticket = busy.ticket.expect("a waiting ask gets a place");
        assert_eq!(waiting(b.beat(ask, ticket).await).ahead, ahead as u64);
    }
    assert_eq!(busy(a.ask(&stage.mutex()).await).ahead, 5, "a newcomer would be the sixth");
}

/// A release admits the first in line in the same step: no client comes between.
pub async fn a_release_admits_the_next(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG).owned_by("next"));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(busy_with(c.ask(&stage.mutex()).await), "next");
    held(b.beat(&y, ticket).await);
}

/// The end of a lease admits the first in line, ahead of the client that notices it.
pub async fn an_expiry_admits_the_next(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let y = stage.mutex().queued(LONG).owned_by("next");
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    let ticket = b.queue(&y).await;
    stage.outlive_short().await;
    assert_eq!(busy_with(c.ask(&stage.mutex()).await), "next");
    held(b.beat(&y, ticket).await);
}

/// A waiter's own heartbeat notices that the holder's lease has ended.
pub async fn a_heartbeat_notices_the_expiry(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    let ticket = b.queue(&y).await;
    waiting(b.beat(&y, ticket).await);
    stage.outlive_short().await;
    held(b.beat(&y, ticket).await);
}

/// A waiter that asks again after it was admitted gets its grant.
pub async fn asking_again_after_admission_is_granted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let fence = held(b.beat(&y, ticket).await);
    assert_eq!(granted(b.ask(&y).await), fence);
}

/// A waiter that leaves is out of the line, and those behind it move up.
pub async fn a_waiter_that_leaves_makes_room(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let x = stage.mutex();
    let (y, z) = (stage.mutex().queued(LONG), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    let behind = c.queue(&z).await;
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasWaiting);
    assert_eq!(b.release(&y).await, ReleaseOutcome::Gone);
    gone(b.beat(&y, ticket).await);
    assert_eq!(waiting(c.beat(&z, behind).await).ahead, 0);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(c.beat(&z, behind).await);
}

/// A waiter that leaves after it was admitted, not knowing it, passes the key on.
pub async fn a_waiter_that_leaves_too_late_passes_it_on(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let x = stage.mutex();
    let (y, z) = (stage.mutex().queued(LONG), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    b.queue(&y).await;
    let behind = c.queue(&z).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld, "it was admitted meanwhile");
    held(c.beat(&z, behind).await);
}

/// A wrong claim's release removes no client from the line.
pub async fn a_wrong_claim_removes_no_waiter(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    assert_eq!(b.release(&y.again()).await, ReleaseOutcome::Gone);
    waiting(b.beat(&y, ticket).await);
}

/// Where the line is as long as the ask tolerates, the ask is refused and leaves nothing.
pub async fn a_long_line_is_full(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let wait = Some(Wait { place: LONG, waiters_max: 2 });
    let [y, z, late] = [(); 3].map(|()| Ask { wait, ..stage.mutex() });
    granted(a.ask(&stage.mutex()).await);
    b.queue(&y).await;
    b.queue(&z).await;
    assert_eq!(b.ask(&late).await, Answer::Full);
    assert_eq!(b.release(&late).await, ReleaseOutcome::Gone);
    // Who is in line already is not refused, and a place that is given up can be taken.
    b.queue(&z).await;
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasWaiting);
    b.queue(&late).await;
}

/// A one-shot ask takes no place: who comes later is not behind it.
pub async fn a_one_shot_never_queues(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, shot, y) = (stage.mutex(), stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    assert_eq!(busy(b.ask(&shot).await).ticket, None);
    assert_eq!(busy(c.ask(&y).await).ahead, 0);
    gone(b.renew(&shot, LONG).await);
    assert_eq!(a.inspect(&stage.key()).await.waiters_total, 1);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(c.release(&y).await, ReleaseOutcome::WasHeld);
    granted(a.ask(&stage.mutex()).await);
}

/// A one-shot ask does not overtake who is in line, not even when there is room for it.
pub async fn a_one_shot_never_overtakes(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let big = stage.permits(2, 3).queued(LONG);
    granted(a.ask(&stage.permits(2, 3)).await);
    let ticket = b.queue(&big).await;
    assert_eq!(busy(c.ask(&stage.permits(1, 3)).await).ahead, 1);
    assert_eq!(busy(c.ask(&stage.permits(1, 100)).await).ahead, 1, "nor by a larger capacity");
    waiting(b.beat(&big, ticket).await);
}
