//! Asking all nodes at once, and agreeing on a fence.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::{Answer, Ask, Claim, FENCE_MAX, Fault, FaultKind, Renewal, Standing};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::claims::{ClaimState, LateAnswer};
use super::late_calls::{LATE_CALL_MAX, LateCall, LateWork};
use super::pending_releases::PendingRelease;
use super::round::{NodeCall, Round};
use super::set::NodeSet;
use super::vote::{AcquireVotes, ClaimFences, no_quorum};
use super::{QuorumInner, wall_micros};

impl QuorumInner {
    /// Asks once. The answer comes as soon as no further node can change it.
    pub(super) async fn acquire(self: &Arc<Self>, ask: &Ask) -> Result<Answer, Fault> {
        if let Some(what) = self.capabilities.missing_for(ask) {
            return Err(Fault::unsupported(what));
        }
        self.check_ttl(ask.ttl)?;
        self.join().await?;
        let now = Instant::now();
        let before = self.claims.asking(ask.claim.clone(), ask.ttl, self.all());
        self.forget_unheard(&ask.claim);
        let asked = Arc::new(Ask { fence_floor: Some(self.floor(ask)), ..ask.clone() });
        let mut round = Round::new(self.all(), self.silent(self.all(), now), |index| {
            let late = before.as_ref().and_then(|known| known.late_at(index));
            self.vote(index, &asked, late)
        });
        let suspects = self.suspects();
        let deadline = now + self.patience(ask.ttl);
        let mut votes = AcquireVotes::new(self.size);
        let hearing = async {
            while !votes.is_decided() {
                // A split vote holds up the other contenders, who have the rest of the votes. It is
                // given up without the nodes that may not answer at all.
                let next = match votes.is_contended() {
                    true => round.next_soon(suspects).await,
                    false => round.next().await,
                };
                let Some((index, answer)) = next else { break };
                votes.count(index, answer);
            }
        };
        let in_time = timeout_at(deadline, hearing).await.is_ok();
        while let Some((index, answer)) = round.ready() {
            votes.count(index, answer);
        }
        let mut known = self.after(ask, before.as_ref(), &votes, round.unasked());
        votes.unasked = known.unasked.len();
        let agreed = if votes.is_granted() {
            known.ask = Some(Arc::clone(&asked));
            Some(self.agree(&asked.claim, asked.ttl, &mut votes.granted, deadline).await)
        } else {
            None
        };
        let late = round.into_late();
        for (index, _) in &late {
            self.nodes[*index].liveness.waits(now);
            if !in_time {
                votes.faults.push((*index, unanswered(self.patience(ask.ttl))));
            }
        }
        self.hand_over(&ask.claim, &mut known, late);
        self.claims.asked(ask.claim.clone(), known);
        match agreed {
            Some(Ok(fence)) => Ok(Answer::Granted { fence }),
            Some(Err(fault)) => Err(fault),
            None => votes.refusal(&self.names),
        }
    }

    /// What is known of a claim after its nodes were asked, but for calls that are late.
    fn after(
        &self,
        ask: &Ask,
        before: Option<&ClaimState>,
        votes: &AcquireVotes,
        unasked: NodeSet,
    ) -> ClaimState {
        let mut known = ClaimState::new(ask.ttl);
        known.unasked = unasked;
        if let Some(before) = before {
            // No call has waited for what is under way at a node that was left alone.
            known.unasked = NodeSet::NONE;
            known.doubtful = before.doubtful;
            let still = before.late.iter().filter(|(node, _)| unasked.has(*node));
            known.late.extend(still.cloned());
        }
        for (index, fault) in &votes.faults {
            if fault.kind() != FaultKind::Unsupported {
                known.doubtful.add(*index);
            }
        }
        known
    }

    /// The vote of one node.
    fn vote(
        self: &Arc<Self>,
        index: usize,
        ask: &Arc<Ask>,
        late: Option<LateAnswer>,
    ) -> NodeCall<Answer> {
        let (inner, ask) = (Arc::clone(self), Arc::clone(ask));
        Box::pin(async move {
            if let Some(late) = late {
                late.await;
            }
            let (epoch, seed) = inner.seated(index).await?.counted()?;
            let node = &inner.nodes[index];
            let fence_floor = ask.fence_floor.max(Some(seed + 1));
            let ask = Ask { fence_floor, witness: node.witness(), ..(*ask).clone() };
            let answer = node.answered(node.backend.acquire(&ask).await);
            node.still_in(epoch).and(answer)
        })
    }

