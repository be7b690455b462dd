//! A look shows who holds and who waits, gives away no secret and changes nothing.

use distlock_core::{Ask, ClaimId, Mode, ReleaseOutcome, SNAPSHOT_MAX};
use futures_util::future::join_all;

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, STORE_LATE_MAX, busy, granted, label, waiting,
};

/// A key that no client holds is free, before and after.
pub async fn a_free_key_looks_free(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    let before = a.inspect(&stage.key()).await;
    assert!(before.is_free() && before.order.is_none(), "{before:?}");
    granted(a.ask(&x).await);
    assert!(!a.inspect(&stage.key()).await.is_free());
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.inspect(&stage.key()).await, before);
}

/// A look shows the holder: owner, reason, fence, weight, and how long it has left.
pub async fn a_look_shows_the_holder(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = Ask { reason: Some(label("release 1.9")), ..stage.mutex().owned_by("ci-7") };
    let fence = granted(a.ask(&x).await);
    stage.pass(SHORT).await;
    let look = b.inspect(&stage.key()).await;
    assert_eq!((look.key.clone(), look.order), (stage.key(), None));
    assert_eq!((look.holders_total, look.waiters_total), (1, 0));
    let holder = &look.holders[0];
    assert_eq!((holder.owner.as_str(), holder.fence, holder.weight), ("ci-7", fence, 1));
    assert_eq!((&holder.reason, holder.mode()), (&x.reason, Mode::Exclusive), "{holder:?}");
    assert_eq!(holder.capacity, Some(1), "{holder:?}");
    assert!(holder.exclusive && holder.held_for >= SHORT - STORE_LATE_MAX, "{holder:?}");
    assert!(
        holder.expires_in.is_some_and(|left| left <= LONG - SHORT + STORE_LATE_MAX),
        "{holder:?}"
    );
}

/// A look shows the waiters in the sequence in which they will be served.
pub async fn a_look_shows_the_line(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex()).await);
    for owner in ["first", "second", "third"] {
        b.queue(&stage.mutex().queued(LONG).owned_by(owner)).await;
    }
    stage.pass(SHORT).await;
    let look = a.inspect(&stage.key()).await;
    assert_eq!((look.holders_total, look.waiters_total), (1, 3));
    let owners: Vec<_> = look.waiters.iter().map(|waiter| waiter.owner.as_str()).collect();
    assert_eq!(owners, ["first", "second", "third"]);
    for waiter in &look.waiters {
        assert!(waiter.exclusive && waiter.weight == 1, "{waiter:?}");
        assert!(waiter.waited >= SHORT - STORE_LATE_MAX, "{waiter:?}");
    }
}

/// Whether a text has the id in it, as digits in either case or as bytes.
fn gives_away(text: &str, id: &ClaimId) -> bool {
    let bytes = format!("{:?}", id.as_bytes());
    text.to_lowercase().contains(&id.reveal()) || text.contains(bytes.trim_matches(['[', ']']))
}

/// Claim ids are secrets: no look and no refusal shows one.
pub async fn a_look_gives_away_no_claim_id(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, shot) = (stage.mutex(), stage.mutex());
    granted(a.ask(&x).await);
    let refused = busy(b.ask(&shot).await);
    let look = b.inspect(&stage.key()).await;
    let shown = format!("{refused:?} {look:?} {:?}", b.backend);
    assert!(!gives_away(&shown, &x.claim.id) && !gives_away(&shown, &shot.claim.id), "{shown}");
}

/// Nor does a look show the id of one who waits.
pub async fn a_look_gives_away_no_waiters_id(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let y = stage.mutex().queued(LONG);
    granted(a.ask(&stage.mutex()).await);
    b.queue(&y).await;
    let shown = format!("{:?}", a.inspect(&stage.key()).await);
    assert!(!gives_away(&shown, &y.claim.id), "{shown}");
}

/// A look at many holders shows some of them and counts all.
pub async fn a_look_at_many_holders_is_bounded(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let many: Vec<_> = (0..SNAPSHOT_MAX + 20).map(|_| stage.reader(a.order())).collect();
    for answer in join_all(many.iter().map(|ask| a.ask(ask))).await {
        granted(answer);
    }
    let look = a.inspect(&stage.key()).await;
    assert_eq!((look.holders.len(), look.holders_total), (SNAPSHOT_MAX, many.len() as u64));
}

/// A look at a long line shows the front of it and counts all.
pub async fn a_look_at_a_long_line_is_bounded(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    granted(a.ask(&stage.mutex()).await);
    a.queue(&stage.mutex().queued(LONG).owned_by("first")).await;
    let many: Vec<_> = (0..SNAPSHOT_MAX + 20).map(|_| stage.mutex().queued(LONG)).collect();
    join_all(many.iter().map(|ask| a.queue(ask))).await;
    let look = a.inspect(&stage.key()).await;
    assert_eq!((look.waiters.len(), look.waiters_total), (SNAPSHOT_MAX, many.len() as u64 + 1));
    assert_eq!(look.waiters[0].owner.as_str(), "first");
}

/// A look does not show what has ended, touched or not.
pub async fn a_look_shows_nothing_that_has_ended(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    stage.outlive_short().await;
    let look = a.inspect(&stage.key()).await;
    assert!(look.is_free() && look.holders.is_empty(), "{look:?}");
}

/// A look prolongs no lease.
pub async fn a_look_prolongs_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    for _ in 0..4 {
        b.inspect(&stage.key()).await;
        a.inspect(&stage.key()).await;
        stage.pass(SHORT / 4).await;
    }
    stage.pass(STORE_LATE_MAX).await;
    granted(b.ask(&stage.mutex()).await);
}

/// A look is no heartbeat: it keeps no place alive.
pub async fn a_look_is_no_heartbeat(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (y, z) = (stage.mutex().queued(LONG), stage.mutex().queued(SHORT));
    granted(a.ask(&stage.mutex()).await);
    let ticket = a.queue(&y).await;
    b.queue(&z).await;
    stage.pass(SHORT / 2).await;
    assert_eq!(b.inspect(&stage.key()).await.waiters_total, 2);
    stage.outlive_short().await;
    assert_eq!(b.inspect(&stage.key()).await.waiters_total, 1);
    assert_eq!(waiting(a.beat(&y, ticket).await).ticket, ticket);
}
