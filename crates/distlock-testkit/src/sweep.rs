//! Drops a future after every possible number of polls, or leaves it alone: what is cancelled must
//! leave nothing, and what is not polled must delay no other call.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// A future that needs more polls than this does not end.
const POLLS_MAX: usize = 10_000;

/// A future that is not woken for this long hangs. With paused time that is no time at all.
const WOKEN_WITHIN: Duration = Duration::from_secs(120);

/// When a swept future is dropped, or polled for the last time.
#[derive(Clone, Copy, Debug)]
enum Drop {
    /// Right after a poll: what the poll started is under way.
    AfterPoll,
    /// After the next wake-up instead of the poll it calls for: what was awaited has arrived and
    /// no other future has seen it.
    BeforePoll,
}

/// Drops futures of one kind at every point at which they can be dropped.
///
/// For k = 1, 2, … a new future is polled k times and dropped at once; another one is polled k
/// times, woken once more, and dropped without seeing why. After each drop `after(k)` runs and
/// asserts that nothing is left behind. It ends with the first k at which the future completes by
/// itself (its output is dropped, and `after` runs for that, too) and returns the number of
/// cancellations.
///
/// The future is polled only when it is woken, as a runtime does, so a k means the same point of
/// the code each time. Between two polls other tasks run, and paused time moves on when all wait.
///
/// # Panics
///
/// If the future is not woken within two minutes, or does not complete within 10,000 polls.
///
/// ```
/// use std::time::Duration;
/// use distlock_testkit::sweep::sweep;
/// use tokio::time::sleep;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let two_naps = || async {
///     sleep(Duration::from_secs(1)).await;
///     sleep(Duration::from_secs(1)).await;
/// };
/// let cancellations = sweep(two_naps, async |polls| assert!(polls > 0)).await;
/// assert_eq!(cancellations, 4);
/// # }
/// ```
pub async fn sweep<F: Future>(
    mut make: impl FnMut() -> F,
    mut after: impl AsyncFnMut(usize),
) -> usize {
    let mut cancellations = 0;
    for polls in 1..=POLLS_MAX {
        for when in [Drop::AfterPoll, Drop::BeforePoll] {
            let completed = poll_times(make(), polls, when).await;
            after(polls).await;
            if completed {
                return cancellations;
            }
            cancellations += 1;
        }
    }
    panic!("the future did not complete within {POLLS_MAX} polls");
}

/// Leaves futures of one kind alone, alive and unpolled, at every point at which they can be left.
///
/// For k = 1, 2, … a new future is polled k times and never again; another one is polled k times,
/// woken once more, and not polled. While it is alive `others(k)` runs: calls that must not depend
/// on it. They have to complete within `bound`. Then the future is dropped. The sweep ends with the
/// first k at which the future completes by itself (its output is dropped before `others` runs) and
/// returns how many futures were left alone.
///
/// `make` may prepare a stage of its own for each future. As in [`sweep`], the future is polled
/// only when it is woken.
///
/// # Panics
///
/// If `others` does not complete within `bound`, the future is not woken within two minutes, or it
/// does not complete within 10,000 polls.
///
/// ```
/// use std::time::Duration;
/// use distlock_testkit::sweep::sweep_unpolled;
/// use tokio::time::sleep;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (nap, bound) = (Duration::from_secs(1), Duration::from_secs(2));
/// let left_alone = sweep_unpolled(async || sleep(nap), bound, async |_| sleep(nap).await).await;
/// assert_eq!(left_alone, 2);
/// # }
/// ```
pub async fn sweep_unpolled<F: Future>(
    mut make: impl AsyncFnMut() -> F,
    bound: Duration,
    mut others: impl AsyncFnMut(usize),
) -> usize {
    let mut left_alone = 0;
    for polls in 1..=POLLS_MAX {
        for when in [Drop::AfterPoll, Drop::BeforePoll] {
            let mut future = Box::pin(make().await);
            let completed = poll_times(future.as_mut(), polls, when).await;
            let progress = tokio::time::timeout(bound, others(polls)).await;
            assert!(
                progress.is_ok(),
                "other calls did not complete within {bound:?} while a future was alive and not \
                 polled after {polls} polls ({when:?})"
            );
            drop(future);
            if completed {
                return left_alone;
            }
            left_alone += 1;
        }
    }
    panic!("the future did not complete within {POLLS_MAX} polls");
}

/// Polls a future so many times, then drops it. True if it completed before that.
async fn poll_times<F: Future>(future: F, polls: usize, when: Drop) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    // Pending is passed on to the runtime, which comes back here when the future is woken.
    let polling = poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match (future.as_mut().poll(cx), left, when) {
            (Poll::Ready(_), ..) => Poll::Ready(true),
            (Poll::Pending, 0, Drop::AfterPoll) => Poll::Ready(false),
            (Poll::Pending, ..) => Poll::Pending,
        }
    });
    match tokio::time::timeout(WOKEN_WITHIN, polling).await {
        Ok(completed) => completed,
        Err(_) => panic!("the future was polled {polls} times at most and then never woken"),
    }
}
