//! When and why a hold is lost: once, in time, for good.

use distlock::{HoldEnd, LossReason};
use distlock_core::{Push, Standing};
use distlock_testkit::ScriptedReply;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_store_that_no_longer_knows_the_hold_ends_it_at_once() {
    let (backend, locks) = stage();
    backend.on_renew(Standing::Gone);
    let guard = hold(&locks, "k").await;
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert_eq!(began.elapsed(), secs(10));
    sleep(secs(300)).await;
    assert_eq!((backend.count_renews(), guard.loss()), (1, Some(LossReason::Gone)));
    assert_eq!(locks.stats().losses, 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_told_it_waits_has_lost() {
    let (backend, locks) = stage();
    backend.on_renew(waiting(7));
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.lost().await, LossReason::Gone);
}

#[tokio::test(start_paused = true)]
async fn faults_until_the_end_of_validity_lose_the_hold_exactly_then() {
    for (ttl, valid) in [(secs(30), VALID), (secs(1), ms(988)), (secs(3_600), ms(3_563_998))] {
        let (backend, locks) = stage_with(|o| o.ttl(ttl));
        backend.always_renew(ScriptedReply::transient());
        let guard = hold(&locks, "k").await;
        let began = Instant::now();
        assert_eq!(guard.lost().await, LossReason::Unreachable, "ttl {ttl:?}");
        assert_eq!(began.elapsed(), valid, "ttl {ttl:?}");
        let tries = renewed_at(&backend);
        assert!((2..=12).contains(&tries.len()), "ttl {ttl:?}: {tries:?}");
        let spaced = tries.windows(2).all(|pair| pair[1] - pair[0] >= ttl / 24);
        assert!(spaced, "ttl {ttl:?}: {tries:?}");
        sleep(ttl * 10).await;
        assert_eq!(backend.count_renews(), tries.len(), "and then no more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_loses_the_hold_at_the_end_of_validity_without_any_reply() {
    for renew_at in [0.2, 1.0 / 3.0, 0.5, 0.7, 0.9] {
        for _ in 0..10 {
            let (backend, locks) = stage_with(|o| o.renew_at(renew_at));
            backend.always_renew(ScriptedReply::never());
            let guard = hold(&locks, "k").await;
            let began = Instant::now();
            let reason = guard.lost().await;
            assert_eq!(began.elapsed(), VALID, "renew_at {renew_at}");
            assert_eq!(reason, LossReason::Unreachable, "renew_at {renew_at}");
            assert!(!guard.is_held());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_does_not_end_a_hold_before_its_time() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::permanent());
    let guard = hold(&locks, "k").await;
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    assert_eq!(began.elapsed(), VALID);
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_after_the_end_of_validity_heals_nothing() {
    for late in [ms(0), ms(1), secs(100)] {
        let (backend, locks) = stage_with(|o| o.renew_at(0.9));
        let late_answer =
            ScriptedReply::from(Standing::Held { fence: 1 }).after(VALID - secs(27) + late);
        backend.always_renew(late_answer);
        let guard = hold(&locks, "k").await;
        sleep(secs(27) + secs(300)).await;
        assert!(!guard.is_held(), "late by {late:?}");
        assert!(matches!(guard.watch().end(), Some(HoldEnd::Lost(_))));
        assert_eq!((locks.stats().losses, locks.stats().held), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_just_before_the_end_of_validity_heals() {
    let (backend, locks) = stage_with(|o| o.renew_at(0.9));
    let just = VALID - secs(27) - ms(1);
    backend.on_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(just));
    let guard = hold(&locks, "k").await;
    sleep(secs(31)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_broken_hold_is_told_by_a_push() {
    let (backend, locks) = stage();
    let (guard, other) = (hold(&locks, "k").await, hold(&locks, "l").await);
    backend.push(Push::Broken { id: backend.acquires()[0].1.claim.id });
    let reason = timeout(ms(1), guard.lost()).await.unwrap();
    assert_eq!((reason, other.is_held()), (LossReason::Broken, true));
    sleep(secs(60)).await;
    let renewed = backend.renewals();
    assert!(renewed.iter().all(|(_, renewal)| &renewal.claim.key == other.key()));
}

#[tokio::test(start_paused = true)]
async fn losing_one_hold_disturbs_no_other() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::with(|renewal: &distlock_core::Renewal| {
        let gone = renewal.claim.key.to_string() == "a";
        Ok(if gone { Standing::Gone } else { Standing::Held { fence: 2 } })
    }));
    let (one, two) = (hold(&locks, "a").await, hold(&locks, "b").await);
    assert_eq!(one.lost().await, LossReason::Gone);
    sleep(secs(300)).await;
    assert!(two.is_held());
    assert_eq!((locks.stats().held, locks.stats().losses), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_claim_that_hangs_in_a_batch_loses_no_other() {
    let (backend, locks) = stage();
    for _ in 0..12 {
        backend.on_renew(ScriptedReply::never());
        backend.on_renew(Standing::Held { fence: 2 });
    }
    let first = hold(&locks, "a").await;
    let second = hold(&locks, "b").await;
    sleep(ms(29_600)).await;
    let held = [&first, &second].into_iter().filter(|guard| guard.is_held()).count();
    assert!(held >= 1, "the one that was answered is held");
    assert_eq!(locks.stats().losses, 0, "and nothing was lost early");
}

#[tokio::test(start_paused = true)]
async fn a_slow_key_does_not_lose_another() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::with(|renewal: &distlock_core::Renewal| {
        let slow = renewal.claim.key.to_string() == "slow";
        if slow {
            Err(distlock::Fault::transient("renew", "slow shard"))
        } else {
            Ok(Standing::Held { fence: 2 })
        }
    }));
    let (slow, quick) = (hold(&locks, "slow").await, hold(&locks, "quick").await);
    assert_eq!(slow.lost().await, LossReason::Unreachable);
    sleep(secs(300)).await;
    assert!(quick.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_in_the_same_batch_does_not_cost_a_long_one_its_patience() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    let long = hold(&locks, "long").await;
    sleep(ms(9_900)).await;
    let brief = locks.configure(|o| o.ttl(ms(300))).unwrap();
    let _short = hold(&brief, "short").await;
    backend.always_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(ms(80)));
    sleep(secs(1)).await;
    let risks = seen.lock().unwrap().iter().filter(|event| at_risk_of(event, "long")).count();
    assert_eq!((risks, long.is_held()), (0, true), "an answer after 80 ms is no fault in 30 s");
}

fn at_risk_of(event: &distlock::Event, name: &str) -> bool {
    matches!(event, distlock::Event::AtRisk { key, .. } if key.to_string() == name)
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_short_leases_does_not_lose_a_long_one() {
    let (backend, locks) = stage();
    let long = hold(&locks, "long").await;
    let brief = locks.configure(|o| o.ttl(ms(300))).unwrap();
    backend.always_renew(ScriptedReply::from(Standing::Held { fence: 1 }).after(ms(80)));
    let busy = async {
        loop {
            let short = hold(&brief, "short").await;
            sleep(ms(250)).await;
            drop(short);
        }
    };
    let lost = tokio::select! {
        reason = long.lost() => Some(reason),
        () = busy => None,
        () = sleep(secs(300)) => None,
    };
    assert_eq!(lost, None, "the store answered every renewal within 80 ms");
}

#[tokio::test(start_paused = true)]
async fn lost_is_final() {
    let (backend, locks) = stage_with(|o| o.max_hold(secs(5)));
    backend.always_renew(Standing::Gone);
    let guard = hold(&locks, "k").await;
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    backend.push(Push::Broken { id: last_id(&backend) });
    sleep(secs(300)).await;
    locks.close().await.unwrap();
    assert_eq!((guard.loss(), guard.is_held()), (Some(LossReason::MaxHold), false));
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Lost(LossReason::MaxHold));
}
