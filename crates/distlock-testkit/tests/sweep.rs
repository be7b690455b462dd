//! The cancel sweep drops at every point and finds what leaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use distlock_testkit::sweep::sweep;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Counts itself while it lives.
struct Held(Arc<AtomicUsize>);

impl Held {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_future_passes_and_every_point_is_counted() {
    let count = Arc::new(AtomicUsize::new(0));
    let make = || {
        let count = Arc::clone(&count);
        async move {
            let held = Held::new(&count);
            for _ in 0..3 {
                sleep(Duration::from_secs(1)).await;
            }
            held
        }
    };
    let mut polls = Vec::new();
    let cancellations = sweep(make, async |k| {
        polls.push(k);
        assert_eq!(count.load(SeqCst), 0);
    })
    .await;
    assert_eq!(cancellations, 6);
    assert_eq!(polls, [1, 1, 2, 2, 3, 3, 4]);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "leaked")]
async fn a_future_that_leaks_in_the_middle_is_caught() {
    let count = Arc::new(AtomicUsize::new(0));
    let make = || async {
        sleep(Duration::from_secs(1)).await;
        count.fetch_add(1, SeqCst);
        sleep(Duration::from_secs(1)).await;
        count.fetch_sub(1, SeqCst);
    };
    sweep(make, async |_| assert_eq!(count.load(SeqCst), 0, "leaked")).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "leaked")]
async fn an_answer_that_arrives_and_is_never_seen_is_caught() {
    let granted = Arc::new(AtomicUsize::new(0));
    let make = || {
        let granted = Arc::clone(&granted);
        async move {
            let (answer, wait) = oneshot::channel();
            let task = tokio::spawn(async move {
                sleep(Duration::from_secs(1)).await;
                // Takes the lock only while a client waits for it, and yet it leaks: the
                // answer may be dropped on the way.
                granted.fetch_add(usize::from(answer.send(()).is_ok()), SeqCst);
            });
            wait.await.expect("the task answers");
            task.await.expect("the task ends");
        }
    };
    let after = async |_| {
        sleep(Duration::from_secs(5)).await;
        assert_eq!(granted.load(SeqCst), 0, "leaked");
    };
    sweep(make, after).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "never woken")]
async fn a_future_that_hangs_is_named() {
    sweep(std::future::pending::<()>, async |_| {}).await;
}
