//! Giving up on all nodes, also on those that failed or answered late.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Fault, ReleaseOptions, ReleaseOutcome, Target};
use tokio::time::{Instant, timeout, timeout_at};

use super::acquire::unanswered;
use super::claims::{ClaimState, LateAnswer};
use super::late_calls::LATE_CALL_MAX;
use super::pending_releases::PendingRelease;
use super::round::{NodeCall, Round};
use super::set::NodeSet;
use super::vote::{ReleaseVotes, no_quorum};
use super::{BURY_FOR, QuorumInner, ReleaseReport};

impl QuorumInner {
    /// Releases on all nodes, and answers when a majority has. The rest goes on by itself.
    pub(super) async fn release(
        self: &Arc<Self>,
        target: &Target,
        how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        let leaving = ReleaseRound::new(self, target, how);
        let (mut releases, now) = (ReleaseVotes::default(), Instant::now());
        releases.gone = leaving.absent.len();
        let nodes = self.all().without(leaving.absent);
        let mut round = Round::new(nodes, self.silent(nodes, now), |index| leaving.call(index));
        let suspects = self.suspects();
        let patience = self.options.node_timeout;
        let hearing = async {
            while !releases.is_decided(self.size) {
                // A majority has acknowledged it: the rest can only tell whether it was held.
                let next = match releases.answered() >= self.size.majority() {
                    true => round.next_soon(suspects).await,
                    false => round.next().await,
                };
                let Some((index, outcome)) = next else { break };
                releases.count(index, outcome);
            }
        };
        let _ = timeout_at(now + patience, hearing).await;
        while let Some((index, outcome)) = round.ready() {
            releases.count(index, outcome);
        }
        let failed: NodeSet = releases.faults.iter().map(|(index, _)| *index).collect();
        if !releases.is_decided(self.size) {
            let silent = round.unanswered().iter().map(|index| (index, unanswered(patience)));
            releases.faults.extend(silent);
        }
        let left_alone = round.unasked();
        let late = round.into_late();
        for (index, _) in &late {
            self.nodes[*index].liveness.waits(now);
        }
        leaving.see_through(late);
        for index in failed.iter().chain(left_alone.iter()) {
            self.repeat(index, leaving.unheard(index));
        }
        releases.outcome(self.size).ok_or_else(|| {
            let answered = releases.answered();
            no_quorum("release", self.size, answered, &releases.faults, &self.names)
        })
    }

    /// Releases on all nodes and waits for each as long as a release may take.
    pub(super) async fn release_everywhere(self: &Arc<Self>, target: &Target) -> ReleaseReport {
        let leaving = ReleaseRound::new(self, target, ReleaseOptions::default());
        let mut releases = ReleaseVotes::default();
        let mut round = Round::new(self.all(), NodeSet::NONE, |index| leaving.call(index));
        let hearing = async {
            while let Some((index, outcome)) = round.next().await {
                releases.count(index, outcome);
            }
        };
        let in_time = timeout(LATE_CALL_MAX, hearing).await.is_ok();
        leaving.see_through(Vec::new());
        if !in_time {
            let late = round.into_late();
            releases
                .faults
                .extend(late.iter().map(|(index, _)| (*index, unanswered(LATE_CALL_MAX))));
        }
        for (index, _) in &releases.faults {
            self.repeat(*index, leaving.unheard(*index));
        }
        let released = releases.answered();
        let name = |(index, fault): (usize, Fault)| (self.names[index].clone(), fault);
        ReleaseReport {
            total: self.size.0,
            released,
            quorum: released >= self.size.majority(),
            faults: releases.faults.into_iter().map(name).collect(),
        }
    }
}

/// A release, and what is known of what it releases.
struct ReleaseRound<'a> {
    inner: &'a Arc<QuorumInner>,
    target: Arc<Target>,
    how: ReleaseOptions,
    since: Instant,
    known: Option<ClaimState>,
    /// The nodes that never heard of the claim.
    absent: NodeSet,
}

impl<'a> ReleaseRound<'a> {
    fn new(inner: &'a Arc<QuorumInner>, target: &Target, how: ReleaseOptions) -> Self {
        let known = match target {
            Target::Claim(claim) => inner.claims.releasing(claim),
            // Other attempts may have the claim: what is known of it stays known.
            Target::Attempt { claim, .. } => inner.claims.change(claim, |known| known.clone()),
            _ => None,
        };
        let absent = known.as_ref().map_or(NodeSet::NONE, |k| k.unasked.without(k.doubtful));
        let (target, since) = (Arc::new(target.clone()), Instant::now());
        Self { inner, target, how, since, known, absent }
    }

    /// True if an ask may still arrive at this node, as far as can be told.
    fn is_doubtful(&self, node: usize) -> bool {
        self.known.as_ref().is_some_and(|known| known.doubtful.has(node))
    }

    fn late_at(&self, node: usize) -> Option<LateAnswer> {
        self.known.as_ref().and_then(|known| known.late_at(node))
    }

    fn bury(&self, doubtful: bool) -> Duration {
        if doubtful { self.how.bury.max(BURY_FOR) } else { self.how.bury }
    }

    /// The release at one node.
    fn call(&self, index: usize) -> NodeCall<ReleaseOutcome> {
        let (inner, target) = (Arc::clone(self.inner), Arc::clone(&self.target));
        let (late, doubtful) = (self.late_at(index), self.is_doubtful(index));
        let (how, answered) = (self.how, self.bury(doubtful));
        let unanswered = self.bury(true);
        Box::pin(async move {
            let bury = match late {
                // The ask first, then the release: so nothing has to be remembered.
                Some(late) => {
                    if late.await {
                        answered
                    } else {
                        unanswered
                    }
                }
                None => answered,
            };
            inner.nodes[index].release(&target, ReleaseOptions { bury, ..how }).await
        })
    }

    /// The release as it is repeated at a node that has not heard it.
    fn unheard(&self, index: usize) -> PendingRelease {
        let doubtful = self.is_doubtful(index) || self.late_at(index).is_some();
        let lease = self.known.as_ref().map(|known| known.lease);
        let lease = lease.unwrap_or(self.inner.options.max_ttl).max(self.how.keep);
        PendingRelease {
            target: Arc::clone(&self.target),
            bury: self.bury(doubtful),
            keep_until: self.since + self.how.keep,
            over_at: self.since + lease,
        }
    }

    /// The release has ended, but for these calls.
    fn see_through(&self, late: Vec<(usize, NodeCall<ReleaseOutcome>)>) {
        let claim = match &*self.target {
            Target::Claim(claim) => Some(claim),
            _ => None,
        };
        if let Some(claim) = claim {
            self.inner.claims.take(claim);
        }
        let mut known = ClaimState::new(Duration::ZERO);
        for (index, call) in late {
            let (call, late) =
                self.inner.late(index, claim.cloned(), Some(self.unheard(index)), call);
            known.late.push((index, call));
            // It goes out when the ask before it was answered: a task has to wait for that.
            let waits = self.late_at(index).is_some_and(|ask| ask.peek().is_none());
            if waits { self.inner.late_calls.take(late) } else { self.inner.late_calls.park(late) }
        }
        if let Some(claim) = claim {
            self.inner.claims.put(claim.clone(), known);
        }
    }
}
