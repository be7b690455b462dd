//! Asking all nodes at once, and agreeing on a fence.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::{Answer, Ask, Claim, FENCE_MAX, Fault, Renewal, Standing};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::claims::{Known, Late};
use super::round::{Call, Round};
use super::sweeper::{LATE_MAX, LateCall};
use super::vote::{Fences, Votes, no_quorum};
use super::{BURY, Inner, wall_micros};

impl Inner {
    /// Asks once. The answer comes as soon as no further node can change it.
    pub(super) async fn acquire(self: &Arc<Self>, ask: &Ask) -> Result<Answer, Fault> {
        if let Some(what) = self.capabilities.missing_for(ask) {
            return Err(Fault::unsupported(what));
        }
        self.check_ttl(ask.ttl)?;
        self.join().await?;
        let id = ask.claim.id;
        // Taken out meanwhile: if this call is dropped, nobody relies on what was known before.
        let before = self.claims.take(&id);
        let asked = Arc::new(Ask { fence_floor: Some(self.floor(ask)), ..ask.clone() });
        let mut round = Round::new((0..self.size.0).map(|index| {
            let late = before.as_ref().and_then(|known| known.late_at(index));
            (index, self.vote(index, &asked, late))
        }));
        let deadline = Instant::now() + self.patience(ask.ttl);
        let mut votes = Votes::new(self.size);
        let hearing = async {
            while !votes.is_decided()
                && let Some((index, answer)) = round.next().await
            {
                votes.count(index, answer);
            }
        };
        let in_time = timeout_at(deadline, hearing).await.is_ok();
        while let Some((index, answer)) = round.ready() {
            votes.count(index, answer);
        }
        let mut known = Known::new(ask.ttl + BURY);
        known.doubtful = before.map_or(0, |before| before.doubtful);
        for (index, fault) in &votes.faults {
            known.doubtful |=
                u64::from(fault.kind() != distlock_core::FaultKind::Unsupported) << index;
        }
        let agreed = if votes.is_granted() {
            known.ask = Some(Arc::clone(&asked));
            Some(self.agree(&asked.claim, asked.ttl, &mut votes.granted, deadline).await)
        } else {
            None
        };
        let late = round.into_late();
        if !in_time {
            for (index, _) in &late {
                votes.faults.push((*index, unanswered(self.patience(ask.ttl))));
            }
        }
        self.hand_over(id, &mut known, late);
        self.claims.put(id, known);
        match agreed {
            Some(Ok(fence)) => Ok(Answer::Granted { fence }),
            Some(Err(fault)) => Err(fault),
            None => votes.refusal(&self.names),
        }
    }

    /// The vote of one node.
    fn vote(self: &Arc<Self>, index: usize, ask: &Arc<Ask>, late: Option<Late>) -> Call<Answer> {
        let (inner, ask) = (Arc::clone(self), Arc::clone(ask));
        Box::pin(async move {
            if let Some(late) = late {
                late.await;
            }
            let (epoch, seed) = inner.seated(index).await?.counted()?;
            let node = &inner.nodes[index];
            let answer = if ask.fence_floor.is_some_and(|floor| floor <= seed) {
                let raised = Ask { fence_floor: Some(seed + 1), ..(*ask).clone() };
                node.backend.acquire(&raised).await?
            } else {
                node.backend.acquire(&ask).await?
            };
            node.still_in(epoch)?;
            Ok(answer)
        })
    }

    /// The smallest fence worth minting. Any number is safe; one that is larger than all that the
    /// nodes have seen makes them agree at once.
    fn floor(&self, ask: &Ask) -> u64 {
        let seen = self.seen.load(Ordering::Relaxed) + 1;
        seen.max(wall_micros()).max(ask.fence_floor.unwrap_or(0)).min(FENCE_MAX / 2)
    }

    /// Makes the largest of these fences the fence of the whole: those that have a smaller one are
    /// told of it while they still hold the claim. Whoever comes later asks a majority, too, and so
    /// at least one node that has seen it.
    pub(super) async fn agree(
        self: &Arc<Self>,
        claim: &Claim,
        span: Duration,
        fences: &mut Fences,
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
        fences: &mut Fences,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let fence = fences.largest();
        let mut renewal = Renewal::hold(claim.clone(), span);
        renewal.fence_floor = Some(fence);
        let batch = Arc::new([renewal]);
        let laggards = fences.laggards();
        fences.0.retain(|(_, other)| *other == fence);
        let mut round = Round::new(laggards.into_iter().map(|index| {
            let (inner, batch) = (Arc::clone(self), Arc::clone(&batch));
            let call: Call<u64> = Box::pin(async move {
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
            (index, call)
        }));
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

    /// Sees to it that calls which nobody waits for any more come to their end.
    pub(super) fn hand_over<T: Send + 'static>(
        self: &Arc<Self>,
        id: distlock_core::ClaimId,
        known: &mut Known,
        late: Vec<(usize, Call<T>)>,
    ) {
        for (node, call) in late {
            let call = self.late(node, Some(id), call);
            known.late.push((node, call));
        }
    }

    /// Lets the sweeper see a call through.
    pub(super) fn late<T: Send + 'static>(
        self: &Arc<Self>,
        node: usize,
        claim: Option<distlock_core::ClaimId>,
        call: Call<T>,
    ) -> Late {
        let ended = async move { matches!(timeout(LATE_MAX, call).await, Ok(Ok(_))) };
        let ended: std::pin::Pin<Box<dyn Future<Output = bool> + Send>> = Box::pin(ended);
        let call = ended.shared();
        let quorum = Arc::downgrade(self);
        let late = LateCall { call: call.clone(), claim, node, quorum, answered: false };
        self.sweeper.take(late);
        call
    }
}

/// A node that did not answer in time.
pub(super) fn unanswered(patience: Duration) -> Fault {
    Fault::transient("hear from the node", format!("no answer within {patience:?}"))
}
