//! Fences over a quorum: a proposal, the highest vote of a majority, written back while still the
//! owner; and nodes that forget.
//!
//! Without clocks a lease may vanish at any moment, and fences must grow all the same. With clocks
//! it lasts as long as its owner relies on it, unless its node forgets; then no two may hold.

mod state;
mod step;

use super::check::World;
use state::QuorumPhase;
pub(super) use state::QuorumWorld;
pub(super) use step::QuorumStep;

/// A mistake that a client or a node could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuorumMistake {
    /// The highest vote counts at once, wherever it is stored.
    NoWriteBack,
    /// A node stores what is written back without a look at the owner.
    WriteBackByAnybody,
    /// A node that forgot votes at once.
    NoQuarantine,
    /// A node that forgot votes after its quarantine with the counter it woke up with.
    NoReseed,
    /// A node that forgot asks the others at once, and not at the end of its quarantine.
    ReseedEarly,
}

/// How many there are and what can go wrong.
#[derive(Clone, Debug)]
pub(super) struct QuorumModel {
    pub(super) nodes: usize,
    pub(super) clients: usize,
    /// Leases last as long as their owner relies on them.
    pub(super) clocks: bool,
    /// How often a node may forget.
    pub(super) restarts: u8,
    /// What clients propose: any value must be safe.
    pub(super) proposals: &'static [u8],
    pub(super) mistake: Option<QuorumMistake>,
}

impl QuorumModel {
    fn majority(&self) -> usize {
        self.nodes / 2 + 1
    }

    fn is_right(&self) -> bool {
        self.mistake.is_none()
    }

    fn client_steps(&self, who: usize, state: &QuorumWorld, steps: &mut Vec<QuorumStep>) {
        let client = &state.clients[who];
        let cells = || state.nodes.iter().enumerate().map(|(at, node)| (at, &node.cells[who]));
        match client.phase {
            QuorumPhase::Idle => {
                steps.extend(self.proposals.iter().map(|&least| QuorumStep::Start { who, least }));
                return;
            }
            QuorumPhase::Asking => {
                if cells().filter(|(_, cell)| cell.vote > 0).count() >= self.majority() {
                    steps.push(QuorumStep::Decide { who });
                }
            }
            QuorumPhase::Writing { .. } => {
                let laggards = cells().filter(|(_, cell)| cell.vote > 0 && !cell.stored);
                steps.extend(laggards.map(|(at, _)| QuorumStep::WriteBack { who, at }));
            }
            QuorumPhase::Holding { .. } => steps.push(QuorumStep::End { who }),
            QuorumPhase::Over => {}
        }
        if client.phase == QuorumPhase::Asking || client.phase == QuorumPhase::Over {
            let open = cells().filter(|(at, cell)| !cell.asked && state.nodes[*at].votes());
            steps.extend(open.map(|(at, _)| QuorumStep::Vote { who, at }));
        }
        if matches!(client.phase, QuorumPhase::Asking | QuorumPhase::Writing { .. }) {
            steps.push(QuorumStep::End { who });
        }
    }

    fn node_steps(&self, at: usize, state: &QuorumWorld, steps: &mut Vec<QuorumStep>) {
        let node = &state.nodes[at];
        if let Some(owner) = node.owner
            && (!self.clocks || state.clients[owner].phase == QuorumPhase::Over)
        {
            steps.push(QuorumStep::Vanish { at });
        }
        if state.restarts < self.restarts {
            steps.push(QuorumStep::Forget { at });
        }
        let Some(quarantine) = &node.quarantine else { return };
        let over =
            quarantine.before.iter().all(|who| state.clients[*who].phase == QuorumPhase::Over);
        if over || self.mistake == Some(QuorumMistake::ReseedEarly) {
            let others = (0..self.nodes).filter(|other| {
                *other != at && state.nodes[*other].votes() && !quarantine.asked.contains(other)
            });
            steps.extend(others.map(|from| QuorumStep::Reseed { at, from }));
        }
        let seeded = quarantine.asked.len() >= self.majority();
        if over && (seeded || self.mistake == Some(QuorumMistake::NoReseed)) {
            steps.push(QuorumStep::Rejoin { at });
        }
    }
}

impl World for QuorumModel {
    type State = QuorumWorld;
    type Step = QuorumStep;

    fn start(&self) -> QuorumWorld {
        QuorumWorld::new(self)
    }

    fn steps(&self, state: &QuorumWorld, steps: &mut Vec<QuorumStep>) {
        (0..self.clients).for_each(|who| self.client_steps(who, state, steps));
        (0..self.nodes).for_each(|at| self.node_steps(at, state, steps));
    }

    fn after(&self, last: &QuorumWorld, step: QuorumStep) -> Option<QuorumWorld> {
        let mut state = last.clone();
        match step {
            QuorumStep::Start { who, least } => state.start(who, least),
            QuorumStep::Vote { who, at } => state.vote(who, at),
            QuorumStep::Decide { who } => state.decide(who, self),
            QuorumStep::WriteBack { who, at } => state.write_back(who, at, self),
            QuorumStep::End { who } => state.clients[who].phase = QuorumPhase::Over,
            QuorumStep::Vanish { at } => state.nodes[at].vanish(),
            QuorumStep::Forget { at } => state.forget(at, self),
            QuorumStep::Reseed { at, from } => state.reseed(at, from),
            QuorumStep::Rejoin { at } => state.nodes[at].rejoin(),
        }
        if self.restarts == 0 && self.is_right() {
            // Nodes that know nothing of each other may change places; where there is a story to
            // tell they keep their numbers.
            state.nodes.sort_unstable_by(state::ModelNode::order);
        }
        Some(state)
    }

    fn broken(&self, state: &QuorumWorld) -> Option<&'static str> {
        let holders = state.clients.iter().filter(|client| client.holds()).count();
        if self.clocks && holders > 1 {
            return Some("two clients hold at once");
        }
        state.broken
    }
}
