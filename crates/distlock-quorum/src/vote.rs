//! What the answers of the nodes amount to, as pure arithmetic.

use distlock_core::{Answer, Busy, Fault, FaultKind, Holder, NoQuorum, ReleaseOutcome, Standing};

use super::set::NodeSet;

/// How many nodes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuorumSize(pub(super) usize);

impl QuorumSize {
    /// Any two sets of this many nodes share one.
    pub(super) fn majority(self) -> usize {
        self.0 / 2 + 1
    }

    /// So many nodes that say no leave no majority.
    pub(super) fn blocking(self) -> usize {
        self.0 - self.majority() + 1
    }
}

/// Why a node did not answer, by its number.
pub(super) type FaultsByNode = Vec<(usize, Fault)>;

/// The fault of a call that too few nodes answered.
pub(super) fn no_quorum(
    action: &'static str,
    size: QuorumSize,
    granted: usize,
    faults: &FaultsByNode,
    names: &[String],
) -> Fault {
    if let Some((_, fault)) = faults.iter().find(|(_, f)| f.kind() == FaultKind::Unsupported) {
        return fault.clone();
    }
    let hopeless = faults.iter().filter(|(_, fault)| !fault.is_transient()).count();
    let name = |node: usize| names.get(node).cloned().unwrap_or_default();
    let silent = |node: &usize| faults.iter().any(|(failed, _)| failed == node);
    let others = (0..names.len()).filter(|node| !silent(node)).map(name).collect();
    let faults = faults.iter().map(|(node, fault)| (name(*node), fault.clone())).collect();
    let source = NoQuorum { needed: size.majority(), granted, faults, others };
    if hopeless >= size.blocking() {
        Fault::permanent(action, source)
    } else {
        Fault::transient(action, source)
    }
}

/// The fences under which nodes hold one claim.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimFences(pub(super) Vec<(usize, u64)>);

impl ClaimFences {
    /// The largest: the fence of the whole.
    pub(super) fn largest(&self) -> u64 {
        self.0.iter().map(|(_, fence)| *fence).max().unwrap_or_default()
    }

    /// True if a majority has it, so that every later majority has seen it.
    pub(super) fn agree(&self, size: QuorumSize) -> bool {
        let largest = self.largest();
        self.0.iter().filter(|(_, fence)| *fence >= largest).count() >= size.majority()
    }

    /// The nodes that have to be told.
    pub(super) fn laggards(&self) -> NodeSet {
        let largest = self.largest();
        self.0.iter().filter(|(_, fence)| *fence < largest).map(|(node, _)| *node).collect()
    }
}

/// The answers to one ask.
#[derive(Debug)]
pub(super) struct AcquireVotes {
    size: QuorumSize,
    pub(super) granted: ClaimFences,
    busy: Vec<Busy>,
    dead: usize,
    conflicts: usize,
    /// How many nodes were not needed and never asked.
    pub(super) unasked: usize,
    pub(super) faults: FaultsByNode,
}

impl AcquireVotes {
    pub(super) fn new(size: QuorumSize) -> Self {
        let (granted, busy, faults) = (ClaimFences::default(), Vec::new(), Vec::new());
        Self { size, granted, busy, dead: 0, conflicts: 0, unasked: 0, faults }
    }

    pub(super) fn count(&mut self, node: usize, answer: Result<Answer, Fault>) {
        match answer {
            Ok(Answer::Granted { fence }) => self.granted.0.push((node, fence)),
            Ok(Answer::Busy(busy)) => self.busy.push(busy),
            Ok(Answer::Dead) => self.dead += 1,
            Ok(Answer::Conflict) => self.conflicts += 1,
            Ok(Answer::Quarantined(_)) => self.faults.push((node, abstains())),
            Ok(other) => {
                let why = format!("it answered {other:?}");
                self.faults.push((node, Fault::permanent("count this vote", why)));
            }
            Err(fault) => self.faults.push((node, fault)),
        }
    }

    fn refused(&self) -> usize {
        self.busy.len() + self.dead + self.conflicts
    }

    fn answered(&self) -> usize {
        self.granted.0.len() + self.refused() + self.faults.len()
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.0.len() >= self.size.majority()
    }

    /// True if the nodes that answered would be a majority, had none of them refused: the key is
    /// contended, and not out of reach.
    pub(super) fn is_contended(&self) -> bool {
        let answered = self.granted.0.len() + self.refused();
        !self.busy.is_empty() && !self.is_granted() && answered >= self.size.majority()
    }

    /// True if no further answer can change what this amounts to.
    pub(super) fn is_decided(&self) -> bool {
        let blocking = self.size.blocking();
        self.is_granted()
            || self.refused() >= blocking
            || self.faults.len() >= blocking
            || self.is_contended() && self.refused() + self.faults.len() >= blocking
            || self.answered() >= self.size.0
    }

