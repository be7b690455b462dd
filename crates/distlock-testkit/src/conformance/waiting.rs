//! A place in the queue lives as long as its client is heard of, and a grant inherits that.

use distlock_core::{Ask, Claim, ReleaseOutcome, Renewal, Standing, Ticket};

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, busy, busy_with, gone, granted, held, mutex, waiting,
};

/// A waiter that was not heard of for `place` is gone, and who is behind it is admitted instead.
pub async fn a_dead_waiter_is_passed_over(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let x = stage.mutex();
    let (dead, next) = (stage.mutex().queued(SHORT), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&dead).await;
    let behind = c.queue(&next).await;
    stage.outlive_short().await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    gone(b.beat(&dead, ticket).await);
    held(c.beat(&next, behind).await);
}

/// A waiter whose place died is told so.
pub async fn a_dead_place_is_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(SHORT);
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    stage.outlive_short().await;
    gone(b.beat(&y, ticket).await);
    assert_eq!(b.release(&y).await, ReleaseOutcome::Gone);
}

/// A place that died and is asked for again is a new place at the end of the line.
pub async fn a_dead_place_comes_back_at_the_end(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (y, z) = (stage.mutex().queued(SHORT), stage.mutex().queued(LONG));
    granted(a.ask(&stage.mutex()).await);
    let before = b.queue(&y).await;
    c.queue(&z).await;
    stage.outlive_short().await;
    let again = busy(b.ask(&y).await);
    assert_eq!(again.ahead, 1);
    assert!(again.ticket.is_some_and(|ticket| ticket > before), "{again:?} after {before}");
}

/// A client that touches the key next lets the line move on past a dead one.
pub async fn anybody_moves_the_line_on(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c, d] = stage.clients().await;
    let x = stage.mutex();
    let dead = stage.mutex().queued(SHORT).owned_by("dead");
    let next = stage.mutex().queued(LONG).owned_by("next");
    granted(a.ask(&x).await);
    b.queue(&dead).await;
    c.queue(&next).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(busy_with(d.ask(&stage.mutex()).await), "dead");
    // The dead one never learns that it holds. A stranger's ask ends that and admits the next.
    stage.outlive_short().await;
    assert_eq!(busy_with(d.ask(&stage.mutex()).await), "next");
}

/// Heartbeats in time keep a place alive for ever.
pub async fn heartbeats_keep_the_place(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(SHORT));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    for _ in 0..5 {
        stage.pass(SHORT / 2).await;
        assert_eq!(waiting(b.beat(&y, ticket).await).ticket, ticket);
    }
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(b.beat(&y, ticket).await);
}

/// Asking again is a heartbeat, too.
pub async fn asking_again_keeps_the_place_alive(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(SHORT);
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    assert_eq!(b.queue(&y.clone().queued(LONG)).await, ticket);
    stage.outlive_short().await;
    assert_eq!(waiting(b.beat(&y, ticket).await).ticket, ticket);
}

/// One heartbeat keeps all places of the client at that key.
pub async fn a_heartbeat_covers_the_clients_places(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (y, z) = (stage.mutex().queued(SHORT), stage.mutex().queued(SHORT));
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    let other = b.queue(&z).await;
    waiting(b.renewal(Renewal::place(y.claim.clone(), LONG, ticket)).await);
    stage.outlive_short().await;
    assert_eq!(waiting(b.beat(&z, other).await).ticket, other);
}

/// A heartbeat does not keep the places of another client.
pub async fn a_heartbeat_covers_no_other_client(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (y, z) = (stage.mutex().queued(SHORT), stage.mutex().queued(SHORT));
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    let other = c.queue(&z).await;
    waiting(b.renewal(Renewal::place(y.claim.clone(), LONG, ticket)).await);
    stage.outlive_short().await;
    gone(c.beat(&z, other).await);
    waiting(b.beat(&y, ticket).await);
}

/// A heartbeat does not keep the places at another key.
pub async fn a_heartbeat_covers_no_other_key(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (here, there) = (stage.named("/here"), stage.named("/there"));
    let (y, z) = (mutex(&here).queued(SHORT), mutex(&there).queued(SHORT));
    granted(a.ask(&mutex(&here)).await);
    granted(a.ask(&mutex(&there)).await);
    let ticket = b.queue(&y).await;
    let other = b.queue(&z).await;
    waiting(b.renewal(Renewal::place(y.claim.clone(), LONG, ticket)).await);
    stage.outlive_short().await;
    gone(b.beat(&z, other).await);
    waiting(b.beat(&y, ticket).await);
}

/// A place belongs to the client that renews it: it lives on with that client.
pub async fn a_place_follows_its_renewals(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (y, z) = (stage.mutex().queued(SHORT), stage.mutex().queued(SHORT));
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    let left = b.queue(&z).await;
    waiting(c.renewal(Renewal::place(y.claim.clone(), LONG, ticket)).await);
    stage.outlive_short().await;
    gone(b.beat(&z, left).await);
    assert_eq!(waiting(c.beat(&y, ticket).await).ticket, ticket);
}

