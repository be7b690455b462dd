//! One question to the nodes: asked at once, heard in one task, left as soon as it is decided.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use distlock_core::Fault;
use futures_util::FutureExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::set::NodeSet;

/// How long nodes in reserve are left alone while others are asked.
pub(super) const RESERVE_AFTER: Duration = Duration::from_millis(50);

/// How long after an answer the next one is awaited where it is hardly needed: a call that the
/// answers of most nodes have all but decided does not wait longer for nodes that may hang.
pub(super) const ALL_BUT_DECIDED: Duration = Duration::from_millis(100);

/// A call to one node that no caller owns, so that it can outlive the round.
pub(super) type NodeCall<T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send>>;

/// The calls of a question that have not been answered yet. They are polled side by side by the
/// task that asks: five nodes cost no task and no channel.
pub(super) struct Round<T, B> {
    calls: Vec<(usize, NodeCall<T>)>,
    /// The nodes that are asked only if the answers of the others do not suffice, or are slow.
    reserve: NodeSet,
    reserve_at: Instant,
    /// Begins the call to a node.
    begin: B,
}

impl<T, B: FnMut(usize) -> NodeCall<T>> Round<T, B> {
    /// Asks these nodes, and those in reserve when the caller still needs answers after all the
    /// others have answered, or after a moment.
    pub(super) fn new(nodes: NodeSet, reserve: NodeSet, mut begin: B) -> Self {
        let mut calls = Vec::with_capacity(nodes.len());
        calls.extend(nodes.without(reserve).iter().map(|node| (node, begin(node))));
        Self { calls, reserve, reserve_at: Instant::now() + RESERVE_AFTER, begin }
    }

    /// The next answer and whose it is; none when all have answered.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Fault>)> {
        if !self.reserve.is_empty() {
            let (begin_at, first) = (self.reserve_at, poll_fn(|context| self.poll(context)));
            if let Ok(Some(answer)) = timeout_at(begin_at, first).await {
                return Some(answer);
            }
            let reserve = std::mem::take(&mut self.reserve);
            self.calls.extend(reserve.iter().map(|node| (node, (self.begin)(node))));
        }
        poll_fn(|context| self.poll(context)).await
    }

    /// The next answer of a node that is likely to answer soon: none if only suspects are left, or
    /// if no answer comes for a while.
    pub(super) async fn next_soon(
        &mut self,
        suspects: NodeSet,
    ) -> Option<(usize, Result<T, Fault>)> {
        if self.unanswered().without(suspects).is_empty() {
            return None;
        }
        timeout(ALL_BUT_DECIDED, self.next()).await.ok().flatten()
    }

    /// The nodes that have not answered, asked or not.
    pub(super) fn unanswered(&self) -> NodeSet {
        self.calls.iter().map(|(node, _)| *node).chain(self.reserve.iter()).collect()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T, Fault>)>> {
        if self.calls.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.calls.len() {
            if let Poll::Ready(answer) = self.calls[at].1.poll_unpin(context) {
                let (node, _) = self.calls.swap_remove(at);
                return Poll::Ready(Some((node, answer)));
            }
        }
        Poll::Pending
    }

    /// Answers that are there already, without waiting for any.
    pub(super) fn ready(&mut self) -> Option<(usize, Result<T, Fault>)> {
        poll_fn(|context| self.poll(context)).now_or_never().flatten()
    }

    /// The nodes that were not needed.
    pub(super) fn unasked(&self) -> NodeSet {
        self.reserve
    }

    /// The calls that are still under way.
    pub(super) fn into_late(self) -> Vec<(usize, NodeCall<T>)> {
        self.calls
    }
}
