//! One holder at a time.

use std::time::Duration;

use distlock_core::{Answer, Ask, Claim, Label, ReleaseOutcome};
use futures_util::future::join_all;

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, STORE_LATE_MAX, busy, gone, granted, held, label, mutex,
};

/// A free key is granted to a client that asks.
pub async fn a_free_key_is_granted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    held(a.renew(&x, LONG).await);
}

/// While one holds, another is busy; that is an answer and no error.
pub async fn a_second_asker_is_busy(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex()).await);
    busy(b.ask(&stage.mutex()).await);
    busy(a.ask(&stage.mutex()).await);
}

async fn ask_a_hundred_times(stage: &KitStage<'_>) -> usize {
    let clients: [_; 10] = stage.clients().await;
    let asks: Vec<_> = (0..100).map(|_| stage.mutex()).collect();
    let answers =
        join_all(asks.iter().enumerate().map(|(nth, ask)| clients[nth % 10].ask(ask))).await;
    answers.iter().filter(|answer| matches!(answer, Answer::Granted { .. })).count()
}

/// Of a hundred concurrent asks at most one is granted, and the rest leave nothing behind.
pub async fn at_most_one_of_a_hundred_asks_is_granted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let grants = ask_a_hundred_times(&stage).await;
    assert!(grants <= 1, "{grants} hold at once");
    // Where several servers vote, the votes may have split. Then the key must be free, as soon as
    // the votes are taken back.
    let (a, x) = (stage.client().await, stage.mutex());
    for _ in 0..100 {
        if grants == 1 || matches!(a.ask(&x).await, Answer::Granted { .. }) {
            return;
        }
        stage.pass(Duration::from_millis(10)).await;
    }
    panic!("no client holds the key, and none can");
}

/// Where one store decides, one of a hundred concurrent asks is granted.
pub async fn exactly_one_of_a_hundred_asks_is_granted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    assert_eq!(ask_a_hundred_times(&stage).await, 1);
}

/// After a lost reply the same claim asks again and gets the same grant with the same fence.
pub async fn asking_again_gets_the_same_grant(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    assert_eq!(granted(a.ask(&x).await), fence);
    assert_eq!(granted(b.ask(&x).await), fence, "a new connection repeats the ask");
    // It is one hold all the same: one release ends it.
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.mutex()).await);
}

/// Asking again refreshes the lease.
pub async fn asking_again_refreshes_the_lease(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(SHORT);
    granted(a.ask(&x).await);
    granted(a.ask(&x.clone().lasting(LONG)).await);
    stage.outlive_short().await;
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&x, LONG).await);
}

/// Asking again for less time does not shorten the lease.
pub async fn asking_again_never_shortens_the_lease(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    granted(a.ask(&x).await);
    granted(a.ask(&x.clone().lasting(Duration::from_millis(1))).await);
    stage.pass(STORE_LATE_MAX).await;
    busy(b.ask(&stage.mutex()).await);
    held(a.renew(&x, LONG).await);
}

/// Two claims under one owner label exclude each other: the label decides nothing.
pub async fn the_same_owner_excludes_itself(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, twin] = stage.clients().await;
    let mine = stage.mutex().owned_by("me");
    granted(a.ask(&mine).await);
    let other = mine.again();
    busy(a.ask(&other).await);
    busy(twin.ask(&other).await);
    // Nor can the twin renew or release what it does not hold.
    gone(twin.renew(&other, LONG).await);
    assert_eq!(twin.release(&other).await, ReleaseOutcome::Gone);
    held(a.renew(&mine, LONG).await);
}

/// Holding one key does not touch another.
pub async fn different_keys_do_not_meet(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (here, there) = (mutex(&stage.named("/here")), mutex(&stage.named("/there")));
    granted(a.ask(&here).await);
    granted(b.ask(&there).await);
    assert_eq!(b.release(&there).await, ReleaseOutcome::WasHeld);
    held(a.renew(&here, LONG).await);
}

/// The same claim id at another key is another claim.
pub async fn a_claim_means_nothing_at_another_key(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let here = mutex(&stage.named("/here"));
    let there = Ask { claim: Claim::new(stage.named("/there"), here.claim.id), ..here.clone() };
    granted(a.ask(&here).await);
    gone(a.renew(&there, LONG).await);
    assert_eq!(a.release(&there).await, ReleaseOutcome::Gone);
    granted(a.ask(&there).await);
    assert_eq!(a.release(&there).await, ReleaseOutcome::WasHeld);
    held(a.renew(&here, LONG).await);
}

/// A one-shot ask that was refused is forgotten.
pub async fn a_refused_ask_leaves_nothing_behind(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (x, refused) = (stage.mutex(), stage.mutex());
    granted(a.ask(&x).await);
    assert_eq!(busy(b.ask(&refused).await).ticket, None);
    gone(b.renew(&refused, LONG).await);
    assert_eq!(b.release(&refused).await, ReleaseOutcome::Gone);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    granted(c.ask(&stage.mutex()).await);
}

/// Busy tells who holds, what for and how.
pub async fn busy_names_the_holder(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = Ask { reason: Some(label("nightly build")), ..stage.mutex().owned_by("ci-7") };
    let fence = granted(a.ask(&x).await);
    let holder = busy(b.ask(&stage.mutex()).await).holder.expect("busy names a holder");
    assert_eq!((holder.owner.as_str(), holder.fence), ("ci-7", fence));
    assert_eq!(holder.reason.as_ref().map(Label::as_str), Some("nightly build"));
    assert!(holder.exclusive && holder.weight == 1 && holder.group.is_none(), "{holder:?}");
    assert!(holder.expires_in.is_some_and(|left| left <= LONG + STORE_LATE_MAX), "{holder:?}");
}

/// Busy tells when the holder's lease ends, and that comes nearer.
pub async fn retry_after_tells_when_the_lease_ends(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex()).await);
    let before = busy(b.ask(&stage.mutex()).await).retry_after.expect("the lease has an end");
    assert!(before <= LONG + STORE_LATE_MAX && before > LONG / 2, "{before:?}");
    stage.pass(SHORT).await;
    let after = busy(b.ask(&stage.mutex()).await).retry_after.expect("the lease has an end");
    assert!(after <= before - SHORT + STORE_LATE_MAX, "{before:?}, then {after:?}");
}

/// A client that knows the claim id can renew and release, over any connection.
pub async fn a_claim_belongs_to_its_id(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    assert_eq!(held(b.renew(&x, LONG).await), fence);
    assert_eq!(b.release(&x).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&x, LONG).await);
}

/// A client that goes away leaves its hold to the lease.
pub async fn a_client_that_goes_away_leaves_its_lease(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    drop(a);
    busy(b.ask(&stage.mutex()).await);
    stage.outlive_short().await;
    granted(b.ask(&stage.mutex()).await);
}

/// The identity of a claim is its key and its id: one id may hold two keys, each by itself.
pub async fn one_id_at_two_keys_is_two_claims(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let one = stage.mutex();
    let other = Ask { claim: Claim::new(stage.named("/other"), one.claim.id), ..one.clone() };
    granted(a.ask(&one).await);
    granted(b.ask(&other).await);
    assert_eq!(a.release(&one).await, ReleaseOutcome::WasHeld);
    held(b.renew(&other, LONG).await);
    granted(b.ask(&stage.mutex()).await);
    assert_eq!(b.release(&other).await, ReleaseOutcome::WasHeld);
}
