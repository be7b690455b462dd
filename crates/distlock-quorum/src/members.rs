//! Who votes: founding a quorum, looking at nodes that were reached anew, and what becomes of those
//! that lost their memory.
//!
//! A node that forgot its leases could grant again what a client holds, and one that forgot its
//! counters could mint a fence again. So a node is looked at whenever it was reached anew, before
//! any vote of it counts. One that restarted abstains until every lease it can have granted is
//! over, and mints above everything that a majority of the others knows of. Nodes are looked at
//! once per connection: a vote costs no round trip more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::{Backend, Fault, Health};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::mark::{self, Mark, NodeLook};
use super::node::{NodeMemory, VoteValue};
use super::round::{NodeCall, Round};
use super::vote::no_quorum;
use super::{QuorumInner, wall_micros};
use distlock_core::sync::lock;

/// How far above the fence of a mark fences may be given out before the nodes are told again: ten
/// minutes in microseconds. Only where keys have counters of their own: one that all share knows.
const AHEAD: u64 = 600_000_000;

/// How long a client that sees no mark anywhere waits for nodes that do not answer, before it takes
/// the others for nodes that have forgotten. Slow ones do not make a new quorum abstain.
const FOUNDING_PATIENCE: Duration = Duration::from_secs(10);

/// Looking at nodes takes at most four steps, each with a deadline of its own: two looks, founding,
/// and writing marks. One more so that the error of a step is reported and not that of the whole.
const LOOK_STEPS_MAX: u32 = 5;

/// What has to be done to a node before it votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeAction {
    /// Nothing: it is a member and remembers.
    Seat,
    /// It becomes a member.
    Admit,
    /// It has forgotten, or may have.
    Quarantine,
    /// It has forgotten, and abstains already.
    Abstain,
    /// It has forgotten, and whatever it had promised is over.
    Reseed,
}

impl QuorumInner {
    /// Looks at the nodes before the first vote of this client.
    pub(super) async fn join(self: &Arc<Self>) -> Result<(), Fault> {
        if self.joined.load(Ordering::Acquire) {
            return Ok(());
        }
        let inner = Arc::clone(self);
        let look = || async move { inner.look_before_voting().await };
        self.joining.run(self.options.node_timeout * LOOK_STEPS_MAX, look).await
    }

    async fn look_before_voting(&self) -> Result<(), Fault> {
        if self.joined.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut looks = self.look_at_all().await;
        self.look_again(&mut looks).await;
        self.refuse_doubles(&looks)?;
        if let Some(doubt) = self.doubt(&looks) {
            let since = *lock(&self.in_doubt_since).get_or_insert_with(Instant::now);
            if since.elapsed() < FOUNDING_PATIENCE {
                return Err(doubt);
            }
        }
        for look in looks.iter().flatten() {
            self.judge(look, false)?;
        }
        let first = looks.iter().all(|look| look.as_ref().is_ok_and(|look| look.mark.is_none()));
        if first {
            // Every node is told before any of them becomes a member, so that the client that comes
            // meanwhile does not take the rest for nodes that have forgotten.
            for founded in join_all(self.nodes.iter().map(|node| {
                let found = mark::found(&*node.backend, &self.charter);
                self.in_time(found)
            }))
            .await
            {
                founded?;
            }
        }
        let looks = &looks;
        let seating = looks.iter().enumerate().map(|(index, look)| async move {
            let look = look.as_ref().map_err(Clone::clone)?;
            self.in_time(self.carry_out(index, look, self.judge(look, first)?, looks)).await
        });
        let mut faults = Vec::new();
        for (index, seated) in join_all(seating).await.into_iter().enumerate() {
            if let Err(fault) = seated {
                faults.push((index, fault));
            }
        }
        if faults.len() >= self.size.blocking() {
            let seated = self.size.0 - faults.len();
            return Err(no_quorum("join the quorum", self.size, seated, &faults, &self.names));
        }
        self.joined.store(true, Ordering::Release);
        Ok(())
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        match timeout(self.options.node_timeout, call).await {
            Ok(done) => done,
            Err(elapsed) => Err(Fault::transient("look at the node", elapsed)),
        }
    }

    async fn look_at_all(&self) -> Vec<Result<NodeLook, Fault>> {
        join_all(self.nodes.iter().map(|node| self.in_time(mark::look(&*node.backend)))).await
    }

    /// Nodes are not looked at in the same moment: one may have been seen before a client founded
    /// the quorum and another after it. Founding is written on every node before any is marked, so
    /// a second look at those without a mark tells new ones from those that have forgotten.
    async fn look_again(&self, looks: &mut [Result<NodeLook, Fault>]) {
        if !looks.iter().flatten().any(|look| look.mark.is_some()) {
            return;
        }
        let is_new = |look: &NodeLook| look.mark.is_none() && !look.founding;
        let doubted =
            self.nodes.iter().zip(looks).filter(|(_, look)| look.as_ref().is_ok_and(is_new));
        let again = doubted.map(|(node, look)| async move {
            *look = self.in_time(mark::look(&*node.backend)).await;
        });
        join_all(again).await;
    }

