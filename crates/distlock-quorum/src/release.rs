//! Giving up on all nodes, also on those that failed or answered late.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Fault, How, Outcome, Target};
use tokio::time::{Instant, timeout, timeout_at};

use super::acquire::unanswered;
use super::claims::{Known, Late};
use super::round::{Call, Round};
use super::set::Set;
use super::sweeper::LATE_MAX;
use super::unheard::Release;
use super::vote::{Releases, no_quorum};
use super::{BURY, Inner, ReleaseReport};

impl Inner {
    /// Releases on all nodes, and answers when a majority has. The rest goes on by itself.
    pub(super) async fn release(
        self: &Arc<Self>,
        target: &Target,
        how: How,
    ) -> Result<Outcome, Fault> {
        let leaving = Leaving::new(self, target, how);
        let (mut releases, now) = (Releases::default(), Instant::now());
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
        let failed: Set = releases.faults.iter().map(|(index, _)| *index).collect();
        if !releases.is_decided(self.size) {
            let silent = round.unanswered().iter().map(|index| (index, unanswered(patience)));
            releases.faults.extend(silent);
        }
        let left_alone = round.unasked();
        let late = round.into_late();
        for (index, _) in &late {
            self.nodes[*index].voice.waits(now);
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
        let leaving = Leaving::new(self, target, How::default());
        let mut releases = Releases::default();
        let mut round = Round::new(self.all(), Set::NONE, |index| leaving.call(index));
        let hearing = async {
            while let Some((index, outcome)) = round.next().await {
                releases.count(index, outcome);
            }
        };
        let in_time = timeout(LATE_MAX, hearing).await.is_ok();
        leaving.see_through(Vec::new());
        if !in_time {
            let late = round.into_late();
            releases.faults.extend(late.iter().map(|(index, _)| (*index, unanswered(LATE_MAX))));
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
struct Leaving<'a> {
    inner: &'a Arc<Inner>,
    target: Arc<Target>,
    how: How,
    since: Instant,
    known: Option<Known>,
    /// The nodes that never heard of the claim.
    absent: Set,
}

impl<'a> Leaving<'a> {
    fn new(inner: &'a Arc<Inner>, target: &Target, how: How) -> Self {
        let known = match target {
            Target::Claim(claim) => inner.claims.releasing(&claim.id),
            // Other attempts may have the claim: what is known of it stays known.
            Target::Attempt { claim, .. } => inner.claims.change(&claim.id, |known| known.clone()),
            _ => None,
        };
        let absent = known.as_ref().map_or(Set::NONE, |k| k.unasked.without(k.doubtful));
        let (target, since) = (Arc::new(target.clone()), Instant::now());
        Self { inner, target, how, since, known, absent }
    }

    /// True if an ask may still arrive at this node, as far as can be told.
    fn is_doubtful(&self, node: usize) -> bool {
        self.known.as_ref().is_some_and(|known| known.doubtful.has(node))
    }

    fn late_at(&self, node: usize) -> Option<Late> {
        self.known.as_ref().and_then(|known| known.late_at(node))
    }

    fn bury(&self, doubtful: bool) -> Duration {
        if doubtful { self.how.bury.max(BURY) } else { self.how.bury }
    }

    /// The release at one node.
    fn call(&self, index: usize) -> Call<Outcome> {
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
            inner.nodes[index].release(&target, How { bury, ..how }).await
        })
    }

    /// The release as it is repeated at a node that has not heard it.
    fn unheard(&self, index: usize) -> Release {
        let doubtful = self.is_doubtful(index) || self.late_at(index).is_some();
        let lease = self.known.as_ref().map(|known| known.lease);
        let lease = lease.unwrap_or(self.inner.options.max_ttl).max(self.how.keep);
        Release {
            target: Arc::clone(&self.target),
            bury: self.bury(doubtful),
            keep_until: self.since + self.how.keep,
            over_at: self.since + lease,
        }
    }

    /// The release has ended, but for these calls.
    fn see_through(&self, late: Vec<(usize, Call<Outcome>)>) {
        let claim = match &*self.target {
            Target::Claim(claim) => Some(claim.id),
            _ => None,
        };
        if let Some(id) = &claim {
            self.inner.claims.take(id);
        }
        let mut known = Known::new(Duration::ZERO);
        for (index, call) in late {
            let (call, late) = self.inner.late(index, claim, Some(self.unheard(index)), call);
            known.late.push((index, call));
            // It goes out when the ask before it was answered: somebody has to wait for that.
            let waits = self.late_at(index).is_some_and(|ask| ask.peek().is_none());
            if waits { self.inner.sweeper.take(late) } else { self.inner.sweeper.park(late) }
        }
        if let Some(id) = claim {
            self.inner.claims.put(id, known);
        }
    }
}
