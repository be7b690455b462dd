//! When what is held is renewed.

use std::time::Duration;

use distlock::Event;
use distlock_testkit::ScriptedReply;
use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_exactly_at_its_fraction_and_not_before() {
    for (ttl, renew_at, expected) in [
        (ms(8), 0.25, ms(2)),
        (ms(12), 0.5, ms(6)),
        (secs(30), 0.5, secs(15)),
        (secs(30), 0.9, secs(27)),
        (secs(3_600), 1.0 / 3.0, secs(1_200)),
    ] {
        let (backend, locks) = stage_with(|o| o.ttl(ttl).renew_at(renew_at));
        let guard = hold(&locks, "k").await;
        sleep(expected - ms(1)).await;
        settle().await;
        assert_eq!(backend.count_renews(), 0, "ttl {ttl:?}");
        sleep(ms(1)).await;
        settle().await;
        assert_eq!(renewed_at(&backend), [expected], "ttl {ttl:?}");
        let (_, renewal) = &backend.renewals()[0];
        assert_eq!((renewal.span, renewal.ticket, renewal.weight), (ttl, None, None));
        assert!(guard.is_held(), "ttl {ttl:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_once_per_interval() {
    for (ttl, renew_at, every) in [
        (ms(8), 0.25, ms(2)),
        (ms(30), 1.0 / 3.0, ms(10)),
        (secs(30), 1.0 / 3.0, secs(10)),
        (secs(3_600), 0.5, secs(1_800)),
    ] {
        let (backend, locks) = stage_with(|o| o.ttl(ttl).renew_at(renew_at));
        let guard = hold(&locks, "k").await;
        sleep(every * 20 + every / 2).await;
        let expected: Vec<_> = (1..=20).map(|n| every * n).collect();
        assert_eq!(renewed_at(&backend)[..20], expected, "ttl {ttl:?}");
        assert!(guard.is_held() && locks.stats().renewals >= 20, "ttl {ttl:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_ttl_that_is_accepted_can_be_kept() {
    let mut lost = Vec::new();
    for ttl in (1..=20).map(ms) {
        let (_backend, locks) = stage();
        let Ok(locks) = locks.configure(|o| o.ttl(ttl)) else { continue };
        let guard = hold(&locks, "k").await;
        sleep(ttl * 10).await;
        if !guard.is_held() {
            lost.push(ttl);
        }
    }
    assert!(lost.is_empty(), "accepted, and lost while the store answers at once: {lost:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_renewal_counts_from_the_send_of_the_last() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::with(|_| Ok(held())).after(secs(3)));
    let guard = hold(&locks, "k").await;
    sleep(secs(41)).await;
    assert_eq!(renewed_at(&backend), [10, 20, 30, 40].map(secs));
    assert_eq!(guard.remaining(), secs(30) + VALID - secs(41));
}

fn held() -> distlock_core::Standing {
    distlock_core::Standing::Held { fence: 1 }
}

#[tokio::test(start_paused = true)]
async fn a_slow_grant_is_renewed_on_the_same_schedule() {
    let (backend, locks) = stage();
    backend.on_acquire(
        ScriptedReply::from(distlock_core::Answer::Granted { fence: 1 }).after(secs(4)),
    );
    let _guard = hold(&locks, "k").await;
    sleep(secs(10)).await;
    assert_eq!(renewed_at(&backend), [secs(10)]);
}

#[tokio::test(start_paused = true)]
async fn one_fault_then_a_confirmation_is_no_loss() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_renew(ScriptedReply::transient());
    let guard = hold(&locks, "k").await;
    sleep(secs(19)).await;
    let at = renewed_at(&backend);
    assert_eq!((at.len(), at[0]), (2, secs(10)));
    assert!(guard.is_held() && guard.remaining() > secs(20), "{:?}", guard.remaining());
    assert_eq!((count(&seen, at_risk), count(&seen, lost)), (1, 0));
    sleep(secs(300)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_lease_is_ridden_out_without_a_word_of_loss() {
    for hung in [true, false] {
        let (backend, locks) = stage();
        let seen = listen(&locks);
        let guard = hold(&locks, "k").await;
        backend.always_renew(if hung {
            ScriptedReply::never()
        } else {
            ScriptedReply::transient()
        });
        sleep(ms(24_000)).await;
        backend.always_renew(held());
        sleep(secs(300)).await;
        assert!(guard.is_held(), "hung {hung}");
        // Every attempt that fails is reported. One that hangs is not repeated beside itself for
        // long.
        let told = if hung { 1 } else { 6 };
        assert_eq!((count(&seen, at_risk), count(&seen, lost)), (told, 0), "hung {hung}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_tells_how_much_of_the_lease_was_left() {
    let (backend, locks) = stage();
    let seen = listen(&locks);
    backend.on_renew(ScriptedReply::from(held()).after(secs(2)));
    let guard = hold(&locks, "k").await;
    sleep(secs(13)).await;
    let expected =
        Event::Renewed { key: guard.key().clone(), fence: guard.fence(), margin: VALID - secs(12) };
    assert_eq!(seen.lock().unwrap()[1..], [expected]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_after_a_release_or_a_drop() {
    for released in [true, false] {
        let (backend, locks) = stage();
        let guard = hold(&locks, "k").await;
        sleep(ms(9_999)).await;
        if released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        sleep(secs(120)).await;
        assert_eq!((backend.count_renews(), backend.count_releases()), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_at_the_release_brings_nothing_back() {
    let (backend, locks) = stage();
    let (gate, reply) = ScriptedReply::from(held()).gated();
    backend.on_renew(reply);
    let guard = hold(&locks, "k").await;
    gate.reached().await;
    let watch = guard.watch();
    guard.release().await.unwrap();
    gate.open();
    sleep(secs(120)).await;
    assert_eq!((watch.is_held(), backend.count_renews()), (false, 1));
    assert_eq!((locks.stats().held, locks.stats().tasks), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgets_to_answer_counts_as_one_that_failed() {
    let (backend, locks) = stage_with(|o| o.ttl(secs(3)));
    backend.on_renew(ScriptedReply::never());
    let guard = hold(&locks, "k").await;
    sleep(secs(60)).await;
    assert!(guard.is_held());
    let gaps = renewed_at(&backend);
    let first: Duration = gaps[1] - gaps[0];
    assert!(first <= ms(1_500), "the second try comes in time: {first:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_slower_than_the_interval_keep_the_lease_and_are_not_asked_for_more_often() {
    let (backend, locks) = stage();
    backend.always_renew(ScriptedReply::from(held()).after(TTL * 4 / 10));
    let guard = hold(&locks, "k").await;
    sleep(secs(300)).await;
    let sent = renewed_at(&backend);
    assert!(guard.is_held(), "{:?}: {sent:?}", guard.loss());
    assert!(sent.len() <= 30, "one renewal in ten seconds: {} in 300 s", sent.len());
    let spaced = |pair: &[Duration]| pair[1] - pair[0] >= TTL / 3;
    assert!(sent.windows(2).all(spaced), "never more often than with a quick store: {sent:?}");
}
