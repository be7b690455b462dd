//! A claim whose id the caller chose is asked for by several calls: each cleans up after itself.

use distlock_core::{Answer, Ask, AttemptId, ReleaseOutcome, Target};

use super::Subject;
use super::support::{AskExt, KitClient, KitStage, LONG, burying, granted, held};

/// The same ask in another call.
fn attempted(ask: &Ask) -> Ask {
    let attempt = AttemptId::random().expect("the system has random bytes");
    Ask { attempt: Some(attempt), ..ask.clone() }
}

/// The clean-up of one call.
async fn clean_up(
    client: &KitClient,
    ask: &Ask,
    how: distlock_core::ReleaseOptions,
) -> ReleaseOutcome {
    let attempt = ask.attempt.expect("the ask is an attempt");
    client.release_target(&Target::Attempt { claim: ask.claim.clone(), attempt }, how).await
}

/// What a repeated call was granted stays when the first call is cleaned up.
pub async fn a_clean_up_gives_up_its_own_attempt_only(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = attempted(&stage.mutex());
    let again = attempted(&first);
    let fence = granted(a.ask(&first).await);
    assert_eq!(granted(b.ask(&again).await), fence);
    assert_eq!(clean_up(&a, &first, burying(LONG)).await, ReleaseOutcome::Gone);
    assert_eq!(clean_up(&a, &first, burying(LONG)).await, ReleaseOutcome::Gone);
    held(b.renew(&again, LONG).await);
    assert!(!matches!(a.ask(&stage.mutex()).await, Answer::Granted { .. }));
}

/// The clean-up of the last call gives up the claim.
pub async fn a_claim_goes_with_its_last_attempt(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = attempted(&stage.mutex());
    let again = attempted(&first);
    granted(a.ask(&first).await);
    granted(b.ask(&again).await);
    assert_eq!(clean_up(&b, &again, burying(LONG)).await, ReleaseOutcome::Gone);
    assert_eq!(clean_up(&a, &first, burying(LONG)).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.mutex()).await);
}

/// An ask that arrives after its own clean-up gets nothing; a repeated call does.
pub async fn a_dead_attempt_is_refused_and_another_is_granted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let late = attempted(&stage.mutex());
    let again = attempted(&late);
    assert_eq!(clean_up(&a, &late, burying(LONG)).await, ReleaseOutcome::Gone);
    assert_eq!(a.ask(&late).await, Answer::Dead);
    granted(b.ask(&again).await);
    assert_eq!(b.ask(&late).await, Answer::Dead, "over whatever connection");
    held(b.renew(&again, LONG).await);
}

/// A hold without attempts is given up by none.
pub async fn a_claim_without_attempts_is_given_up_by_none(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let plain = stage.mutex();
    let attempt = attempted(&plain);
    granted(a.ask(&plain).await);
    granted(a.ask(&attempt).await);
    assert_eq!(clean_up(&a, &attempt, burying(LONG)).await, ReleaseOutcome::Gone);
    held(a.renew(&plain, LONG).await);
    assert_eq!(a.release(&plain).await, ReleaseOutcome::WasHeld);
}

/// A client that repeats a call more often than a store can keep apart keeps what the last call was
/// granted, however many clean-ups of earlier calls arrive after it.
pub async fn many_clean_ups_give_up_nothing_that_a_later_call_has(subject: &dyn Subject) {
    const CALLS: usize = 20;
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = attempted(&stage.mutex());
    let calls: Vec<_> = (0..CALLS).map(|_| attempted(&first)).collect();
    for call in &calls {
        granted(a.ask(call).await);
    }
    let (last, earlier) = calls.split_last().expect("there are calls");
    for call in earlier {
        assert_eq!(clean_up(&a, call, burying(LONG)).await, ReleaseOutcome::Gone);
    }
    held(b.renew(last, LONG).await);
    assert_eq!(b.release(last).await, ReleaseOutcome::WasHeld);
}

/// A release by its claim ends a hold, whatever other calls have asked for it.
pub async fn a_release_ends_all_attempts(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = attempted(&stage.mutex());
    granted(a.ask(&first).await);
    granted(b.ask(&attempted(&first)).await);
    assert_eq!(b.release(&first).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.mutex()).await);
}

/// A place stays as long as one call waits for it, and is granted to that call.
pub async fn a_place_goes_with_its_last_attempt(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    let first = attempted(&stage.mutex().queued(LONG));
    let (second, third) = (attempted(&first), attempted(&first));
    granted(a.ask(&x).await);
    let ticket = b.queue(&first).await;
    assert_eq!(b.queue(&second).await, ticket);
    assert_eq!(b.queue(&third).await, ticket);
    assert_eq!(clean_up(&b, &first, burying(LONG)).await, ReleaseOutcome::Gone);
    assert_eq!(a.inspect(&stage.key()).await.waiters_total, 1);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(b.beat(&second, ticket).await);
    assert_eq!(clean_up(&b, &second, burying(LONG)).await, ReleaseOutcome::Gone);
    assert_eq!(clean_up(&b, &third, burying(LONG)).await, ReleaseOutcome::WasHeld);
    assert!(a.inspect(&stage.key()).await.is_free());
}

/// The same for those who share.
pub async fn a_shared_claim_goes_with_its_last_attempt(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = attempted(&stage.reader(a.order()));
    let again = attempted(&first);
    granted(a.ask(&first).await);
    granted(b.ask(&again).await);
    assert_eq!(clean_up(&a, &first, burying(LONG)).await, ReleaseOutcome::Gone);
    held(b.renew(&again, LONG).await);
    assert_eq!(clean_up(&b, &again, burying(LONG)).await, ReleaseOutcome::WasHeld);
    assert!(a.inspect(&stage.key()).await.is_free());
}
