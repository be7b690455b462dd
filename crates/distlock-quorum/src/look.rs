//! Looking: what most nodes say of a key, and how the nodes are.

use std::sync::Arc;

use distlock_core::{Fault, Health, Key, NodeHealth, NodeState, Snapshot};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::QuorumInner;
use super::acquire::unanswered;
use super::node::{QuorumNode, VoteValue};
use super::vote::{FaultsByNode, no_quorum};

impl QuorumInner {
    async fn ask_all<T>(
        &self,
        calls: impl Iterator<Item = distlock_core::Pending<'_, T>>,
    ) -> (Vec<T>, FaultsByNode) {
        let patience = self.options.node_timeout;
        let (mut answers, mut faults) = (Vec::new(), FaultsByNode::new());
        let all = join_all(calls.map(|call| timeout(patience, call))).await;
        for (index, answer) in all.into_iter().enumerate() {
            match answer.unwrap_or_else(|_| Err(unanswered(patience))) {
                Ok(answer) => answers.push(answer),
                Err(fault) => faults.push((index, fault)),
            }
        }
        #[cfg(feature = "metrics")]
        metrics::gauge!("distlock_quorum_nodes_up").set(answers.len() as f64);
        (answers, faults)
    }

    /// The key as most nodes see it.
    pub(super) async fn inspect(&self, key: &Key) -> Result<Snapshot, Fault> {
        let calls = self.nodes.iter().map(|node| node.backend.inspect(key));
        let (snapshots, faults) = self.ask_all(calls).await;
        if snapshots.len() < self.size.majority() {
            let answered = snapshots.len();
            return Err(no_quorum("inspect", self.size, answered, &faults, &self.names));
        }
        Ok(seen_by_most(key, &snapshots))
    }

    /// The nodes as one store: as good as the worst of them.
    pub(super) async fn probe(self: &Arc<Self>) -> Result<Health, Fault> {
        let calls = self.nodes.iter().map(|node| node.backend.probe());
        let (nodes, faults) = self.ask_all(calls).await;
        if nodes.len() < self.size.majority() {
            return Err(no_quorum("probe", self.size, nodes.len(), &faults, &self.names));
        }
        let identity = format!("quorum:{}", self.charter.digest());
        let mut health = Health::new(identity.clone(), identity);
        health.nodes = self.states(&faults);
        health.persistent = nodes.iter().all(|node| node.persistent);
        health.warnings = nodes.into_iter().flat_map(|node| node.warnings).collect();
        for (index, fault) in faults {
            health.warnings.push(format!("{} does not answer: {fault}", self.names[index]));
        }
        if self.size.0.is_multiple_of(2) {
            health.warnings.push(EVEN.to_owned());
        }
        health.warnings.sort();
        health.warnings.dedup();
        Ok(health)
    }

    /// How each node is, by who did not answer and by what is known of their memory.
    fn states(&self, faults: &FaultsByNode) -> Vec<NodeHealth> {
        let state = |at: usize, node: &QuorumNode| match node.vote_value() {
            _ if faults.iter().any(|(silent, _)| *silent == at) => NodeState::Down,
            VoteValue::Abstains { left, .. } => NodeState::Quarantined(left),
            VoteValue::Counts { .. } | VoteValue::Unknown => NodeState::Up,
        };
        let nodes = self.names.iter().zip(&self.nodes).enumerate();
        nodes.map(|(at, (name, node))| NodeHealth::new(name, state(at, node))).collect()
    }
}

/// What an operator of an even number of nodes should know.
pub(super) const EVEN: &str = "the quorum has an even number of nodes, which survives no more \
                               failures than one node less: list an odd number";

/// Free if most nodes say so; otherwise the view of the node that sees most, among those that most
/// agree with, and has seen it for longest: one that was late knows of it since then only.
fn seen_by_most(key: &Key, snapshots: &[Snapshot]) -> Snapshot {
    let free = snapshots.iter().filter(|seen| seen.is_free()).count();
    if free * 2 > snapshots.len() {
        return Snapshot::free(key.clone());
    }
    let owners = |seen: &Snapshot| {
        seen.holders.iter().map(|holder| holder.owner.clone()).collect::<Vec<_>>()
    };
    let agreeing =
        |one: &Snapshot| snapshots.iter().filter(|other| owners(other) == owners(one)).count();
    let first =
        |seen: &Snapshot| seen.holders.first().map(|holder| (holder.fence, holder.held_for));
    let most =
        snapshots.iter().max_by_key(|seen| (seen.holders_total, agreeing(seen), first(seen)));
    most.cloned().unwrap_or_else(|| Snapshot::free(key.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock_core::{Holder, Label};

    use super::*;

    fn held_for(seconds: u64) -> Snapshot {
        let holder = Holder {
            owner: Label::new("owner", "me").unwrap(),
            reason: None,
            fence: 7,
            weight: 1,
            capacity: Some(1),
            exclusive: true,
            group: None,
            held_for: Duration::from_secs(seconds),
            expires_in: Some(Duration::from_secs(60 - seconds)),
        };
        let free = Snapshot::free(Key::new("k").unwrap());
        Snapshot { holders: vec![holder], holders_total: 1, ..free }
    }

    #[test]
    fn a_node_that_was_late_does_not_say_how_long_a_hold_lasts() {
        for views in [[10, 10, 0], [0, 10, 10]] {
            let seen = seen_by_most(&Key::new("k").unwrap(), &views.map(held_for));
            assert_eq!(seen, held_for(10));
        }
    }
}
