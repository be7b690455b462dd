//! Several keys in one step. What a store does not offer it need not prove: it says so by offering
//! none, and the engine takes the keys one by one.

use distlock_core::{Answer, Ask, ManyAnswer, ReleaseOutcome};
use futures_util::future::join_all;

use super::Subject;
use super::support::{AskExt, KitClient, KitStage, LONG, SHORT, busy, granted, held, mutex};

/// Asks for so many keys of this stage, in sequence.
fn asks(stage: &KitStage<'_>, keys: usize) -> Vec<Ask> {
    (0..keys).map(|n| mutex(&stage.named(&format!("/{n:02}")))).collect()
}

async fn all(client: &KitClient, asks: &[Ask]) -> Option<ManyAnswer> {
    let many = client.backend.extensions().many?;
    Some(many.acquire_all(asks).await.expect("an acquire is answered"))
}

/// Expects that all are granted; answers their fences.
#[track_caller]
fn fences(answer: ManyAnswer) -> Vec<u64> {
    match answer {
        ManyAnswer::Granted { fences } => fences,
        refused => panic!("expected all, got {refused:?}"),
    }
}

/// All free keys are granted, each with a fence of its own that its key knows.
pub async fn all_free_keys_are_granted(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let asks = asks(&stage, 8);
    let Some(answer) = all(&a, &asks).await else { return };
    let fences = fences(answer);
    assert_eq!(fences.len(), asks.len());
    for (ask, fence) in asks.iter().zip(fences) {
        assert_eq!(held(a.renew(ask, LONG).await), fence);
        busy(b.ask(&ask.again()).await);
        assert_eq!(a.release(ask).await, ReleaseOutcome::WasHeld);
        assert!(granted(b.ask(&ask.again()).await) > fence, "fences of a key grow");
    }
}

/// One held key refuses all, names itself, and the others stay free.
pub async fn one_held_key_leaves_the_others_free(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let asks = asks(&stage, 5);
    let rival = asks[3].again().owned_by("rival");
    granted(b.ask(&rival).await);
    let Some(answer) = all(&a, &asks).await else { return };
    let ManyAnswer::Refused { at: 3, answer: Answer::Busy(busy) } = answer else {
        panic!("expected a refusal of the fourth, got {answer:?}");
    };
    assert_eq!(busy.holder.expect("busy names a holder").owner.as_str(), "rival");
    for (at, ask) in asks.iter().enumerate().filter(|(at, _)| *at != 3) {
        assert!(a.inspect(&ask.claim.key).await.is_free(), "key {at} was taken");
    }
    assert_eq!(b.release(&rival).await, ReleaseOutcome::WasHeld);
    fences(all(&a, &asks).await.expect("a store offers it or not"));
}

/// The same claims asked again get the same fences.
pub async fn all_asked_again_get_the_same(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let asks = asks(&stage, 4);
    let Some(first) = all(&a, &asks).await else { return };
    assert_eq!(all(&a, &asks).await, Some(first));
}

/// No waiter is overtaken: a key that others wait for is refused.
pub async fn many_keys_overtake_no_waiter(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let asks = asks(&stage, 3);
    if a.backend.extensions().many.is_none() || !a.backend.capabilities().queue {
        return;
    }
    let holder = asks[1].again().lasting(SHORT);
    granted(b.ask(&holder).await);
    let waiter = asks[1].again().queued(LONG);
    c.queue(&waiter).await;
    stage.outlive_short().await;
    let answer = all(&a, &asks).await;
    assert!(matches!(answer, Some(ManyAnswer::Refused { at: 1, .. })), "{answer:?}");
    assert!(a.inspect(&asks[0].claim.key).await.is_free());
}

/// However many ask for overlapping keys at once, those who hold do not overlap.
pub async fn concurrent_asks_for_many_never_overlap(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let clients: [_; 4] = stage.clients().await;
    if clients[0].backend.extensions().many.is_none() {
        return;
    }
    let wishes: Vec<Vec<Ask>> =
        (0..12).map(|n| asks(&stage, 8).into_iter().skip(n % 5).take(4).collect()).collect();
    let calls = wishes.iter().enumerate().map(|(n, asks)| all(&clients[n % 4], asks));
    let answers = join_all(calls).await;
    let mut taken = std::collections::BTreeSet::new();
    let mut winners = 0;
    for (asks, answer) in wishes.iter().zip(answers) {
        if let Some(ManyAnswer::Granted { .. }) = answer {
            winners += 1;
            for ask in asks {
                assert!(taken.insert(ask.claim.key.clone()), "{} is held twice", ask.claim.key);
            }
        }
    }
    assert!(winners >= 1, "nobody got anything");
}
