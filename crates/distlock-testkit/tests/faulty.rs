//! The bad network does what it says, counts it, and does it again for the same seed.

mod support;

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Backend, Push, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};
use distlock_testkit::{Counts, Faults, Faulty, Scripted, ScriptedReply};
use futures_util::{FutureExt, StreamExt};
use support::{Bug, Store, ask, claim};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn faulty(faults: Faults) -> (Scripted, Faulty) {
    let inner = Scripted::new();
    (inner.clone(), Faulty::new(Arc::new(inner), 7, faults))
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_does_nothing_and_a_lost_reply_does_it() {
    for (faults, executed) in [
        (Faults { lose_request: 1.0, ..Faults::NONE }, 0),
        (Faults { lose_reply: 1.0, ..Faults::NONE }, 1),
    ] {
        let (inner, faulty) = faulty(faults);
        let began = Instant::now();
        let fault = faulty.acquire(&ask("k", 1, SECOND)).await.expect_err("lost");
        assert!(fault.is_transient());
        assert_eq!(began.elapsed(), faults.response_timeout);
        faulty.settled().await;
        assert_eq!(inner.count_acquires(), executed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_executed_again_after_the_answer() {
    let (inner, faulty) = faulty(Faults { duplicate: 1.0, ..Faults::NONE });
    faulty.acquire(&ask("k", 1, SECOND)).await.expect("answered");
    assert_eq!(inner.count_acquires(), 1);
    faulty.settled().await;
    assert_eq!(inner.count_acquires(), 2);
    assert_eq!(faulty.counts().duplicated, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_executed_late_or_not_at_all() {
    for (late_after_drop, executed) in [(1.0, 1), (0.0, 0)] {
        let delay = (1.0, SECOND / 2);
        let (inner, faulty) = faulty(Faults { late_after_drop, delay, ..Faults::NONE });
        let ask = ask("k", 1, SECOND);
        assert!(faulty.acquire(&ask).now_or_never().is_none());
        faulty.settled().await;
        assert_eq!(inner.count_acquires(), executed);
        let Counts { late, abandoned, .. } = faulty.counts();
        assert_eq!((late, abandoned), (executed as u64, 1 - executed as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_timed_out_is_executed_all_the_same() {
    let delay = (1.0, 60 * SECOND);
    let (inner, faulty) = faulty(Faults { delay, ..Faults::NONE });
    faulty.acquire(&ask("k", 1, SECOND)).await.expect_err("too slow");
    faulty.settled().await;
    assert_eq!(inner.count_acquires(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_claim_of_a_batch_has_its_own_fate() {
    let (_, faulty) = faulty(Faults { lose_request: 0.5, ..Faults::NONE });
    let batch: Vec<_> = (0..100).map(|id| Renewal::hold(claim("k", id), SECOND)).collect();
    let answers: Vec<_> = faulty.renew(&batch).collect().await;
    let mut indexes: Vec<_> = answers.iter().map(|(index, _)| *index).collect();
    indexes.sort_unstable();
    assert!(indexes.into_iter().eq(0..100));
    let held = answers.iter().filter(|(_, s)| matches!(s, Ok(Standing::Held { .. }))).count();
    assert!((30..70).contains(&held), "{held} of 100 got through");
}

#[tokio::test(start_paused = true)]
async fn a_hung_store_ends_in_a_fault() {
    let (inner, faulty) = faulty(Faults::NONE);
    inner.on_acquire(ScriptedReply::never());
    assert!(faulty.acquire(&ask("k", 1, SECOND)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_network_is_cut_and_heals_at_run_time() {
    let (inner, faulty) = faulty(Faults::NONE);
    let ask = ask("k", 1, SECOND);
    faulty.cut();
    assert!(faulty.acquire(&ask).await.is_err());
    assert_eq!(inner.count_acquires(), 0);
    faulty.cut_replies();
    assert!(faulty.acquire(&ask).await.is_err());
    assert_eq!(inner.count_acquires(), 1);
    faulty.heal();
    assert_eq!(faulty.acquire(&ask).await.expect("healed"), Answer::Granted { fence: 1 });
    assert_eq!(faulty.counts().lost_requests, 1);
}

#[tokio::test(start_paused = true)]
async fn pushes_are_lost_repeated_and_overtaken() {
    let (inner, faulty) = faulty(Faults { duplicate_push: 1.0, ..Faults::NONE });
    let mut pushes = faulty.pushes();
    let push = |number| Push::Broken { id: claim("k", number).id };
    inner.push(push(1));
    assert_eq!(pushes.next().await, Some(push(1)));
    assert_eq!(pushes.next().await, Some(push(1)));
    faulty.set(Faults { lose_push: 1.0, ..Faults::NONE });
    inner.push(push(2));
    assert!(timeout(SECOND, pushes.next()).await.is_err());
    faulty.set(Faults { delay_push: (1.0, 9 * SECOND), ..Faults::NONE });
    (10..30).for_each(|number| inner.push(push(number)));
    let mut came = Vec::new();
    for _ in 10..30 {
        came.push(pushes.next().await.expect("delayed"));
    }
    assert!(!came.iter().copied().eq((10..30).map(push)), "no claim overtook another");
    assert!((10..30).all(|number| came.contains(&push(number))));
}

/// A run of random trouble, as one comparable value.
async fn trace(seed: u64) -> (Vec<String>, Counts) {
    let store = Store::clients(1, Bug::None).remove(0);
    let faulty = Faulty::new(store, seed, Faults::all(0.3, 3 * SECOND));
    let mut trace = Vec::new();
    for number in 0..100 {
        let mut ask = ask("k", number % 7, 5 * SECOND);
        ask.owner = distlock_core::Label::new("owner", format!("o{number}")).expect("short");
        trace.push(format!("{:?}", faulty.acquire(&ask).await.ok()));
        let target = Target::Claim(ask.claim);
        let how = ReleaseOptions { bury: SECOND, ..ReleaseOptions::default() };
        trace.push(format!("{:?}", faulty.release(&target, how).await.ok()));
    }
    (trace, faulty.counts())
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() {
    let first = trace(1).await;
    assert_eq!(first, trace(1).await);
    assert_ne!(first.1, trace(2).await.1);
}

#[tokio::test(start_paused = true)]
async fn a_buried_claim_stays_free_however_late_its_acquire_comes() {
    for seed in 0..200 {
        let store = Store::clients(1, Bug::None).remove(0);
        let faults = Faults { late_after_drop: 0.5, ..Faults::all(0.4, SECOND / 2) };
        let faulty = Faulty::new(Arc::clone(&store), seed, faults);
        let ask = ask("k", 1, 3_600 * SECOND);
        let _ = timeout(SECOND / 4, faulty.acquire(&ask)).await;
        faulty.heal();
        let how = ReleaseOptions { bury: 60 * SECOND, ..ReleaseOptions::default() };
        let outcome = faulty.release(&Target::Claim(ask.claim.clone()), how).await;
        assert!(matches!(outcome, Ok(ReleaseOutcome::WasHeld | ReleaseOutcome::Gone)));
        faulty.settled().await;
        assert!(store.inspect(&ask.claim.key).await.expect("looks").is_free(), "seed {seed}");
    }
}