    /// The answer of a store that did not grant.
    pub(super) fn refusal(&self, names: &[String]) -> Result<Answer, Fault> {
        let blocking = self.size.blocking();
        if self.refused() < blocking && !self.is_contended() {
            let granted = self.granted.0.len();
            return Err(no_quorum("acquire", self.size, granted, &self.faults, names));
        }
        let why = if self.dead >= blocking {
            Answer::Dead
        } else if self.conflicts >= blocking {
            Answer::Conflict
        } else {
            Answer::Busy(self.busy())
        };
        // Only if every node that was asked has refused nothing can be left of it.
        let clean = self.refused() + self.unasked == self.size.0;
        Ok(if clean { why } else { Answer::Outvoted(Box::new(why)) })
    }

    fn busy(&self) -> Busy {
        // A majority can be had when enough of those that refused are free again.
        let missing = self.size.majority().saturating_sub(self.granted.0.len()).max(1);
        let mut ends: Vec<_> = self.busy.iter().map(|busy| busy.retry_after).collect();
        ends.sort_by_key(|end| (end.is_none(), *end));
        let retry_after = ends.get(missing - 1).or(ends.last()).copied().flatten();
        Busy { ticket: None, ahead: 0, retry_after, holder: self.holder() }
    }

    /// The holder that most nodes name.
    fn holder(&self) -> Option<Holder> {
        let holders: Vec<_> = self.busy.iter().filter_map(|busy| busy.holder.as_ref()).collect();
        let named = |one: &Holder| holders.iter().filter(|other| other.owner == one.owner).count();
        holders.iter().max_by_key(|one| (named(one), one.fence)).map(|one| (*one).clone())
    }
}

/// A node that lost its memory does not vote until whatever it promised is over.
pub(super) fn abstains() -> Fault {
    Fault::transient("count this vote", "the store lost its memory and abstains for a while")
}

/// The answers to one renewal.
#[derive(Debug, Default)]
pub(super) struct RenewalVotes {
    pub(super) held: ClaimFences,
    pub(super) gone: Vec<usize>,
    pub(super) faults: FaultsByNode,
}

/// What they amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Held by a majority.
    Held,
    /// No majority can hold it.
    Gone,
    /// Too few have answered.
    Open,
}

impl RenewalVotes {
    pub(super) fn count(&mut self, node: usize, standing: Result<Standing, Fault>) {
        match standing {
            Ok(Standing::Held { fence }) => self.held.0.push((node, fence)),
            Ok(_) => self.gone.push(node),
            Err(fault) => self.faults.push((node, fault)),
        }
    }

    pub(super) fn verdict(&self, size: QuorumSize) -> Decision {
        if self.held.0.len() >= size.majority() {
            Decision::Held
        } else if self.gone.len() >= size.blocking() {
            Decision::Gone
        } else {
            Decision::Open
        }
    }
}

/// The answers to one release.
#[derive(Debug, Default)]
pub(super) struct ReleaseVotes {
    pub(super) held: usize,
    pub(super) gone: usize,
    pub(super) faults: FaultsByNode,
}

impl ReleaseVotes {
    pub(super) fn count(&mut self, node: usize, outcome: Result<ReleaseOutcome, Fault>) {
        match outcome {
            Ok(ReleaseOutcome::Gone) => self.gone += 1,
            Ok(_) => self.held += 1,
            Err(fault) => self.faults.push((node, fault)),
        }
    }

    pub(super) fn answered(&self) -> usize {
        self.held + self.gone
    }

    pub(super) fn is_decided(&self, size: QuorumSize) -> bool {
        self.held >= size.majority()
            || self.gone >= size.majority()
            || self.answered() + self.faults.len() >= size.0
    }

