//! Looking out for an answer instead of sleeping until it comes.
//!
//! A server nearby answers about as soon as a thread has fallen asleep and was woken again, and
//! both cost the machine about as much as to stay awake meanwhile. So whoever waits for such a
//! server looks again and again, in turn with everything else that the runtime has to do. Where
//! answers take longer, hardly anybody ever looks.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::poll_immediate;
use tokio::runtime::{Handle, RuntimeFlavor};

/// For how long one call looks out.
const LOOK_MAX: Duration = Duration::from_micros(100);

/// Where answers never come in time, about one call of two to the power of this looks out.
const MISSES_MAX: u32 = 8;

/// Whether it is worth looking out for what a store answers, by how that went of late. Several may
/// write at once: whoever is last is as right as the others.
#[derive(Debug)]
pub(super) struct Lookout {
    look_max: Duration,
    /// Somebody looks out. One is enough to keep the runtime awake.
    taken: AtomicBool,
    /// How much more often than not the answer came too late.
    misses: AtomicU32,
    /// How many calls do not look out before the next that does.
    pause: AtomicU32,
}

impl Default for Lookout {
    fn default() -> Self {
        Self::new(LOOK_MAX)
    }
}

impl Lookout {
    fn new(look_max: Duration) -> Self {
        let (misses, pause) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { look_max, taken: AtomicBool::new(false), misses, pause }
    }

    /// Waits for the answer to a call that somebody waits for.
    pub(super) async fn wait<F: Future>(&self, mut answer: Pin<&mut F>) -> F::Output {
        if let Some(post) = self.post() {
            let since = Instant::now();
            loop {
                // Wakes this task as usual when it comes, so nothing depends on looking.
                let answered = poll_immediate(answer.as_mut()).await;
                let in_time = since.elapsed() < self.look_max;
                match answered {
                    Some(answered) => {
                        // What comes later may have been there for long: others kept the thread.
                        if in_time {
                            self.hit();
                        }
                        return answered;
                    }
                    None if in_time => tokio::task::yield_now().await,
                    None => break,
                }
            }
            drop(post);
            self.miss();
        }
        answer.await
    }

    /// A place to look out from, if that is worth while and nobody else does.
    fn post(&self) -> Option<Post<'_>> {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
            return None;
        }
        let free = yields() && !self.taken.swap(true, Ordering::Relaxed);
        free.then(|| Post(self))
    }

    fn hit(&self) {
        let misses = self.misses.load(Ordering::Relaxed);
        self.misses.store(misses.saturating_sub(1), Ordering::Relaxed);
    }

    fn miss(&self) {
        let misses = (self.misses.load(Ordering::Relaxed) + 1).min(MISSES_MAX);
        self.misses.store(misses, Ordering::Relaxed);
        // Even, so that of calls which take and give back in turn each kind gets to try.
        self.pause.store(1 << misses, Ordering::Relaxed);
    }
}

/// True if whoever yields here lets the runtime turn. Whoever blocks on it from outside of its
/// threads is only asked again at once.
fn yields() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::CurrentThread || tokio::task::try_id().is_some()
    })
}

/// Somebody looks out until this is dropped.
struct Post<'a>(&'a Lookout);

impl Drop for Post<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    /// Longer than any test takes.
    const FOREVER: Duration = Duration::from_secs(3600);

    impl Lookout {
        fn pause(&self) -> u32 {
            self.pause.load(Ordering::Relaxed)
        }

        async fn misses(&mut self, times: u32) {
            self.look_max = Duration::ZERO;
            for _ in 0..times {
                self.rest().await;
                self.wait(pin!(tokio::task::yield_now())).await;
            }
        }

        async fn hits(&mut self, times: u32) {
            self.look_max = FOREVER;
            for _ in 0..times {
                self.rest().await;
                // Nobody is told of it, so only whoever looks sees it.
                tokio::time::timeout(Duration::from_secs(20), self.wait(pin!(after(3))))
                    .await
                    .expect("it is looked out for");
            }
        }

        /// Calls until the next one looks out.
        async fn rest(&self) {
            while self.pause() > 0 {
                self.wait(pin!(tokio::task::yield_now())).await;
            }
        }
    }

    /// Comes when it has been looked at this often, and wakes nobody.
    async fn after(looks: u32) {
        let mut left = looks;
        poll_fn(|_| {
            left -= 1;
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    #[tokio::test]
    async fn an_answer_is_seen_without_being_told() {
        Lookout::default().hits(100).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_of_a_runtime_of_several_threads_looks_out() {
        tokio::spawn(async { Lookout::default().hits(100).await }).await.expect("it ends");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_blocks_on_a_runtime_from_outside_does_not_look_out() {
        let lookout = Lookout::new(FOREVER);
        assert!(lookout.post().is_none());
    }

    #[test]
    fn without_a_runtime_nobody_looks_out() {
        assert!(Lookout::new(FOREVER).post().is_none());
    }

    #[tokio::test]
    async fn others_run_while_somebody_looks_out() {
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async { tell.send("done") });
        assert_eq!(Lookout::new(FOREVER).wait(pin!(told)).await, Ok("done"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_soon_is_slept_for() {
        let looks = Cell::new(0);
        let mut nap = pin!(tokio::time::sleep(FOREVER));
        let counted = pin!(poll_fn(|context| {
            looks.set(looks.get() + 1);
            nap.as_mut().poll(context)
        }));
        Lookout::new(Duration::ZERO).wait(counted).await;
        // Once to see that it is not there, once to fall asleep, once when it is.
        assert_eq!(looks.get(), 3);
    }

    #[tokio::test]
    async fn the_more_answers_were_late_the_fewer_calls_look_out() {
        let mut lookout = Lookout::default();
        lookout.misses(1).await;
        assert_eq!(lookout.pause(), 2);
        lookout.misses(2).await;
        assert_eq!(lookout.pause(), 8);
        lookout.misses(97).await;
        assert_eq!(lookout.pause(), 256);
    }

    #[tokio::test]
    async fn where_answers_come_in_time_again_everybody_looks_out_again() {
        let mut lookout = Lookout::default();
        lookout.misses(100).await;
        lookout.hits(1).await;
        assert_eq!(lookout.pause(), 0);
        lookout.hits(7).await;
        lookout.misses(1).await;
        assert_eq!(lookout.pause(), 2, "as if it was the first");
    }

    #[tokio::test]
    async fn one_looks_out_at_a_time_and_makes_room_when_dropped() {
        let lookout = Lookout::new(FOREVER);
        let mut call = pin!(pending::<()>());
        {
            let mut first = pin!(lookout.wait(call.as_mut()));
            assert!(poll_immediate(&mut first).await.is_none());
            assert!(lookout.post().is_none());
        }
        assert!(lookout.post().is_some());
        assert_eq!(lookout.pause(), 0, "nobody knows whether it was late");
    }
}