    /// The smallest fence worth minting. Any number is safe; one that is larger than all that the
    /// nodes have seen makes them agree at once.
    fn floor(&self, ask: &Ask) -> u64 {
        let seen = self.seen.load(Ordering::Relaxed) + 1;
        seen.max(wall_micros()).max(ask.fence_floor.unwrap_or(0)).min(FENCE_MAX / 2)
    }

    /// Makes the largest of these fences the fence of the whole: those that have a smaller one are
    /// told of it while they still hold the claim. A client that comes later asks a majority, too,
    /// and so at least one node that has seen it.
    pub(super) async fn agree(
        self: &Arc<Self>,
        claim: &Claim,
        span: Duration,
        fences: &mut ClaimFences,
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let fence = fences.largest();
        self.seen.fetch_max(fence, Ordering::Relaxed);
        if !fences.agree(self.size) {
            self.write_back(claim, span, fences, deadline).await?;
        }
        self.tell_of(fence).await?;
        Ok(fence)
    }

    async fn write_back(
        self: &Arc<Self>,
        claim: &Claim,
        span: Duration,
        fences: &mut ClaimFences,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let fence = fences.largest();
        let mut renewal = Renewal::hold(claim.clone(), span);
        renewal.fence_floor = Some(fence);
        let batch = Arc::new([renewal]);
        let laggards = fences.laggards();
        fences.0.retain(|(_, other)| *other == fence);
        let mut round = Round::new(laggards, NodeSet::NONE, |index| {
            let (inner, batch) = (Arc::clone(self), Arc::clone(&batch));
            let call: NodeCall<u64> = Box::pin(async move {
                let (epoch, _) = inner.seated(index).await?.counted()?;
                let node = &inner.nodes[index];
                let standing = node.backend.renew(&*batch).next().await;
                node.still_in(epoch)?;
                match standing {
                    Some((_, Ok(Standing::Held { fence }))) => Ok(fence),
                    Some((_, Err(fault))) => Err(fault),
                    _ => Err(Fault::transient("raise the fence", "the node has lost the claim")),
                }
            });
            call
        });
        let mut faults = Vec::new();
        let telling = async {
            while !fences.agree(self.size)
                && let Some((index, raised)) = round.next().await
            {
                match raised {
                    Ok(raised) => fences.0.push((index, raised.min(fence))),
                    Err(fault) => faults.push((index, fault)),
                }
            }
        };
        let _ = timeout_at(deadline, telling).await;
        if fences.agree(self.size) {
            return Ok(());
        }
        Err(no_quorum("agree on a fence", self.size, fences.0.len(), &faults, &self.names))
    }

    /// Sees to it that calls which no caller waits for any more come to their end.
    pub(super) fn hand_over<T: Send + 'static>(
        self: &Arc<Self>,
        claim: &Claim,
        known: &mut ClaimState,
        late: Vec<(usize, NodeCall<T>)>,
    ) {
        for (node, call) in late {
            let (call, late) = self.late(node, Some(claim.clone()), None, call);
            known.late.push((node, call));
            self.late_calls.park(late);
        }
    }

    /// Detaches a call from its caller: what others may wait for, and what the sweeper has
    /// to see through. A release that comes to nothing is repeated.
    pub(super) fn late<T: Send + 'static>(
        self: &Arc<Self>,
        node: usize,
        claim: Option<Claim>,
        release: Option<PendingRelease>,
        call: NodeCall<T>,
    ) -> (LateAnswer, LateWork) {
        let ended = async move { matches!(timeout(LATE_CALL_MAX, call).await, Ok(Ok(_))) };
        let ended: std::pin::Pin<Box<dyn Future<Output = bool> + Send>> = Box::pin(ended);
        let call = ended.shared();
        let quorum = Arc::downgrade(self);
        let late = LateCall { call: call.clone(), claim, node, release, quorum, answered: false };
        (call, LateWork::Late(late))
    }
}

/// A node that did not answer in time.
pub(super) fn unanswered(patience: Duration) -> Fault {
    Fault::transient("hear from the node", format!("no answer within {patience:?}"))
}
