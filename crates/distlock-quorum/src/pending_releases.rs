//! Releases that a node has not heard: repeated there until it has.
//!
//! A release is over for its caller when a majority has acknowledged it. On a node that was out of
//! reach the claim would stay until its lease ends, and the next client would be one vote short. So
//! the release is repeated there, one at a time and with growing pauses, until it is heard or the
//! lease has ended by itself. A client that asks under the same claim again ends the repetition:
//! the release must not take away what was asked for after it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use distlock_core::{Claim, Fault, ReleaseOptions, Target};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::QuorumInner;
use super::claims::LateAnswer;
use super::late_calls::{LATE_CALL_MAX, LateWork};
use distlock_core::sync::lock;

/// How many releases are remembered for a node. Beyond it the oldest end with their leases.
const PENDING_RELEASES_MAX: usize = 1024;

/// The pause after the first failure; it doubles up to [`REPEAT_PAUSE_MAX`].
const REPEAT_PAUSE_MIN: Duration = Duration::from_millis(50);
const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A release that a node has not heard.
#[derive(Clone, Debug)]
pub(super) struct PendingRelease {
    pub(super) target: Arc<Target>,
    pub(super) bury: Duration,
    /// The key stays taken until then.
    pub(super) keep_until: Instant,
    /// The lease has ended by then.
    pub(super) over_at: Instant,
}

impl PendingRelease {
    pub(super) fn how(&self, now: Instant) -> ReleaseOptions {
        ReleaseOptions { keep: self.keep_until.saturating_duration_since(now), bury: self.bury }
    }
}

/// The releases that one node has not heard.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    state: Mutex<PendingState>,
    /// There are any: quicker to ask than the lock.
    any: AtomicBool,
    /// The node is back, or a drain waits.
    hurry: Arc<Notify>,
}

#[derive(Debug, Default)]
struct PendingState {
    releases: VecDeque<PendingRelease>,
    /// A task repeats them.
    repeating: bool,
}

impl PendingReleases {
    /// Tries again now instead of after the pause.
    pub(super) fn hurry(&self) {
        if self.any.load(Ordering::SeqCst) {
            self.hurry.notify_one();
        }
    }

    /// Remembers a release. True if no task repeats them yet.
    fn add(&self, release: PendingRelease) -> bool {
        let mut state = lock(&self.state);
        state.releases.retain(|known| known.target != release.target);
        if state.releases.len() >= PENDING_RELEASES_MAX {
            state.releases.pop_front();
        }
        state.releases.push_back(release);
        self.any.store(true, Ordering::SeqCst);
        !std::mem::replace(&mut state.repeating, true)
    }

    /// True if there are any that no task repeats: the task that did it has ended with its runtime.
    fn is_orphaned(&self) -> bool {
        let mut state = lock(&self.state);
        let orphaned = !state.releases.is_empty() && !state.repeating;
        state.repeating |= orphaned;
        orphaned
    }

    fn forget(&self, target: &Target) {
        let mut state = lock(&self.state);
        state.releases.retain(|known| *known.target != *target);
        self.any.store(!state.releases.is_empty(), Ordering::SeqCst);
    }

    /// The next that `begin` begins. Those that it does not are forgotten.
    fn next<T>(&self, now: Instant, begin: impl Fn(&PendingRelease) -> Option<T>) -> Option<T> {
        let mut state = lock(&self.state);
        state.releases.retain(|release| release.over_at > now);
        while let Some(release) = state.releases.pop_front() {
            if let Some(begun) = begin(&release) {
                // At the end, so that one that always fails keeps no other waiting.
                state.releases.push_back(release);
                return Some(begun);
            }
        }
        state.repeating = false;
        self.any.store(false, Ordering::SeqCst);
        None
    }
}

/// Repeats the releases that a node has not heard.
pub(super) struct Repeating {
    quorum: Weak<QuorumInner>,
    node: usize,
    done: bool,
}

impl Drop for Repeating {
    /// Its runtime has ended, or there was none: the next release that is not heard begins anew.
    fn drop(&mut self) {
        if let (Some(quorum), false) = (self.quorum.upgrade(), self.done) {
            lock(&quorum.nodes[self.node].unheard.state).repeating = false;
        }
    }
}

impl Repeating {
    pub(super) async fn run(&mut self) {
        let mut pause = REPEAT_PAUSE_MIN;
        while let Some(quorum) = self.quorum.upgrade() {
            let unheard = &quorum.nodes[self.node].unheard;
            let begin = |release: &PendingRelease| quorum.begin_again(self.node, release);
            let Some((target, call)) = unheard.next(Instant::now(), begin) else {
                self.done = true;
                return;
            };
            let heard = call.clone().await;
            if let Target::Claim(claim) = &*target {
                quorum.claims.ended(&claim.id, self.node, &call, true);
            }
            if heard {
                unheard.forget(&target);
                pause = REPEAT_PAUSE_MIN;
                continue;
            }
            let hurry = Arc::clone(&unheard.hurry);
            // A task that waits here does not keep the quorum alive.
            drop(quorum);
            let _ = timeout(pause, hurry.notified()).await;
            pause = (pause * 2).min(REPEAT_PAUSE_MAX);
        }
    }
}

impl QuorumInner {
    /// Repeats a release at a node that has not heard it.
    pub(super) fn repeat(self: &Arc<Self>, node: usize, release: PendingRelease) {
        if self.nodes[node].unheard.add(release) {
            self.start_repeating(node);
        }
    }

    fn start_repeating(self: &Arc<Self>, node: usize) {
        let quorum = Arc::downgrade(self);
        self.late_calls.take(LateWork::Repeat(Repeating { quorum, node, done: false }));
    }

    /// The claim is asked for again: no earlier release of it may come after that.
    pub(super) fn forget_unheard(&self, claim: &Claim) {
        for unheard in self.nodes.iter().map(|node| &node.unheard) {
            if unheard.any.load(Ordering::SeqCst) {
                unheard.forget(&Target::Claim(claim.clone()));
            }
        }
    }

    /// Sends a release once more, unless its claim was asked for again. A client that asks for it
    /// at this node from now on waits for the release.
    fn begin_again(
        self: &Arc<Self>,
        node: usize,
        release: &PendingRelease,
    ) -> Option<(Arc<Target>, LateAnswer)> {
        let (target, how) = (Arc::clone(&release.target), release.how(Instant::now()));
        let (inner, released) = (Arc::clone(self), Arc::clone(&target));
        let call = async move {
            let call = inner.nodes[node].release(&released, how);
            matches!(timeout(LATE_CALL_MAX, call).await, Ok(Ok(_)))
        };
        let call: std::pin::Pin<Box<dyn Future<Output = bool> + Send>> = Box::pin(call);
        let call = call.shared();
        match &*target {
            Target::Claim(claim) if !self.claims.repeats(&claim.id, node, &call) => None,
            _ => Some((target, call)),
        }
    }

    /// Waits until no detached work is under way, as long as a node may take.
    pub(super) async fn drain(self: &Arc<Self>) -> Result<(), Fault> {
        for (index, node) in self.nodes.iter().enumerate() {
            node.unheard.hurry();
            if node.unheard.is_orphaned() {
                self.start_repeating(index);
            }
        }
        let idle = timeout(self.options.node_timeout, self.late_calls.is_idle()).await;
        idle.map_err(|elapsed| Fault::transient("hear from every node", elapsed))
    }
}
