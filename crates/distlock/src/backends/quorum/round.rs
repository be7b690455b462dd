//! One question to all nodes: asked at once, heard in one task, left as soon as it is decided.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use distlock_core::Fault;
use futures_util::FutureExt;

/// A call to one node that belongs to nobody, so that it can outlive the round.
pub(super) type Call<T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send>>;

/// The calls of a question that have not been answered yet. They are polled side by side by the
/// task that asks: five nodes cost no task and no channel.
pub(super) struct Round<T>(Vec<(usize, Call<T>)>);

impl<T> Round<T> {
    pub(super) fn new(calls: impl Iterator<Item = (usize, Call<T>)>) -> Self {
        Self(calls.collect())
    }

    /// The next answer and whose it is; none when all have answered.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Fault>)> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T, Fault>)>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.0.len() {
            if let Poll::Ready(answer) = self.0[at].1.poll_unpin(context) {
                let (node, _) = self.0.swap_remove(at);
                return Poll::Ready(Some((node, answer)));
            }
        }
        Poll::Pending
    }

    /// Answers that are there already, without waiting for any.
    pub(super) fn ready(&mut self) -> Option<(usize, Result<T, Fault>)> {
        self.next().now_or_never().flatten()
    }

    /// The calls that are still under way.
    pub(super) fn into_late(self) -> Vec<(usize, Call<T>)> {
        self.0
    }
}
