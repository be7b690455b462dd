//! Fences grow, whatever ends the hold before.

use distlock_core::{Ask, FENCE_MAX, Order, ReleaseOutcome, Renewal};

use super::Subject;
use super::support::{AskExt, KitClient, KitStage, LONG, SHORT, gone, granted, held};

/// Further than the clock that seeds fences gets during a test: twelve days of microseconds.
const FAR: u64 = 1 << 40;

fn raising(ask: &Ask, floor: u64) -> Renewal {
    Renewal { fence_floor: Some(floor), ..Renewal::hold(ask.claim.clone(), LONG) }
}

/// Takes the key and lets it go again; answers the fence.
async fn visit(client: &KitClient, ask: &Ask) -> u64 {
    let fence = granted(client.ask(ask).await);
    assert_eq!(client.release(ask).await, ReleaseOutcome::WasHeld);
    fence
}

/// A fence is larger than the one before a release, for every client.
pub async fn fences_grow_over_releases(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let clients: [_; 3] = stage.clients().await;
    let mut last = 0;
    for turn in 0..30 {
        let fence = visit(&clients[turn % 3], &stage.mutex()).await;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
}

/// A fence is larger than the one before an expiry.
pub async fn fences_grow_over_expiry(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let before = granted(a.ask(&stage.mutex().lasting(SHORT)).await);
    stage.outlive_short().await;
    let after = granted(b.ask(&stage.mutex()).await);
    assert!(after > before, "{after} after {before}");
}

/// The same claim after its expiry is a new grant with a larger fence.
pub async fn an_expired_claim_gets_a_larger_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex().lasting(SHORT);
    let before = granted(a.ask(&x).await);
    stage.outlive_short().await;
    let after = granted(a.ask(&x).await);
    assert!(after > before, "{after} after {before}: the hold was not continuous");
}

/// A fence is larger than the one before a break.
pub async fn fences_grow_over_a_break(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let before = granted(a.ask(&stage.mutex()).await);
    assert_eq!(b.break_hold(&stage.key(), before).await, ReleaseOutcome::WasHeld);
    let after = granted(b.ask(&stage.mutex()).await);
    assert!(after > before, "{after} after {before}");
}

/// A waiter's fence is larger than its predecessor's.
pub async fn fences_grow_along_the_queue(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    let before = granted(a.ask(&x).await);
    let ticket = b.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let after = held(b.beat(&y, ticket).await);
    assert!(after > before, "{after} after {before}");
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
    assert!(granted(a.ask(&stage.mutex()).await) > after);
}

/// A waiter's fence is minted when it enters, not when it came: who held meanwhile had a smaller.
pub async fn fences_grow_in_the_sequence_of_entry(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let [one, two] = [(); 2].map(|()| stage.reader(Order::PreferReaders));
    let writer = stage.writer(Order::PreferReaders).queued(LONG);
    granted(a.ask(&one).await);
    let ticket = b.queue(&writer).await;
    let meanwhile = granted(a.ask(&two).await);
    assert_eq!(a.release(&one).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.release(&two).await, ReleaseOutcome::WasHeld);
    let fence = held(b.beat(&writer, ticket).await);
    assert!(fence > meanwhile, "{fence} after {meanwhile}");
}

/// Readers that hold together have fences of their own.
pub async fn every_reader_has_its_own_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = granted(a.ask(&stage.reader(a.order())).await);
    let second = granted(b.ask(&stage.reader(a.order())).await);
    assert!(second > first, "{second} after {first}");
}

/// A renewal keeps the fence.
pub async fn a_renewal_keeps_the_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    for _ in 0..3 {
        assert_eq!(held(a.renew(&x, LONG).await), fence);
    }
    assert_eq!(granted(a.ask(&x).await), fence);
}

/// Fences are exact in every language: positive and below 2^53.
pub async fn fences_are_exact_everywhere(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    for _ in 0..3 {
        let fence = visit(&a, &stage.mutex()).await;
        assert!(fence > 0 && fence <= FENCE_MAX, "{fence}");
    }
}

/// An ask with a floor gets a fence at least that large, and all later ones are larger still.
pub async fn a_fence_floor_is_honoured(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let floor = visit(&a, &stage.mutex()).await + FAR;
    let raised = visit(&a, &Ask { fence_floor: Some(floor), ..stage.mutex() }).await;
    assert!(raised >= floor, "{raised} is below the floor {floor}");
    assert!(visit(&a, &stage.mutex()).await > raised);
}

/// The floor of an ask that had to wait is honoured when it enters.
pub async fn a_waiters_floor_is_honoured(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex();
    let floor = granted(a.ask(&x).await) + FAR;
    let y = Ask { fence_floor: Some(floor), ..stage.mutex().queued(LONG) };
    let ticket = b.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    let raised = held(b.beat(&y, ticket).await);
    assert!(raised >= floor, "{raised} is below the floor {floor}");
}

/// A floor below what was given out before does not make a fence go back.
pub async fn a_low_floor_does_not_lower_the_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let before = visit(&a, &stage.mutex()).await;
    let after = visit(&a, &Ask { fence_floor: Some(1), ..stage.mutex() }).await;
    assert!(after > before, "{after} after {before}");
}

/// A holder can raise its fence, and later ones are larger still.
pub async fn a_holder_can_raise_its_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    let raised = granted(a.ask(&x).await) + FAR;
    assert_eq!(held(a.renewal(raising(&x, raised)).await), raised);
    assert_eq!(held(a.renew(&x, LONG).await), raised);
    assert_eq!(granted(a.ask(&x).await), raised);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    assert!(visit(&a, &stage.mutex()).await > raised);
}

/// Raising a fence never lowers it.
pub async fn raising_never_lowers_the_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    assert_eq!(held(a.renewal(raising(&x, 1)).await), fence);
    assert_eq!(held(a.renew(&x, LONG).await), fence);
}

/// Who does not hold cannot raise the fence of who does.
pub async fn only_a_holder_can_raise_a_fence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.mutex(), stage.mutex());
    assert!(visit(&a, &x).await > 0);
    let fence = granted(b.ask(&y).await);
    gone(a.renewal(raising(&x, fence + FAR)).await);
    assert_eq!(held(b.renew(&y, LONG).await), fence);
    assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
    let next = visit(&a, &stage.mutex()).await;
    assert!(next > fence && next < fence + FAR, "{next} after {fence}");
}