    /// Why it is unknown whether this is a new quorum or one whose nodes have forgotten, if so.
    fn doubt(&self, looks: &[Result<NodeLook, Fault>]) -> Option<Fault> {
        let silent = |(index, look): (usize, &Result<NodeLook, Fault>)| {
            Some((index, look.as_ref().err()?.clone()))
        };
        let faults: Vec<_> = looks.iter().enumerate().filter_map(silent).collect();
        if faults.is_empty() || looks.iter().flatten().any(|look| look.mark.is_some()) {
            return None;
        }
        let seen = self.size.0 - faults.len();
        Some(no_quorum("found the quorum", self.size, seen, &faults, &self.names))
    }

    /// Refuses two addresses of one store, and copies of a store.
    fn refuse_doubles(&self, looks: &[Result<NodeLook, Fault>]) -> Result<(), Fault> {
        for (index, look) in looks.iter().enumerate() {
            let Ok(look) = look else { continue };
            self.refuse_replica(index, &look.health)?;
            let twin = looks[..index].iter().position(|other| {
                other.as_ref().is_ok_and(|other| other.health.identity == look.health.identity)
            });
            if let Some(twin) = twin {
                return Err(self.doubled(index, twin));
            }
        }
        Ok(())
    }

    fn refuse_replica(&self, index: usize, health: &Health) -> Result<(), Fault> {
        if !health.replica {
            return Ok(());
        }
        let why = format!("{} is a replica: list independent servers", self.names[index]);
        Err(Fault::permanent("make a quorum", why))
    }

    fn doubled(&self, one: usize, other: usize) -> Fault {
        let (one, other) = (&self.names[one], &self.names[other]);
        let why = format!("{other} and {one} are the same store: list each once");
        Fault::permanent("make a quorum", why)
    }

    /// What has to be done to a node that looks like this. `first` if no node is a member yet.
    fn judge(&self, look: &NodeLook, first: bool) -> Result<NodeAction, Fault> {
        if let Some((mark, _)) = &look.mark {
            self.charter.check(mark)?;
        }
        Ok(match &look.mark {
            Some((mark, _)) if mark.is_of(&look.health) => NodeAction::Seat,
            Some(_) if self.options.persistent => NodeAction::Admit,
            None if first || look.founding => NodeAction::Admit,
            Some(_) | None if !look.forgot => NodeAction::Quarantine,
            Some(_) | None if look.quarantine.is_some() => NodeAction::Abstain,
            Some(_) | None => NodeAction::Reseed,
        })
    }

    async fn carry_out(
        &self,
        index: usize,
        look: &NodeLook,
        act: NodeAction,
        looks: &[Result<NodeLook, Fault>],
    ) -> Result<(), Fault> {
        let node = &self.nodes[index];
        let store = &*node.backend;
        let old = look.mark.as_ref().map(|(mark, _)| mark);
        let (mark, known) = match (act, &look.mark) {
            (NodeAction::Seat, Some((old, fence))) => {
                // Asked for again, so that the mark never ends by itself.
                old.write(store, 0).await?;
                (old.clone(), fence + AHEAD)
            }
            (NodeAction::Seat | NodeAction::Admit, _) => {
                let mark = self.charter.mark(&look.health, old.map_or(0, |old| old.seed));
                self.replace(store, old, &mark).await?;
                (mark, 0)
            }
            // After the quarantine and not before: until then a client may be given a fence that
            // rests on a vote from before.
            (NodeAction::Reseed, _) => {
                let known = self.known_fences(index, looks).await;
                let seed = known.max(old.map_or(0, |old| old.seed));
                let mark = self.charter.mark(&look.health, seed);
                self.replace(store, old, &mark).await?;
                (mark, seed + AHEAD)
            }
            (NodeAction::Quarantine, _) => {
                let while_ = self.quarantine();
                mark::quarantine(store, &self.charter, &look.health, while_).await?;
                tracing::warn!(node = self.names[index], ?while_, "lost its memory and abstains");
                return self.abstain(index, look, while_);
            }
            (NodeAction::Abstain, _) => {
                return self.abstain(index, look, look.quarantine.unwrap_or_default());
            }
        };
        node.still_in(look.epoch)?;
        self.told.set(index, known, self.size);
        let (epoch, identity) = (Some(look.epoch), look.health.identity.clone());
        node.take_seat(NodeMemory { epoch, identity, mark: Some(mark), ..NodeMemory::default() });
        Ok(())
    }

    fn abstain(&self, index: usize, look: &NodeLook, left: Duration) -> Result<(), Fault> {
        let node = &self.nodes[index];
        node.still_in(look.epoch)?;
        self.told.set(index, 0, self.size);
        // A little longer than the node says, by the slower of the two clocks.
        let until = Some(Instant::now() + left + left / 50);
        let (epoch, identity) = (Some(look.epoch), look.health.identity.clone());
        node.take_seat(NodeMemory {
            epoch,
            identity,
            abstains_until: until,
            ..NodeMemory::default()
        });
        Ok(())
    }

