//! An ask can depend on another claim, which tells whether the store still knows what it promised.

use distlock_core::{Answer, Ask, Claim, ClaimId, Key, ReleaseOutcome};
use futures_util::future::join_all;

use super::Subject;
use super::support::{AskExt, KitClient, KitStage, LONG, SHORT, granted};

/// An ask for the key beside this stage's own.
fn mark(stage: &KitStage<'_>) -> Ask {
    beside(stage, "mark")
}

fn beside(stage: &KitStage<'_>, name: &str) -> Ask {
    let key = Key::new(format!("{}/{name}", stage.prefix())).expect("a short key");
    let id = ClaimId::random().expect("random bytes");
    Ask { claim: Claim::new(key, id), ..stage.mutex() }
}

async fn witnessed(client: &KitClient, stage: &KitStage<'_>, mark: &Ask) -> Answer {
    client.ask(&Ask { witness: Some(mark.claim.clone()), ..stage.mutex() }).await
}

/// An ask is answered as any other while its witness holds, and refused without a trace if not.
pub async fn an_ask_depends_on_its_witness(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (mark, other) = (mark(&stage), mark(&stage));
    assert_eq!(witnessed(&a, &stage, &mark).await, Answer::Forgot);
    granted(b.ask(&mark).await);
    assert_eq!(witnessed(&a, &stage, &other).await, Answer::Forgot, "another claim holds there");
    assert!(a.inspect(&stage.key()).await.is_free(), "a refused ask leaves nothing behind");
    granted(witnessed(&a, &stage, &mark).await);
    assert!(matches!(witnessed(&b, &stage, &mark).await, Answer::Busy(_)));
    assert_eq!(b.release(&mark).await, ReleaseOutcome::WasHeld);
    assert_eq!(witnessed(&b, &stage, &mark).await, Answer::Forgot);
}

/// A witness whose lease is over is none.
pub async fn a_witness_that_has_expired_is_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let mark = mark(&stage).lasting(SHORT);
    granted(a.ask(&mark).await);
    stage.outlive_short().await;
    assert_eq!(witnessed(&a, &stage, &mark).await, Answer::Forgot);
    granted(a.ask(&mark.clone().lasting(LONG)).await);
    granted(witnessed(&a, &stage, &mark).await);
}

/// Asks of the same instant depend on their witness, too, however they are sent.
pub async fn many_asks_depend_on_their_witness(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let mark = mark(&stage);
    let asks: Vec<_> = (0..32)
        .map(|n| Ask { witness: Some(mark.claim.clone()), ..beside(&stage, &format!("many-{n}")) })
        .collect();
    for answer in join_all(asks.iter().map(|ask| a.ask(ask))).await {
        assert_eq!(answer, Answer::Forgot);
    }
    granted(a.ask(&mark).await);
    for answer in join_all(asks.iter().map(|ask| a.ask(ask))).await {
        granted(answer);
    }
}