/// A place that another client takes over loses none of the time it had.
pub async fn a_place_that_moves_loses_no_time(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    waiting(c.renewal(Renewal::place(y.claim.clone(), SHORT, ticket)).await);
    stage.outlive_short().await;
    assert_eq!(waiting(c.beat(&y, ticket).await).ticket, ticket);
}

/// A heartbeat never shortens the life of a place.
pub async fn a_heartbeat_never_shortens(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex()).await);
    let ticket = b.queue(&y).await;
    waiting(b.renewal(Renewal::place(y.claim.clone(), SHORT, ticket)).await);
    stage.outlive_short().await;
    waiting(b.beat(&y, ticket).await);
}

/// A granted waiter that is not heard of holds for the rest of its place, not for its ttl.
pub async fn a_grant_inherits_the_place(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(SHORT).lasting(LONG));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    busy(c.ask(&stage.mutex()).await);
    stage.outlive_short().await;
    granted(c.ask(&stage.mutex()).await);
    gone(b.beat(&y, ticket).await);
}

/// A waiter that asked to hold for less than its place lives is granted no more than that, also if
/// another place of its client lives longer.
pub async fn a_grant_never_outlasts_its_ttl(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG).lasting(SHORT));
    granted(a.ask(&x).await);
    b.queue(&y).await;
    let last = stage.mutex().queued(LONG);
    let ticket = b.queue(&last).await;
    waiting(b.beat(&last, ticket).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let shown = c.inspect(&stage.key()).await.holders[0].expires_in;
    assert!(shown.is_some_and(|left| left <= SHORT), "{shown:?}");
    stage.outlive_short().await;
    held(b.beat(&last, ticket).await);
}

/// Places of one client at many keys are kept by one batch, each answered for itself.
pub async fn one_batch_carries_the_heartbeats_of_many_keys(subject: &dyn Subject) {
    const KEYS: usize = 40;
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let at = |n: usize| {
        let key = stage.named(&format!("/{n}"));
        let on = |ask: Ask| Ask { claim: Claim::new(key.clone(), ask.claim.id), ..ask };
        [on(stage.mutex()), on(stage.mutex().queued(SHORT))]
    };
    let mut waiters = Vec::new();
    for n in 0..KEYS {
        let [holder, waiter] = at(n);
        granted(a.ask(&holder).await);
        let ticket = b.queue(&waiter).await;
        waiters.push((holder, waiter, ticket));
    }
    let beats = |waiters: &[(Ask, Ask, Ticket)]| -> Vec<_> {
        let beat = |(_, ask, ticket): &(Ask, Ask, Ticket)| {
            Renewal::place(ask.claim.clone(), SHORT, *ticket)
        };
        waiters.iter().map(beat).collect()
    };
    for _ in 0..3 {
        stage.pass(SHORT / 2).await;
        let answers = b.renewals(&beats(&waiters)).await;
        assert_eq!(answers.len(), KEYS);
        for (index, standing) in answers {
            let ticket = waiting(standing.expect("a heartbeat is answered")).ticket;
            assert_eq!(ticket, waiters[index].2, "the place at key {index}");
        }
    }
    assert_eq!(a.release(&waiters[7].0).await, ReleaseOutcome::WasHeld);
    for (index, standing) in b.renewals(&beats(&waiters)).await {
        match standing.expect("a heartbeat is answered") {
            Standing::Held { .. } => assert_eq!(index, 7),
            other => assert_ne!(index, 7, "{other:?}"),
        }
    }
}

/// The identity of a claim is its key and its id: one id may wait at two keys.
pub async fn one_id_waits_at_two_keys(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    let elsewhere =
        |ask: &Ask| Ask { claim: Claim::new(stage.named("/other"), ask.claim.id), ..ask.clone() };
    granted(a.ask(&x).await);
    granted(a.ask(&elsewhere(&x)).await);
    let here = b.queue(&y).await;
    let there = b.queue(&elsewhere(&y)).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(b.beat(&y, here).await);
    waiting(b.beat(&elsewhere(&y), there).await);
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
    waiting(b.beat(&elsewhere(&y), there).await);
    assert_eq!(b.release(&elsewhere(&y)).await, ReleaseOutcome::WasWaiting);
}

/// The renewal of a granted waiter gives it the whole ttl.
pub async fn a_granted_waiter_can_extend(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(SHORT));
    granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let fence = held(b.beat(&y, ticket).await);
    assert_eq!(held(b.renew(&y, LONG).await), fence);
    stage.outlive_short().await;
    busy(c.ask(&stage.mutex()).await);
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
}

/// Waiting tells when the holder's lease ends, so the first in line knows when to look.
pub async fn waiting_tells_when_to_look(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    let ticket = b.queue(&y).await;
    let look = waiting(b.beat(&y, ticket).await).retry_after.expect("the lease has an end");
    assert!(look <= SHORT, "{look:?}");
}
