//! The numbers that those who watch get through the facade `metrics`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use distlock::backends::Memory;
use distlock::{Error, Event, Locks};
use futures_util::StreamExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::support::*;

/// Runs some work on a runtime of its own whose numbers are its own.
fn watched(work: impl AsyncFnOnce(Numbers)) {
    let recorder = DebuggingRecorder::new();
    let seen = Numbers { recorded: recorder.snapshotter(), all: RefCell::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work(seen)));
}

/// Every number by its name and labels.
struct Numbers {
    recorded: Snapshotter,
    all: RefCell<BTreeMap<String, f64>>,
}

impl Numbers {
    /// Counts, levels, and how many were recorded. A recorder forgets what it has shown once, so
    /// that is added up here.
    fn now(&self) -> BTreeMap<String, f64> {
        let mut all = self.all.borrow_mut();
        for (key, _, _, value) in self.recorded.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let mut labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            labels.sort();
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(level) => level.into_inner(),
                DebugValue::Histogram(all) => all.len() as f64,
            };
            *all.entry(format!("{}{{{}}}", key.name(), labels.join(","))).or_default() += value;
        }
        all.clone()
    }
}

#[test]
fn every_number_is_told_and_no_key_is_a_label() {
    watched(async |seen| {
        let locks = here().configure(|o| o.ttl(ms(1_500)).place(ms(2_000))).unwrap();
        let mut events = locks.events();
        let mutex = locks.mutex("jobs/s3cret-name").unwrap();
        let guard = mutex.lock().await.unwrap();
        assert!(matches!(mutex.try_lock().await, Err(Error::Held { .. })));
        assert!(matches!(mutex.try_lock_for(ms(5)).await, Err(Error::Timeout { .. })));
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.lock().await.unwrap() }
        });
        until("it was renewed", async || {
            matches!(events.next().await, Some(Event::Renewed { .. }))
        })
        .await;
        let at_once = seen.now();
        assert_eq!(at_once["distlock_held{group=jobs}"], 1.0);
        assert_eq!(at_once["distlock_waiters{group=jobs}"], 1.0);
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        locks.break_hold("jobs/s3cret-name", guard.fence()).await.unwrap();
        guard.lost().await;
        drop(guard);
        locks.close().await.unwrap();
        let told = seen.now();
        for name in [
            "distlock_acquire_total{group=jobs,outcome=granted}",
            "distlock_acquire_total{group=jobs,outcome=held}",
            "distlock_acquire_total{group=jobs,outcome=timeout}",
            "distlock_acquire_wait_seconds{group=jobs}",
            "distlock_hold_seconds{end=lost,group=jobs}",
            "distlock_hold_seconds{end=released,group=jobs}",
            "distlock_renew_total{group=jobs,outcome=renewed}",
            "distlock_renew_margin_seconds{group=jobs}",
            "distlock_lost_total{group=jobs,reason=broken}",
            "distlock_wake_total{source=push}",
            "distlock_backend_op_seconds{op=acquire}",
            "distlock_backend_op_seconds{op=renew}",
            "distlock_backend_op_seconds{op=release}",
        ] {
            assert!(told.get(name).is_some_and(|number| *number >= 1.0), "{name}: {told:#?}");
        }
        for level in ["distlock_held{group=jobs}", "distlock_waiters{group=jobs}"] {
            assert_eq!(told[level], 0.0, "{level}");
        }
        let shown = format!("{told:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    });
}

#[test]
fn waits_that_are_cancelled_or_polled_are_counted_too() {
    watched(async |seen| {
        let locks = here();
        let guard = locks.mutex("a/k").unwrap().lock().await.unwrap();
        let backoff = distlock::Backoff::fixed(ms(5));
        let polls = |o: distlock::Options| o.wait_mode(distlock::WaitMode::Poll(backoff));
        let polling = locks.mutex("a/k").unwrap().configure(polls).unwrap();
        let waiting = tokio::spawn(async move { polling.lock().await.unwrap() });
        until("it polls", async || seen.now().contains_key("distlock_waiters{group=a}")).await;
        drop(guard);
        let guard = waiting.await.unwrap();
        let mutex = locks.mutex("a/k").unwrap();
        assert!(tokio::time::timeout(ms(20), mutex.lock()).await.is_err());
        drop(guard);
        locks.close().await.unwrap();
        let told = seen.now();
        assert_eq!(told["distlock_wake_total{source=poll}"], 1.0);
        assert_eq!(told["distlock_acquire_total{group=a,outcome=cancelled}"], 1.0);
        assert_eq!(told["distlock_waiters{group=a}"], 0.0);
    });
}

/// Locks whose numbers are told on the thread of the test, where the recorder of the test is.
fn here() -> Locks {
    Locks::without_thread(Arc::new(Memory::new()))
}
