//! What the tests of PostgreSQL have in common.

use std::time::{Duration, Instant};

use distlock::backends::Postgres;
use distlock_core::{
    Answer, Ask, Backend, Claim, ClaimId, Fault, Key, Label, ReleaseOptions, ReleaseOutcome,
    Renewal, Standing, Target, Ticket, Wait,
};
use futures_util::StreamExt;

/// A lease that outlives every test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

pub(crate) fn open(url: &str) -> Postgres {
    Postgres::open(url).unwrap()
}

/// A client that waits longer for its answers than a busy machine takes.
pub(crate) fn patient(url: &str) -> Postgres {
    open(&format!("{url}?response_timeout_ms=10000"))
}

/// A new one-shot claim for all of a key.
pub(crate) fn ask(key: &str) -> Ask {
    let claim = Claim::new(Key::new(key).unwrap(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "tester").unwrap(), LONG)
}

pub(crate) fn queued(key: &str) -> Ask {
    Ask { wait: Some(Wait { place: LONG, waiters_max: 20_000 }), ..ask(key) }
}

pub(crate) async fn granted(client: &dyn Backend, ask: &Ask) -> u64 {
    match client.acquire(ask).await.unwrap() {
        Answer::Granted { fence } => fence,
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub(crate) async fn waits(client: &dyn Backend, ask: &Ask) -> Ticket {
    match client.acquire(ask).await.unwrap() {
        Answer::Busy(busy) => busy.ticket.unwrap(),
        other => panic!("expected to wait, got {other:?}"),
    }
}

pub(crate) async fn try_release(client: &dyn Backend, ask: &Ask) -> Result<ReleaseOutcome, Fault> {
    client.release(&Target::Claim(ask.claim.clone()), ReleaseOptions::default()).await
}

pub(crate) async fn release(client: &dyn Backend, ask: &Ask) -> ReleaseOutcome {
    try_release(client, ask).await.unwrap()
}

pub(crate) async fn try_renew(client: &dyn Backend, ask: &Ask) -> Result<Standing, Fault> {
    let renewal = [Renewal::hold(ask.claim.clone(), LONG)];
    let answers: Vec<_> = client.renew(&renewal).collect().await;
    assert_eq!(answers.len(), 1);
    answers.into_iter().next().unwrap().1
}

/// Does something until it succeeds. All faults on the way have to be transient.
pub(crate) async fn until_ok<T>(mut attempt: impl AsyncFnMut() -> Result<T, Fault>) -> T {
    let start = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(fault) => assert!(fault.is_transient(), "{fault}"),
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it does not succeed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until something that others do has come true.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
