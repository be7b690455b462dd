//! Giving up on all nodes, also on those that failed or answered late.

use std::sync::Arc;

use distlock_core::{Fault, How, Outcome, Target};
use tokio::time::timeout;

use super::acquire::unanswered;
use super::claims::Known;
use super::round::{Call, Round};
use super::sweeper::LATE_MAX;
use super::vote::{Releases, no_quorum};
use super::{BURY, Inner, ReleaseReport};

impl Inner {
    /// Releases on all nodes, and answers when a majority has. The rest goes on by itself.
    pub(super) async fn release(
        self: &Arc<Self>,
        target: &Target,
        how: How,
    ) -> Result<Outcome, Fault> {
        let mut releases = Releases::default();
        let mut round = self.release_round(target, how);
        let patience = self.options.node_timeout;
        let hearing = async {
            while !releases.is_decided(self.size)
                && let Some((index, outcome)) = round.next().await
            {
                releases.count(index, outcome);
            }
        };
        let in_time = timeout(patience, hearing).await.is_ok();
        while let Some((index, outcome)) = round.ready() {
            releases.count(index, outcome);
        }
        let late = round.into_late();
        if !in_time {
            let silent = late.iter().map(|(index, _)| (*index, unanswered(patience)));
            releases.faults.extend(silent);
        }
        self.see_through(target, late);
        releases.outcome(self.size).ok_or_else(|| {
            let answered = releases.answered();
            no_quorum("release", self.size, answered, &releases.faults, &self.names)
        })
    }

    /// Releases on all nodes and waits for each as long as a release may take.
    pub(super) async fn release_everywhere(self: &Arc<Self>, target: &Target) -> ReleaseReport {
        let mut releases = Releases::default();
        let mut round = self.release_round(target, How::default());
        let hearing = async {
            while let Some((index, outcome)) = round.next().await {
                releases.count(index, outcome);
            }
        };
        let in_time = timeout(LATE_MAX, hearing).await.is_ok();
        self.see_through(target, Vec::new());
        if !in_time {
            let late = round.into_late();
            releases.faults.extend(late.iter().map(|(index, _)| (*index, unanswered(LATE_MAX))));
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

    fn release_round(self: &Arc<Self>, target: &Target, how: How) -> Round<Outcome> {
        let known = match target {
            Target::Claim(claim) => self.claims.releasing(&claim.id),
            _ => None,
        };
        let target = Arc::new(target.clone());
        Round::new((0..self.size.0).map(|index| {
            let (inner, target) = (Arc::clone(self), Arc::clone(&target));
            let late = known.as_ref().and_then(|known| known.late_at(index));
            let mut doubtful = known.as_ref().is_some_and(|known| known.is_doubtful(index));
            let call: Call<Outcome> = Box::pin(async move {
                if let Some(late) = late {
                    // The ask first, then the release: so nothing has to be remembered.
                    doubtful |= !late.await;
                }
                let bury = if doubtful { how.bury.max(BURY) } else { how.bury };
                inner.nodes[index].backend.release(&target, How { bury, ..how }).await
            });
            (index, call)
        }))
    }

    /// The release has ended, but for these calls.
    fn see_through(self: &Arc<Self>, target: &Target, late: Vec<(usize, Call<Outcome>)>) {
        match target {
            Target::Claim(claim) => {
                self.claims.take(&claim.id);
                if late.is_empty() {
                    return;
                }
                let mut known = Known::new(BURY);
                self.hand_over(claim.id, &mut known, late);
                self.claims.put(claim.id, known);
            }
            _ => late.into_iter().for_each(|(index, call)| drop(self.late(index, None, call))),
        }
    }
}
