//! A node of a quorum: a store, and whether its vote counts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{
    Answer, Backend, Claim, Fault, FaultKind, ReleaseOptions, ReleaseOutcome, Target,
};
use tokio::time::Instant;

use super::liveness::Liveness;
use super::mark::Mark;
use super::pending_releases::PendingReleases;
use super::shared_work::SharedWork;
use super::vote::abstains;
use distlock_core::sync::lock;

/// A store that votes.
#[derive(Debug)]
pub(super) struct QuorumNode {
    pub(super) backend: Arc<dyn Backend>,
    memory: Mutex<NodeMemory>,
    /// Looking at the node, which a hundred callers do once.
    pub(super) looking: SharedWork,
    /// The store can make an ask depend on another claim.
    witnesses: bool,
    pub(super) liveness: Liveness,
    pub(super) unheard: PendingReleases,
}

/// What is known of the node's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeMemory {
    /// The epoch of the store in which it was last looked at; none if it never was.
    pub(super) epoch: Option<u64>,
    pub(super) identity: String,
    /// What is written on it. All fences that it mints are above its seed.
    pub(super) mark: Option<Mark>,
    /// Its votes do not count before.
    pub(super) abstains_until: Option<Instant>,
    /// It has said that it has lost its mark.
    pub(super) forgot: bool,
    /// What asks depend on.
    pub(super) witness: Option<Claim>,
}

/// What a vote of a node is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteValue {
    /// It counts if the store is still in this epoch when the answer has come; fences from it must
    /// be above this seed.
    Counts { epoch: u64, seed: u64 },
    /// It does not count, for this long.
    Abstains { epoch: u64, left: Duration },
    /// The store was reached anew and has to be looked at first.
    Unknown,
}

impl QuorumNode {
    /// A node that counts as silent after this long without an answer.
    pub(super) fn new(backend: Arc<dyn Backend>, patience: Duration) -> Self {
        Self {
            witnesses: backend.capabilities().witness,
            backend,
            memory: Mutex::default(),
            looking: SharedWork::default(),
            liveness: Liveness::new(patience),
            unheard: PendingReleases::default(),
        }
    }

    /// Takes note of whether it can be heard.
    pub(super) fn heard<T>(&self, answer: &Result<T, Fault>) {
        match answer {
            Ok(_) if self.liveness.heard() => self.unheard.hurry(),
            Ok(_) => {}
            Err(fault) if fault.kind() == FaultKind::Unsupported => {}
            Err(_) => self.liveness.failed(Instant::now()),
        }
    }

    /// Releases there, whether its vote counts or not.
    pub(super) async fn release(
        &self,
        target: &Target,
        how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        let outcome = self.backend.release(target, how).await;
        self.heard(&outcome);
        outcome
    }

    pub(super) fn memory(&self) -> NodeMemory {
        lock(&self.memory).clone()
    }

    pub(super) fn take_seat(&self, mut memory: NodeMemory) {
        let mark = memory.mark.as_ref().filter(|_| self.witnesses);
        memory.witness = mark.and_then(|mark| mark.claim().ok());
        *lock(&self.memory) = memory;
    }

    /// What its vote is worth at this moment.
    pub(super) fn vote_value(&self) -> VoteValue {
        let now = self.backend.extensions().epoch();
        let memory = lock(&self.memory);
        match (memory.epoch, memory.abstains_until) {
            (Some(epoch), _) if epoch != now || memory.forgot => VoteValue::Unknown,
            (None, _) => VoteValue::Unknown,
            (Some(epoch), Some(until)) if until > Instant::now() => {
                VoteValue::Abstains { epoch, left: until - Instant::now() }
            }
            // Whatever it had promised is over: it has to be told what it forgot.
            (Some(_), Some(_)) => VoteValue::Unknown,
            (Some(epoch), None) => {
                let seed = memory.mark.as_ref().map_or(0, |mark| mark.seed);
                VoteValue::Counts { epoch, seed }
            }
        }
    }

    /// What an ask depends on at this node: its mark, where the store can tell.
    pub(super) fn witness(&self) -> Option<Claim> {
        lock(&self.memory).witness.clone()
    }

    /// Takes note of an answer to an ask. A store that has lost its mark has to be looked at before
    /// it is asked again, though it was not reached anew.
    pub(super) fn answered(&self, answer: Result<Answer, Fault>) -> Result<Answer, Fault> {
        self.heard(&answer);
        if !matches!(answer, Ok(Answer::Forgot)) {
            return answer;
        }
        lock(&self.memory).forgot = true;
        Err(Fault::transient("count this vote", "the store has forgotten that it belongs here"))
    }

    /// Refuses what was heard from a store that was reached anew meanwhile: it may have forgotten
    /// what it promised.
    pub(super) fn still_in(&self, epoch: u64) -> Result<(), Fault> {
        if self.backend.extensions().epoch() == epoch {
            return Ok(());
        }
        Err(Fault::transient("count this vote", "the store was reached anew meanwhile"))
    }
}

impl VoteValue {
    /// The epoch and the seed of a vote that counts.
    pub(super) fn counted(self) -> Result<(u64, u64), Fault> {
        match self {
            Self::Counts { epoch, seed } => Ok((epoch, seed)),
            Self::Abstains { .. } => Err(abstains()),
            Self::Unknown => {
                Err(Fault::transient("count this vote", "the store has to be looked at first"))
            }
        }
    }
}
