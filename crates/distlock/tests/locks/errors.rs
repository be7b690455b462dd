//! What errors say, and what to do about them.

use std::error::Error as _;

use distlock::{Error, Fault, Invalid, Key, Locks, LossReason, NodeFaults};
use distlock_testkit::ScriptedReply;

use crate::support::{World, is_timeout, ms, pass, scripted, secs};

fn fault() -> Fault {
    Fault::transient("reach the store", "connection refused")
}

/// Every error, whether it names the key, and whether trying again may help.
fn all() -> Vec<(Error, bool, bool)> {
    let key = Key::new("jobs/nightly").unwrap();
    let k = || key.clone();
    let held = Error::Held { key: k(), retry_after: None, holder: None, ahead: 3 };
    let faults = NodeFaults(vec![("node-1".into(), fault())]);
    let hold = LossReason::Gone;
    vec![
        (held, true, true),
        (Error::Timeout { key: k(), waited: secs(5), source: None }, true, true),
        (Error::Timeout { key: k(), waited: secs(5), source: Some(fault()) }, true, true),
        (Error::RetriesExhausted { key: k(), attempts: 4 }, true, true),
        (Error::Lost { key: k(), reason: hold }, true, true),
        (Error::NotHeld { key: k() }, true, false),
        (Error::Closed, false, false),
        (Error::NoRuntime, false, false),
        (Error::Unsupported { what: "reentry" }, false, false),
        (Error::Conflict { key: k() }, true, false),
        (Error::TooManyWaiters { key: k() }, true, true),
        (Error::NoQuorum { key: k(), needed: 2, granted: 1, faults }, true, true),
        (Error::NotReplicated { key: k(), confirmed: 0, wanted: 1 }, true, true),
        (Error::ReleaseUncertain { key: k(), source: fault() }, true, true),
        (Error::Invalid(Invalid::new("ttl", 0, "must be at least 1 ms")), false, false),
        (Error::Url(Invalid::new("URL scheme", "x", "is unknown")), false, false),
        (Error::Backend(fault()), false, true),
        (Error::Backend(Fault::denied("log in", "wrong password")), false, false),
        (Error::Backend(fault().at_key(&key).at_store("redis://h:6379")), true, true),
        (Error::Backend(Fault::permanent("log in", "wrong password")), false, false),
        (Error::Cancelled { key: k() }, true, false),
        (Error::AsyncContext, false, false),
    ]
}

#[test]
fn a_message_is_a_lower_case_fragment_that_names_the_key() {
    for (error, names_key, _) in all() {
        let text = error.to_string();
        assert!(text.starts_with(|c: char| c.is_ascii_lowercase()), "{text}");
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
        assert_eq!(text.contains("jobs/nightly"), names_key, "{text}");
    }
}

#[test]
fn every_error_says_whether_trying_again_may_help() {
    for (error, _, transient) in all() {
        assert_eq!(error.is_transient(), transient, "{error}");
    }
}

#[test]
fn the_texts_are_these() {
    let texts: Vec<_> = all().into_iter().map(|(error, ..)| error.to_string()).collect();
    assert_eq!(texts[0], "acquire \"jobs/nightly\": held, 3 waiting ahead");
    assert_eq!(texts[1], "acquire \"jobs/nightly\": timed out after 5s");
    assert!(texts[2].contains("timed out after 5s") && texts[2].contains("connection refused"));
    assert_eq!(texts[3], "acquire \"jobs/nightly\": still held after 4 attempts");
    assert!(texts[11].contains("node-1"), "{}", texts[11]);
    assert!(texts[14].contains("ttl") && texts[14].contains("\"0\""), "{}", texts[14]);
}

#[test]
fn a_text_is_complete_and_the_sources_below_repeat_nothing_of_it() {
    for (error, ..) in all() {
        let (text, mut below) = (error.to_string(), error.source());
        while let Some(source) = below {
            assert!(!text.contains(&source.to_string()), "{text}: {source}");
            below = source.source();
        }
    }
    let text = Error::Backend(fault()).to_string();
    assert_eq!(text, "could not reach the store: connection refused");
}

