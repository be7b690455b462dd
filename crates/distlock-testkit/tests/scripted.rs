//! The scripted backend says what it is told, when it is told.

mod support;

use std::time::Duration;

use distlock_core::{
    Answer, Backend, Busy, Capabilities, Push, QueuePosition, ReleaseOptions, ReleaseOutcome,
    Renewal, Standing, Target,
};
use distlock_testkit::{Scripted, ScriptedCall, ScriptedReply};
use futures_util::StreamExt;
use support::{ask, claim};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn replies_come_in_the_sequence_of_the_queue_and_then_the_default() {
    let backend = Scripted::new();
    backend.on_acquire(ScriptedReply::transient());
    backend.on_acquire(ScriptedReply::permanent());
    backend.on_acquire(Answer::Full);
    let ask = ask("k", 1, SECOND);
    assert!(backend.acquire(&ask).await.expect_err("told so").is_transient());
    assert!(!backend.acquire(&ask).await.expect_err("told so").is_transient());
    assert_eq!(backend.acquire(&ask).await.expect("told so"), Answer::Full);
    assert_eq!(backend.acquire(&ask).await.expect("default"), Answer::Granted { fence: 1 });
    backend.always_acquire(Answer::Conflict);
    assert_eq!(backend.acquire(&ask).await.expect("new default"), Answer::Conflict);
    assert_eq!(backend.count_acquires(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_defaults_grant_with_growing_fences_and_remember_them() {
    let backend = Scripted::new();
    let (one, two) = (ask("k", 1, SECOND), ask("k", 2, SECOND));
    for (ask, fence) in [(&one, 1), (&two, 2), (&one, 1)] {
        let answer = backend.acquire(ask).await.expect("default");
        assert_eq!(answer, Answer::Granted { fence });
    }
    backend.push(Push::Granted { id: claim("k", 3).id, ticket: 9, fence: 10 });
    let batch = [Renewal::hold(two.claim.clone(), SECOND), Renewal::hold(claim("k", 3), SECOND)];
    let standings: Vec<_> = backend.renew(&batch).map(|(_, s)| s.expect("default")).collect().await;
    assert_eq!(standings, [Standing::Held { fence: 2 }, Standing::Held { fence: 10 }]);
    let target = Target::Claim(two.claim);
    let outcome = backend.release(&target, ReleaseOptions::default()).await.expect("default");
    assert_eq!(outcome, ReleaseOutcome::WasHeld);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_reply_takes_its_time_and_a_missing_one_never_comes() {
    let backend = Scripted::new();
    backend.on_acquire(ScriptedReply::from(Answer::Full).after(3 * SECOND));
    backend.on_acquire(ScriptedReply::never());
    let (ask, began) = (ask("k", 1, SECOND), Instant::now());
    backend.acquire(&ask).await.expect("told so");
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert!(timeout(1_000 * SECOND, backend.acquire(&ask)).await.is_err());
    let times: Vec<_> = backend.calls().iter().map(ScriptedCall::at).collect();
    assert_eq!(times, [Duration::ZERO, 3 * SECOND]);
}

#[tokio::test(start_paused = true)]
async fn one_hung_renewal_delays_no_other() {
    let backend = Scripted::new();
    backend.on_renew(ScriptedReply::never());
    backend.on_renew(Standing::Gone);
    let batch = [1, 2].map(|id| Renewal::hold(claim("k", id), SECOND));
    let mut stream = backend.renew(&batch);
    let (index, standing) = stream.next().await.expect("the second");
    assert_eq!((index, standing.expect("told so")), (1, Standing::Gone));
    assert!(timeout(SECOND, stream.next()).await.is_err());
    assert_eq!((backend.count_renews(), backend.renewals().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_gate_holds_one_reply_until_it_is_opened() {
    let backend = Scripted::new();
    let (gate, reply) = ScriptedReply::from(ReleaseOutcome::Gone).gated();
    backend.on_release(reply);
    let call = tokio::spawn({
        let backend = backend.clone();
        let target = Target::Claim(claim("k", 1));
        async move { backend.release(&target, ReleaseOptions::default()).await }
    });
    gate.reached().await;
    assert!(!call.is_finished());
    gate.open();
    assert_eq!(call.await.expect("no panic").expect("told so"), ReleaseOutcome::Gone);
    assert_eq!(backend.releases().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_computed_reply_sees_the_request() {
    let backend = Scripted::new();
    backend.on_acquire(ScriptedReply::with(|ask: &distlock_core::Ask| {
        let ticket = ask.wait.map(|_| 7);
        Ok(Answer::Busy(Busy { ticket, ahead: 0, retry_after: None, holder: None }))
    }));
    backend.always_renew(ScriptedReply::with(|renewal: &Renewal| {
        let ticket = renewal.ticket.expect("it waits");
        Ok(Standing::Waiting(QueuePosition { ticket, ahead: 0, retry_after: None }))
    }));
    let answer = backend.acquire(&ask("k", 1, SECOND)).await.expect("told so");
    assert!(matches!(answer, Answer::Busy(Busy { ticket: None, .. })));
    let batch = [Renewal::place(claim("k", 1), SECOND, 42)];
    let (_, standing) = backend.renew(&batch).next().await.expect("one");
    assert!(matches!(standing, Ok(Standing::Waiting(QueuePosition { ticket: 42, .. }))));
}

#[tokio::test(start_paused = true)]
async fn every_stream_gets_every_push_and_nothing_is_sent_unpolled() {
    let mut lesser = Capabilities::ALL;
    lesser.queue = false;
    let backend = Scripted::new().with_capabilities(lesser);
    assert!(!backend.capabilities().queue);
    let (mut one, mut two) = (backend.pushes(), backend.pushes());
    let push = Push::Broken { id: claim("k", 1).id };
    backend.push(push);
    assert_eq!((one.next().await, two.next().await), (Some(push), Some(push)));
    drop(backend.acquire(&ask("k", 1, SECOND)));
    assert_eq!(backend.count_acquires(), 0);
}
