//! Keeping claims alive on a majority, and giving them back to nodes that lost them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use distlock_core::{Answer, Ask, Claim, Fault, Renewal, Standing, Streaming};
use futures_util::future::Either;
use futures_util::stream::{self, FuturesUnordered, SelectAll};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::QuorumInner;
use super::late_calls::LATE_CALL_MAX;
use super::node::VoteValue;
use super::round::RESERVE_AFTER;
use super::set::NodeSet;
use super::vote::{Decision, RenewalVotes, abstains, no_quorum};

/// Where a claim of the batch stands.
type ClaimAnswer = (usize, Result<Standing, Fault>);

/// What is left to do for a claim after its answers have come.
type RemainingWork<'a> = Pin<Box<dyn Future<Output = Option<ClaimAnswer>> + Send + 'a>>;

/// What a node said of a claim of the batch.
struct NodeAnswer {
    node: usize,
    index: usize,
    standing: Result<Standing, Fault>,
}

/// A batch under renewal.
struct RenewalRound<'a> {
    inner: &'a Arc<QuorumInner>,
    batch: &'a [Renewal],
    claims: Vec<(RenewalVotes, Decision)>,
    nodes: SelectAll<Streaming<'a, NodeAnswer>>,
    /// The nodes that are asked only if the others do not suffice.
    reserve: NodeSet,
    rest: FuturesUnordered<RemainingWork<'a>>,
    ready: VecDeque<ClaimAnswer>,
    sent_at: Instant,
    deadline: Instant,
    listening: bool,
}

impl QuorumInner {
    /// Renews a batch on every node, and answers for each claim as soon as it is decided.
    pub(super) fn renew<'a>(
        self: &'a Arc<Self>,
        batch: &'a [Renewal],
    ) -> Streaming<'a, ClaimAnswer> {
        let span = batch.iter().map(|renewal| renewal.span).min().unwrap_or_default();
        let claims = batch.iter().map(|_| (RenewalVotes::default(), Decision::Open)).collect();
        let now = Instant::now();
        let mut renewing = RenewalRound {
            inner: self,
            batch,
            claims,
            nodes: SelectAll::new(),
            reserve: NodeSet::NONE,
            rest: FuturesUnordered::new(),
            ready: VecDeque::new(),
            sent_at: now,
            deadline: now + self.patience(span),
            listening: true,
        };
        let refused: Vec<_> = batch.iter().map(|r| self.check_ttl(r.span).err()).collect();
        if let Some(refused) = refused.iter().flatten().next() {
            // The keeper renews claims of one client with one ttl: they are refused together.
            let all = (0..batch.len()).map(|index| (index, Err(refused.clone())));
            return Box::pin(stream::iter(all.collect::<Vec<_>>()));
        }
        if !batch.is_empty() {
            renewing.reserve = self.silent(self.all(), now);
            renewing.ask(self.all().without(renewing.reserve));
        }
        Box::pin(stream::unfold(renewing, |mut renewing| async move {
            Some((renewing.next().await?, renewing))
        }))
    }

    /// What one node says of each claim.
    fn renew_at<'a>(
        self: &'a Arc<Self>,
        node: usize,
        batch: &'a [Renewal],
    ) -> Streaming<'a, NodeAnswer> {
        let seated = async move {
            self.join().await?;
            self.seated(node).await
        };
        Box::pin(seated.into_stream().flat_map(move |vote_value| {
            let (epoch, votes) = match vote_value {
                Ok(VoteValue::Counts { epoch, .. }) => (epoch, true),
                Ok(VoteValue::Abstains { epoch, .. }) => (epoch, false),
                other => {
                    let fault = other.and_then(VoteValue::counted).err().unwrap_or_else(abstains);
                    let all = (0..batch.len()).map(move |index| NodeAnswer {
                        node,
                        index,
                        standing: Err(fault.clone()),
                    });
                    return Either::Left(stream::iter(all));
                }
            };
            let backend = &self.nodes[node].backend;
            Either::Right(backend.renew(batch).map(move |(index, standing)| {
                self.nodes[node].heard(&standing);
                let standing = match standing {
                    // It has the claim only because it was given it again after it forgot.
                    Ok(Standing::Held { .. }) if !votes => Err(abstains()),
                    standing => self.nodes[node].still_in(epoch).and(standing),
                };
                NodeAnswer { node, index, standing }
            }))
        }))
    }

    /// Agrees on the fence of a claim that a majority holds.
    async fn held(
        self: &Arc<Self>,
        renewal: &Renewal,
        standings: &RenewalVotes,
    ) -> Result<Standing, Fault> {
        let mut held = standings.held.clone();
        let deadline = Instant::now() + self.patience(renewal.span);
        let fence = self.agree(&renewal.claim, renewal.span, &mut held, deadline).await?;
        Ok(Standing::Held { fence })
    }

    /// Gives a claim back to a node that lost it, while a majority still has it. It does not count
    /// for this renewal: the node may have granted another client meanwhile.
    async fn heal(self: &Arc<Self>, node: usize, claim: &Claim, ask: Ask) {
        let known = self.claims.change(claim, |known| {
            known.doubtful.add(node);
            known.unasked.remove(node);
        });
        if known.is_none() {
            return;
        }
        let store = &self.nodes[node];
        let ask = Ask { witness: store.witness(), ..ask };
        let healed = timeout(LATE_CALL_MAX, store.backend.acquire(&ask)).await;
        let healed = healed.map(|answer| store.answered(answer));
        if matches!(healed, Ok(Ok(_))) {
            self.claims.change(claim, |known| known.doubtful.remove(node));
        }
        let (node, granted) = (&self.names[node], matches!(healed, Ok(Ok(Answer::Granted { .. }))));
        tracing::debug!(node, granted, key = %claim.key, "a node had lost the claim");
    }
}