    /// None if a majority may still have it.
    pub(super) fn outcome(&self, size: QuorumSize) -> Option<ReleaseOutcome> {
        if self.answered() < size.majority() {
            return None;
        }
        // It was held if those that had it make a majority together with those that cannot say.
        let had = self.held > 0 && self.held + self.faults.len() >= size.majority();
        let even = self.held > 0 && self.gone < size.majority();
        Some(if had || even { ReleaseOutcome::WasHeld } else { ReleaseOutcome::Gone })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fault() -> Fault {
        Fault::transient("acquire", "no route")
    }

    fn busy(ms: u64) -> Answer {
        let retry_after = Some(Duration::from_millis(ms));
        Answer::Busy(Busy { ticket: None, ahead: 0, retry_after, holder: None })
    }

    fn votes(answers: &[Result<Answer, Fault>], total: usize) -> AcquireVotes {
        let mut votes = AcquireVotes::new(QuorumSize(total));
        answers.iter().cloned().enumerate().for_each(|(node, answer)| votes.count(node, answer));
        votes
    }

    const YES: Result<Answer, Fault> = Ok(Answer::Granted { fence: 7 });

    #[test]
    fn a_majority_is_more_than_half() {
        for (total, majority, blocking) in [(3, 2, 2), (4, 3, 2), (5, 3, 3), (6, 4, 3), (7, 4, 4)] {
            assert_eq!(
                (QuorumSize(total).majority(), QuorumSize(total).blocking()),
                (majority, blocking)
            );
        }
    }

    #[test]
    fn a_call_is_decided_as_soon_as_nothing_can_change_it() {
        let (no, lost) = (Ok(busy(1)), Err(fault()));
        for (answers, total, decided) in [
            (vec![YES, YES], 3, true),
            (vec![YES, no.clone()], 3, false),
            (vec![no.clone(), no.clone()], 3, true),
            (vec![lost.clone(), lost.clone()], 3, true),
            (vec![YES, YES, no.clone(), lost.clone()], 5, false),
            (vec![no.clone(), no.clone()], 4, true),
            (vec![YES, no.clone(), lost.clone()], 3, true),
            (vec![YES, no.clone(), no.clone(), lost.clone()], 5, true),
            (vec![YES, no.clone(), lost.clone(), lost.clone()], 5, false),
        ] {
            assert_eq!(votes(&answers, total).is_decided(), decided, "{answers:?} of {total}");
        }
    }

    #[test]
    fn held_is_not_the_same_as_out_of_reach() {
        let names: Vec<_> = (0..5).map(|n| format!("n{n}")).collect();
        let (no, lost) = (Ok(busy(1)), Err(fault()));
        let held = votes(&[no.clone(), no.clone(), no.clone(), YES, lost.clone()], 5);
        assert!(matches!(held.refusal(&names), Ok(Answer::Outvoted(why)) if *why == busy(1)));
        let split = votes(&[YES, YES, no.clone()], 5);
        assert!(split.is_contended(), "the three that answered could have granted it");
        assert!(matches!(split.refusal(&names), Ok(Answer::Outvoted(why)) if *why == busy(1)));
        let few = votes(&[YES, no.clone(), lost.clone(), lost.clone(), lost.clone()], 5);
        assert!(!few.is_contended(), "two cannot grant it");
        let refused = few.refusal(&names).unwrap_err();
        let told = NoQuorum::of(&refused).unwrap();
        assert_eq!((told.needed, told.granted, told.faults.len()), (3, 1, 3));
        assert_eq!(told.faults[0].0, "n2");
        let all = votes(&vec![no; 5], 5);
        assert_eq!(all.refusal(&names).unwrap(), busy(1), "nothing is left to release");
    }

    #[test]
    fn what_fails_for_good_on_too_many_nodes_fails_for_good() {
        let bad = Err(Fault::permanent("acquire", "wrong password"));
        let names = vec![String::new(); 3];
        let two = votes(&[bad.clone(), bad.clone(), YES], 3).refusal(&names).unwrap_err();
        assert!(!two.is_transient());
        let one = votes(&[bad, Err(fault()), YES], 3).refusal(&names).unwrap_err();
        assert!(one.is_transient());
    }

    #[test]
    fn the_time_to_look_again_is_when_a_majority_can_be_free() {
        let split = votes(&[YES, Ok(busy(30)), Ok(busy(10)), Ok(busy(20))], 5);
        assert_eq!(split.busy().retry_after, Some(Duration::from_millis(20)));
    }

    #[test]
    fn a_fence_counts_when_a_majority_has_it() {
        let fences = ClaimFences(vec![(0, 5), (1, 7), (2, 7)]);
        assert!(fences.agree(QuorumSize(3)) && !fences.agree(QuorumSize(5)));
        assert_eq!((fences.largest(), fences.laggards()), (7, NodeSet::first(1)));
    }

    #[test]
    fn a_claim_is_gone_when_no_majority_can_hold_it() {
        let mut standings = RenewalVotes::default();
        standings.count(0, Ok(Standing::Gone));
        standings.count(1, Ok(Standing::Held { fence: 1 }));
        assert_eq!(standings.verdict(QuorumSize(3)), Decision::Open);
        standings.count(2, Err(fault()));
        assert_eq!(standings.verdict(QuorumSize(3)), Decision::Open, "a fault is no loss");
        standings.count(2, Ok(Standing::Gone));
        assert_eq!(standings.verdict(QuorumSize(3)), Decision::Gone);
    }

    #[test]
    fn a_release_tells_the_truth() {
        use ReleaseOutcome::{Gone, WasHeld};
        for (held, gone, faults, total, outcome) in [
            (2, 0, 0, 3, Some(WasHeld)),
            (0, 2, 0, 3, Some(Gone)),
            (1, 2, 0, 3, Some(Gone)),
            (1, 1, 1, 3, Some(WasHeld)),
            (1, 0, 2, 3, None),
            (2, 2, 1, 5, Some(WasHeld)),
            (1, 3, 1, 5, Some(Gone)),
            (2, 2, 0, 4, Some(WasHeld)),
        ] {
            let faults = (0..faults).map(|node| (node, fault())).collect();
            let releases = ReleaseVotes { held, gone, faults };
            assert_eq!(releases.outcome(QuorumSize(total)), outcome, "{releases:?} of {total}");
        }
    }
}