    async fn replace(
        &self,
        store: &dyn Backend,
        old: Option<&Mark>,
        new: &Mark,
    ) -> Result<(), Fault> {
        if let Some(old) = old {
            old.erase(store).await?;
        }
        new.write(store, new.seed + 1).await
    }

    /// How long a node that has forgotten abstains: longer than any lease it can have granted.
    fn quarantine(&self) -> Duration {
        let max_ttl = self.options.max_ttl;
        max_ttl + max_ttl / 50 + Duration::from_millis(100)
    }

    /// No fence that the quorum ever gave out is larger: the largest that the other nodes know of.
    async fn known_fences(&self, except: usize, looks: &[Result<NodeLook, Fault>]) -> u64 {
        let others = looks.iter().enumerate().filter(|(index, _)| *index != except);
        let remembers = |look: &NodeLook| match &look.mark {
            Some((mark, fence)) if mark.is_of(&look.health) => Some(fence + AHEAD),
            _ => None,
        };
        let asking = others.filter_map(|(index, look)| {
            let told = remembers(look.as_ref().ok()?)?;
            Some(async move {
                if !self.capabilities.one_counter {
                    return Ok(told);
                }
                self.in_time(mark::counter(&*self.nodes[index].backend)).await
            })
        });
        let fences: Vec<_> = join_all(asking).await.into_iter().filter_map(Result::ok).collect();
        let largest = fences.iter().copied().max().unwrap_or(0);
        if fences.len() >= self.size.blocking() {
            return largest;
        }
        // Too few remember. What is left is the clock: the quarantine is longer than it can be off.
        largest.max(wall_micros() + AHEAD)
    }

    /// What the vote of a node is worth, after a look at it if it was reached anew.
    pub(super) async fn seated(self: &Arc<Self>, index: usize) -> Result<VoteValue, Fault> {
        let node = &self.nodes[index];
        if node.vote_value() == VoteValue::Unknown {
            let inner = Arc::clone(self);
            let look = || async move { inner.look_at(index).await };
            node.looking.run(self.options.node_timeout * LOOK_STEPS_MAX, look).await?;
        }
        Ok(node.vote_value())
    }

    /// Looks at a node that was reached anew.
    async fn look_at(&self, index: usize) -> Result<(), Fault> {
        let node = &self.nodes[index];
        if node.vote_value() != VoteValue::Unknown {
            return Ok(());
        }
        let look = self.in_time(mark::look(&*node.backend)).await;
        node.heard(&look);
        let look = look?;
        self.refuse_replica(index, &look.health)?;
        let same = |other: &usize| {
            *other != index && self.nodes[*other].memory().identity == look.health.identity
        };
        if let Some(twin) = (0..self.nodes.len()).find(same) {
            return Err(self.doubled(index, twin));
        }
        // Who was a member and has no mark any more has forgotten, whatever else it looks like.
        let was_member = node.memory().epoch.is_some();
        let act = match self.judge(&look, false) {
            Ok(NodeAction::Admit) if was_member && look.mark.is_none() => NodeAction::Quarantine,
            Ok(act) => act,
            Err(fault) => {
                // Another list of nodes is in use: the next call finds out before it asks anybody.
                self.joined.store(false, Ordering::Release);
                return Err(fault);
            }
        };
        let looks = match act {
            NodeAction::Reseed => self.look_at_all().await,
            _ => Vec::new(),
        };
        self.in_time(self.carry_out(index, &look, act, &looks)).await
    }

    /// Sees to it that a majority knows that fences of this size are given out, before one is.
    /// Costs nothing for most: a client that knows of one knows of the next ten minutes, and a
    /// counter that all keys of a node share knows of all.
    pub(super) async fn tell_of(self: &Arc<Self>, fence: u64) -> Result<(), Fault> {
        if self.has_told(fence) {
            return Ok(());
        }
        let silent = self.silent(self.all(), Instant::now());
        let mut round = Round::new(self.all(), silent, |index| {
            let inner = Arc::clone(self);
            let call: NodeCall<u64> = Box::pin(async move {
                let node = &inner.nodes[index];
                let Some(mark) = node.memory().mark else { return Err(unmarked()) };
                mark.raise(&*node.backend, fence).await
            });
            call
        });
        let mut faults = Vec::new();
        let told = async {
            while self.told.by_majority() < fence
                && let Some((index, raised)) = round.next().await
            {
                match raised {
                    Ok(raised) => self.told.set(index, raised + AHEAD, self.size),
                    Err(fault) => faults.push((index, fault)),
                }
            }
        };
        let _ = timeout(self.options.node_timeout, told).await;
        if self.told.by_majority() >= fence {
            return Ok(());
        }
        Err(no_quorum("tell the nodes of the fence", self.size, 0, &faults, &self.names))
    }
}

fn unmarked() -> Fault {
    Fault::transient("use the node", "it was not looked at yet")
}