impl<'a> RenewalRound<'a> {
    fn ask(&mut self, nodes: NodeSet) {
        let ask = |node| self.inner.renew_at(node, self.batch);
        self.nodes.extend(nodes.iter().map(ask));
    }

    async fn next(&mut self) -> Option<ClaimAnswer> {
        loop {
            if let Some(stand) = self.ready.pop_front() {
                return Some(stand);
            }
            let until = self.patient_until();
            tokio::select! {
                biased;
                Some(done) = self.rest.next(), if !self.rest.is_empty() => {
                    if done.is_some() {
                        return done;
                    }
                }
                heard = timeout_at(until, self.nodes.next()), if self.listening => {
                    match heard {
                        Ok(Some(heard)) => self.hear(heard),
                        Ok(None) | Err(_) if self.needs_more() => {
                            let reserve = std::mem::take(&mut self.reserve);
                            self.ask(reserve);
                        }
                        Ok(None) | Err(_) => self.close(),
                    }
                }
                else => return None,
            }
        }
    }

    fn patient_until(&self) -> Instant {
        let reserve_at = self.sent_at + RESERVE_AFTER;
        if self.needs_more() { reserve_at.min(self.deadline) } else { self.deadline }
    }

    /// True if there are nodes left that could decide what the others could not.
    fn needs_more(&self) -> bool {
        let open = |(_, stands): &(_, Decision)| *stands == Decision::Open;
        !self.reserve.is_empty() && self.claims.iter().any(open)
    }

    fn hear(&mut self, heard: NodeAnswer) {
        let NodeAnswer { node, index, standing } = heard;
        let inner = self.inner;
        let Some((standings, stands)) = self.claims.get_mut(index) else { return };
        let gone = matches!(&standing, Ok(Standing::Gone));
        standings.count(node, standing);
        let renewal = &self.batch[index];
        match (*stands, standings.verdict(inner.size)) {
            (Decision::Open, Decision::Gone) => {
                *stands = Decision::Gone;
                self.ready.push_back((index, Ok(Standing::Gone)));
            }
            (Decision::Open, Decision::Held) => {
                *stands = Decision::Held;
                inner.claims.change(&renewal.claim, |known| known.renewed(renewal.span));
                let lost = standings.gone.clone();
                let fence = standings.held.largest();
                if standings.held.agree(inner.size) && inner.has_told(fence) {
                    self.ready.push_back((index, Ok(Standing::Held { fence })));
                } else {
                    let held = standings.held.clone();
                    let standings = RenewalVotes { held, ..RenewalVotes::default() };
                    self.rest.push(Box::pin(async move {
                        Some((index, inner.held(renewal, &standings).await))
                    }));
                }
                lost.into_iter().for_each(|node| self.heal(index, node, fence));
            }
            (Decision::Held, _) if gone => {
                let fence = standings.held.largest();
                self.heal(index, node, fence);
            }
            _ => {}
        }
    }

    fn heal(&self, index: usize, node: usize, fence: u64) {
        let (inner, renewal) = (self.inner, &self.batch[index]);
        let asked = inner.claims.change(&renewal.claim, |known| {
            known.renewed(renewal.span);
            known.ask.clone()
        });
        let Some(Some(asked)) = asked else { return };
        let (ttl, fence_floor) = (renewal.span, Some(fence));
        let weight = renewal.weight.unwrap_or(asked.weight);
        let ask = Ask { ttl, fence_floor, weight, ..(*asked).clone() };
        self.rest.push(Box::pin(async move {
            inner.heal(node, &renewal.claim, ask).await;
            None
        }));
    }

    /// No node has more to say.
    fn close(&mut self) {
        self.listening = false;
        self.nodes = SelectAll::new();
        for (index, (standings, stands)) in self.claims.iter_mut().enumerate() {
            if *stands != Decision::Open {
                continue;
            }
            let (size, names) = (self.inner.size, &self.inner.names);
            let heard = |node: &usize| {
                standings.held.0.iter().any(|(n, _)| n == node)
                    || standings.gone.contains(node)
                    || standings.faults.iter().any(|(n, _)| n == node)
            };
            let silent: Vec<_> = (0..size.0).filter(|node| !heard(node)).collect();
            for node in &silent {
                self.inner.nodes[*node].liveness.waits(self.sent_at);
            }
            let patience = self.inner.patience(self.batch[index].span);
            let unheard =
                silent.into_iter().map(|node| (node, super::acquire::unanswered(patience)));
            standings.faults.extend(unheard);
            let held = standings.held.0.len();
            let fault = no_quorum("renew", size, held, &standings.faults, names);
            self.ready.push_back((index, Err(fault)));
        }
    }
}
