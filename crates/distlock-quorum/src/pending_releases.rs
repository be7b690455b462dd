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
use tokio::runtime::{Handle, Id};
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
    /// The runtimes that repeat them; none is for what was released outside a runtime. One that is
    /// not polled keeps no other from it, and a release that is sent twice does no harm.
    repeating: Vec<Option<Id>>,
}

impl PendingReleases {
    /// Tries again now instead of after the pause.
    pub(super) fn hurry(&self) {
        if self.any.load(Ordering::SeqCst) {
            self.hurry.notify_one();
        }
    }

    /// Remembers a release. True if this runtime does not repeat them yet.
    fn add(&self, release: PendingRelease, runtime: Option<Id>) -> bool {
        let mut state = lock(&self.state);
        state.releases.retain(|known| known.target != release.target);
        if state.releases.len() >= PENDING_RELEASES_MAX {
            state.releases.pop_front();
        }
        state.releases.push_back(release);
        self.any.store(true, Ordering::SeqCst);
        state.begins(runtime)
    }

    /// True if there are any that this runtime does not repeat yet.
    fn is_orphaned(&self, runtime: Option<Id>) -> bool {
        let mut state = lock(&self.state);
        !state.releases.is_empty() && state.begins(runtime)
    }

    /// A runtime repeats no more.
    fn ends(&self, runtime: Option<Id>) {
        lock(&self.state).repeating.retain(|other| *other != runtime);
    }

    fn forget(&self, target: &Target) {
        let mut state = lock(&self.state);
        state.releases.retain(|known| *known.target != *target);
        self.any.store(!state.releases.is_empty(), Ordering::SeqCst);
    }

    /// The next that `begin` begins. Those that it does not are forgotten.
    fn next<T>(
        &self,
        runtime: Option<Id>,
        now: Instant,
        begin: impl Fn(&PendingRelease) -> Option<T>,
    ) -> Option<T> {
        let mut state = lock(&self.state);
        state.releases.retain(|release| release.over_at > now);
        while let Some(release) = state.releases.pop_front() {
            if let Some(begun) = begin(&release) {
                // At the end, so that one that always fails keeps no other waiting.
                state.releases.push_back(release);
                return Some(begun);
            }
        }
        state.repeating.retain(|other| *other != runtime);
        self.any.store(false, Ordering::SeqCst);
        None
    }
}

impl PendingState {
    /// Notes that a runtime repeats them. False if it did before.
    fn begins(&mut self, runtime: Option<Id>) -> bool {
        let new = !self.repeating.contains(&runtime);
        if new {
            self.repeating.push(runtime);
        }
        new
    }
}

/// Repeats the releases that a node has not heard.
pub(super) struct Repeating {
    quorum: Weak<QuorumInner>,
    node: usize,
    runtime: Option<Id>,
    done: bool,
}

impl Drop for Repeating {
    /// Its runtime has ended, or there was none: the next release that is not heard begins anew.
    fn drop(&mut self) {
        if let (Some(quorum), false) = (self.quorum.upgrade(), self.done) {
            quorum.nodes[self.node].unheard.ends(self.runtime);
        }
    }
}

impl Repeating {
    pub(super) async fn run(&mut self) {
        let mut pause = REPEAT_PAUSE_MIN;
        while let Some(quorum) = self.quorum.upgrade() {
            let unheard = &quorum.nodes[self.node].unheard;
            let begin = |release: &PendingRelease| quorum.begin_again(self.node, release);
            let Some((target, call)) = unheard.next(self.runtime, Instant::now(), begin) else {
                self.done = true;
                return;
            };
            let heard = call.clone().await;
            if let Target::Claim(claim) = &*target {
                quorum.claims.ended(claim, self.node, &call, true);
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
        let runtime = runtime();
        if self.nodes[node].unheard.add(release, runtime) {
            self.start_repeating(node, runtime);
        }
    }

    fn start_repeating(self: &Arc<Self>, node: usize, runtime: Option<Id>) {
        let quorum = Arc::downgrade(self);
        self.late_calls.take(LateWork::Repeat(Repeating { quorum, node, runtime, done: false }));
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
            Target::Claim(claim) if !self.claims.repeats(claim, node, &call) => None,
            _ => Some((target, call)),
        }
    }

    /// Waits until no detached work is under way, as long as a node may take.
    pub(super) async fn drain(self: &Arc<Self>) -> Result<(), Fault> {
        let runtime = runtime();
        for (index, node) in self.nodes.iter().enumerate() {
            node.unheard.hurry();
            if node.unheard.is_orphaned(runtime) {
                self.start_repeating(index, runtime);
            }
        }
        let idle = timeout(self.options.node_timeout, self.late_calls.is_idle()).await;
        idle.map_err(|elapsed| Fault::transient("hear from every node", elapsed))
    }
}

/// The runtime that runs this.
fn runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}
