//! Many claims, one task.

use std::collections::HashSet;

use distlock_testkit::{ScriptedCall, ScriptedReply};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::support::*;

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_holds_cost_one_task_and_full_batches() {
    let (backend, locks) = stage();
    let mut guards = Vec::new();
    for n in 0..10_000 {
        guards.push(hold(&locks, &format!("k/{n}")).await);
    }
    assert_eq!((locks.stats().held, locks.stats().tasks, alive()), (10_000, 1, 1));
    backend.forget_calls();
    sleep(ms(10_001)).await;
    let mut renewed = HashSet::new();
    for call in backend.calls() {
        let ScriptedCall::Renew { renewals, .. } = call else { panic!("{call:?}") };
        assert!(renewals.len() <= 1_000, "a batch of {}", renewals.len());
        renewed.extend(renewals.into_iter().map(|renewal| renewal.claim.id));
    }
    assert_eq!((renewed.len(), backend.count_renews(), alive()), (10_000, 10, 1));
    assert!(guards.iter().all(distlock::Guard::is_held));
    drop(guards);
    sleep(secs(5)).await;
    assert_eq!((backend.count_releases(), locks.stats().tasks, alive()), (10_000, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_hung_batch_loses_only_its_own() {
    let (backend, locks) = stage();
    let mut guards = Vec::new();
    for n in 0..2_250 {
        guards.push(hold(&locks, &format!("k/{n}")).await);
    }
    for _ in 0..1_000 {
        backend.on_renew(ScriptedReply::never());
    }
    sleep(ms(10_001)).await;
    let renewed = guards.iter().filter(|guard| guard.remaining() > VALID - ms(2)).count();
    assert_eq!((renewed, backend.count_renews()), (1_250, 3));
    sleep(secs(300)).await;
    assert!(guards.iter().all(distlock::Guard::is_held), "the hung ones were asked again");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_releases_are_a_hundred_calls() {
    let (backend, locks) = stage();
    let mut releases = tokio::task::JoinSet::new();
    for n in 0..100 {
        let guard = hold(&locks, &format!("k/{n}")).await;
        releases.spawn(guard.release());
    }
    while let Some(released) = releases.join_next().await {
        assert_eq!(released.unwrap().unwrap(), distlock::HoldEnd::Released);
    }
    sleep(secs(60)).await;
    let targets: HashSet<_> =
        backend.releases().into_iter().map(|(_, target, _)| target.key().to_string()).collect();
    assert_eq!((backend.count_releases(), targets.len()), (100, 100));
    assert_eq!(backend.count_renews(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_task_is_gone_when_idle_and_comes_back() {
    let (backend, locks) = stage();
    assert_eq!((locks.stats().tasks, alive()), (0, 0), "lazily started");
    for round in 1..=3 {
        let guard = hold(&locks, "k").await;
        assert_eq!((locks.stats().tasks, alive()), (1, 1));
        sleep(secs(25)).await;
        assert!(guard.is_held());
        drop(guard);
        sleep(secs(5)).await;
        assert_eq!((locks.stats().tasks, alive()), (0, 0));
        let listened =
            backend.calls().iter().filter(|c| matches!(c, ScriptedCall::Pushes { .. })).count();
        assert_eq!(listened, round);
    }
}

#[tokio::test(start_paused = true)]
async fn taking_and_releasing_in_a_row_starts_one_task() {
    let (backend, locks) = stage();
    for _ in 0..100 {
        hold(&locks, "k").await.release().await.unwrap();
        sleep(ms(100)).await;
    }
    let listened =
        backend.calls().iter().filter(|c| matches!(c, ScriptedCall::Pushes { .. })).count();
    assert_eq!((listened, alive()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_task_stays_as_long_as_a_call_is_under_way() {
    let (backend, locks) = stage();
    backend.on_acquire(ScriptedReply::from(queued(7)).after(secs(20)));
    let locking = start_lock(&locks).await;
    sleep(ms(20_001)).await;
    push(&backend, 7, 42);
    settle().await;
    let listened =
        backend.calls().iter().filter(|c| matches!(c, ScriptedCall::Pushes { .. })).count();
    assert_eq!(listened, 1);
    locking.abort();
}
