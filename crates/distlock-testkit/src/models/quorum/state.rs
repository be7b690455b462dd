//! Nodes that vote, clients that count, and the real law at every node.

use std::cmp::Ordering;

use super::{QuorumMistake, QuorumModel};
use crate::models::node::Lawful;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QuorumPhase {
    Idle,
    Asking,
    Writing { fence: u8 },
    Holding { fence: u8 },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuorumClient {
    pub(super) phase: QuorumPhase,
    least: u8,
    /// The highest fence that was given out before it started.
    before: u8,
}

impl QuorumClient {
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, QuorumPhase::Holding { .. })
    }
}

/// What a client knows of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeView {
    pub(super) asked: bool,
    /// The fence it was granted there; 0 if it was not.
    pub(super) vote: u8,
    /// The fence it took is stored there.
    pub(super) stored: bool,
}

/// What a node does that has forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Quarantine {
    /// Those who still rely on a vote that it no longer knows of. Time shows when they are through;
    /// the node itself only waits for as long as that can take.
    pub(super) before: Vec<usize>,
    pub(super) asked: Vec<usize>,
    highest: u8,
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct ModelNode {
    pub(super) owner: Option<usize>,
    counter: u8,
    pub(super) quarantine: Option<Quarantine>,
    pub(super) cells: Vec<NodeView>,
    /// The real law; not where something is wrong on purpose.
    law: Option<Lawful>,
}

impl ModelNode {
    pub(super) fn votes(&self) -> bool {
        self.quarantine.is_none()
    }

    pub(super) fn order(&self, other: &Self) -> Ordering {
        let key = |node: &Self| (node.owner, node.counter);
        key(self).cmp(&key(other)).then_with(|| self.cells.cmp(&other.cells))
    }

    pub(super) fn vanish(&mut self) {
        self.owner = None;
        self.law.iter_mut().for_each(Lawful::expire);
    }

    pub(super) fn rejoin(&mut self) {
        let Some(quarantine) = self.quarantine.take() else { return };
        self.counter = quarantine.highest;
        self.law.iter_mut().for_each(|law| law.restart(quarantine.highest));
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct QuorumWorld {
    pub(super) clients: Vec<QuorumClient>,
    pub(super) nodes: Vec<ModelNode>,
    pub(super) restarts: u8,
    /// The fences given out.
    given: Vec<u8>,
    pub(super) broken: Option<&'static str>,
}

impl QuorumWorld {
    pub(super) fn new(world: &QuorumModel) -> Self {
        let client = QuorumClient { phase: QuorumPhase::Idle, least: 0, before: 0 };
        let node = ModelNode {
            owner: None,
            counter: 0,
            quarantine: None,
            cells: vec![NodeView::default(); world.clients],
            law: world.is_right().then(Lawful::new),
        };
        Self {
            clients: vec![client; world.clients],
            nodes: vec![node; world.nodes],
            restarts: 0,
            given: Vec::new(),
            broken: None,
        }
    }

    pub(super) fn start(&mut self, who: usize, least: u8) {
        let before = self.given.iter().copied().max().unwrap_or_default();
        self.clients[who] = QuorumClient { phase: QuorumPhase::Asking, least, before };
    }

    pub(super) fn vote(&mut self, who: usize, at: usize) {
        let least = self.clients[who].least;
        let node = &mut self.nodes[at];
        node.cells[who].asked = true;
        let vote = node.owner.is_none().then(|| {
            node.owner = Some(who);
            node.counter = (node.counter + 1).max(least);
            node.counter
        });
        node.cells[who].vote = vote.unwrap_or_default();
        if node.law.as_mut().is_some_and(|law| law.acquire(who, least) != vote) {
            self.differs();
        }
    }

    pub(super) fn decide(&mut self, who: usize, world: &QuorumModel) {
        let fence = self.nodes.iter().map(|node| node.cells[who].vote).max().unwrap_or_default();
        for node in &mut self.nodes {
            node.cells[who].stored = node.cells[who].vote == fence;
        }
        self.clients[who].phase = QuorumPhase::Writing { fence };
        self.count(who, world);
    }

    pub(super) fn write_back(&mut self, who: usize, at: usize, world: &QuorumModel) {
        let QuorumPhase::Writing { fence } = self.clients[who].phase else { return };
        let node = &mut self.nodes[at];
        let owns = node.owner == Some(who) && node.votes();
        let stores =
            owns || (world.mistake == Some(QuorumMistake::WriteBackByAnybody) && node.votes());
        if stores {
            node.counter = node.counter.max(fence);
            node.cells[who].stored = true;
        }
        let differs = node.votes()
            && node.law.as_mut().is_some_and(|law| {
                law.write_back(who, fence) != stores || law.counter() != node.counter
            });
        if differs {
            self.differs();
        }
        self.count(who, world);
    }

    /// The grant counts once its fence is stored by a majority.
    fn count(&mut self, who: usize, world: &QuorumModel) {
        let QuorumPhase::Writing { fence } = self.clients[who].phase else { return };
        let stored = self.nodes.iter().filter(|node| node.cells[who].stored).count();
        if stored < world.majority() && world.mistake != Some(QuorumMistake::NoWriteBack) {
            return;
        }
        self.clients[who].phase = QuorumPhase::Holding { fence };
        if self.given.contains(&fence) {
            self.broken = Some("two grants have the same fence");
        } else if fence <= self.clients[who].before {
            self.broken = Some("a later grant has a smaller fence");
        }
        self.given.push(fence);
        self.given.sort_unstable();
    }

    pub(super) fn forget(&mut self, at: usize, world: &QuorumModel) {
        self.restarts += 1;
        let over = |who: &usize| self.clients[*who].phase == QuorumPhase::Over;
        let relies = |who: &usize| self.nodes[at].cells[*who].vote > 0 && !over(who);
        let before = (0..self.clients.len()).filter(relies).collect();
        let node = &mut self.nodes[at];
        (node.owner, node.counter) = (None, 0);
        node.law.iter_mut().for_each(|law| law.restart(0));
        if world.mistake != Some(QuorumMistake::NoQuarantine) {
            node.quarantine = Some(Quarantine { before, ..Quarantine::default() });
        }
    }

    pub(super) fn reseed(&mut self, at: usize, from: usize) {
        let counter = self.nodes[from].counter;
        if let Some(quarantine) = &mut self.nodes[at].quarantine {
            quarantine.asked.push(from);
            quarantine.asked.sort_unstable();
            quarantine.highest = quarantine.highest.max(counter);
        }
    }

    /// True if a client holds under a fence that not all its nodes had voted for.
    pub(in crate::models) fn is_written_back(&self) -> bool {
        (0..self.clients.len()).filter(|who| self.clients[*who].holds()).any(|who| {
            let mut votes = self.nodes.iter().map(|node| node.cells[who]).filter(|c| c.stored);
            let first = votes.next();
            votes.any(|cell| first.is_some_and(|first| first.vote != cell.vote))
        })
    }

    /// True if a client holds by the vote of a node that had forgotten.
    pub(in crate::models) fn is_rejoined(&self) -> bool {
        let holds = self.clients.iter().any(QuorumClient::holds);
        holds && self.restarts > 0 && self.nodes.iter().all(ModelNode::votes)
    }

    fn differs(&mut self) {
        self.broken = Some("the law of the model differs from the real one");
    }
}