#[test]
fn the_cause_of_a_fault_is_kept_with_its_type() {
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let fault = Fault::transient("acquire", refused);
    let cause = fault.cause().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused));
}

#[tokio::test(start_paused = true)]
async fn every_error_of_a_backend_names_the_key_and_the_store() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let lease = locks.lease("k").unwrap().acquire().await.unwrap();
    network.cut();
    let leases = locks.lease("k").unwrap();
    let mut same = lease.clone();
    for error in [
        locks.mutex("k").unwrap().try_lock().await.unwrap_err(),
        locks.mutex("k").unwrap().try_lock_for(secs(3)).await.unwrap_err(),
        leases.extend(&mut same).await.unwrap_err(),
        leases.release(&lease).await.unwrap_err(),
        locks.inspect("k").await.unwrap_err(),
        locks.break_hold("k", 1).await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("\"k\"") && text.contains(" at memory:"), "{text}");
    }
    assert!(locks.list("", None).await.unwrap_err().to_string().contains("at memory:"));
    assert!(locks.probe().await.unwrap_err().to_string().contains("at memory:"));
}

#[tokio::test(start_paused = true)]
async fn a_held_error_says_who_holds() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.owner("ci-7")).unwrap();
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let refused = world.locks().mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!(refused.to_string(), "acquire \"k\": held by ci-7");
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_never_taken_for_contention() {
    let world = World::new();
    let (locks, network) = world.faulty();
    network.cut();
    let mutex = locks.mutex("k").unwrap();
    assert!(matches!(mutex.try_lock().await, Err(Error::Backend(fault)) if fault.is_transient()));
    match mutex.try_lock_for(secs(5)).await {
        Err(Error::Timeout { source: Some(fault), waited, .. }) => {
            assert!(fault.is_transient() && waited < secs(6));
        }
        other => panic!("{other:?}"),
    }
    let hasty = mutex.clone().configure(|o| o.patience(ms(0))).unwrap();
    assert!(matches!(hasty.lock().await, Err(Error::Backend(_))));
    let before = tokio::time::Instant::now();
    assert!(matches!(mutex.lock().await, Err(Error::Backend(_))), "patience is the ttl");
    assert!(before.elapsed() >= secs(30) && before.elapsed() < secs(33));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_ends_the_wait_at_once() {
    let (locks, store) = scripted();
    store.always_acquire(ScriptedReply::permanent());
    let mutex = locks.mutex("k").unwrap();
    let before = tokio::time::Instant::now();
    for result in [mutex.lock().await, mutex.try_lock().await, mutex.try_lock_for(secs(5)).await] {
        assert!(matches!(result, Err(Error::Backend(fault)) if !fault.is_transient()));
    }
    assert_eq!(before.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_asked_for_again_under_the_same_claim() {
    let world = World::new();
    let (locks, network) = world.faulty();
    network.cut_replies();
    let mutex = locks.mutex("k").unwrap();
    let waiting = tokio::spawn(async move { mutex.try_lock_for(secs(20)).await });
    pass(ms(500)).await;
    let fence = world.locks().inspect("k").await.unwrap().holders[0].fence;
    pass(secs(3)).await;
    network.heal();
    assert_eq!(waiting.await.unwrap().unwrap().fence(), fence, "taken twice");
    assert!(!is_timeout(&world.locks().mutex("k2").unwrap().try_lock().await));
}

#[test]
fn outside_a_runtime_the_error_is_typed() {
    let locks = Locks::memory();
    let mutex = locks.mutex("k").unwrap();
    let result = futures_util::future::FutureExt::now_or_never(mutex.lock());
    assert!(matches!(result, Some(Err(Error::NoRuntime))), "{result:?}");
    let result = futures_util::future::FutureExt::now_or_never(locks.close());
    assert!(matches!(result, Some(Err(Error::NoRuntime))), "{result:?}");
}
