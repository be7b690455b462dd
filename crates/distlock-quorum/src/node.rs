//! A node of a quorum: a store, and whether its vote counts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{Answer, Backend, Claim, Fault, FaultKind, How, Outcome, Target};
use tokio::time::Instant;

use super::mark::Mark;
use super::shared_work::SharedWork;
use super::unheard::Unheard;
use super::voice::Voice;
use super::vote::abstains;
use distlock_core::sync::lock;

/// A store that votes.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) backend: Arc<dyn Backend>,
    seat: Mutex<Seat>,
    /// Looking at the node, which a hundred callers do once.
    pub(super) looking: SharedWork,
    /// The store can make an ask depend on another claim.
    witnesses: bool,
    pub(super) voice: Voice,
    pub(super) unheard: Unheard,
}

/// What is known of the node's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
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
pub(super) enum Worth {
    /// It counts if the store is still in this epoch when the answer has come; fences from it must
    /// be above this seed.
    Counts { epoch: u64, seed: u64 },
    /// It does not count, for this long.
    Abstains { epoch: u64, left: Duration },
    /// The store was reached anew and has to be looked at first.
    Unknown,
}

impl Node {
    /// A node that counts as silent after this long without an answer.
    pub(super) fn new(backend: Arc<dyn Backend>, patience: Duration) -> Self {
        Self {
            witnesses: backend.capabilities().witness,
            backend,
            seat: Mutex::default(),
            looking: SharedWork::default(),
            voice: Voice::new(patience),
            unheard: Unheard::default(),
        }
    }

    /// Takes note of whether it can be heard.
    pub(super) fn heard<T>(&self, answer: &Result<T, Fault>) {
        match answer {
            Ok(_) if self.voice.heard() => self.unheard.hurry(),
            Ok(_) => {}
            Err(fault) if fault.kind() == FaultKind::Unsupported => {}
            Err(_) => self.voice.failed(Instant::now()),
        }
    }

    /// Releases there, whether its vote counts or not.
    pub(super) async fn release(&self, target: &Target, how: How) -> Result<Outcome, Fault> {
        let outcome = self.backend.release(target, how).await;
        self.heard(&outcome);
        outcome
    }

    pub(super) fn seat(&self) -> Seat {
        lock(&self.seat).clone()
    }

    pub(super) fn take_seat(&self, mut seat: Seat) {
        let mark = seat.mark.as_ref().filter(|_| self.witnesses);
        seat.witness = mark.and_then(|mark| mark.claim().ok());
        *lock(&self.seat) = seat;
    }

    /// What its vote is worth at this moment.
    pub(super) fn worth(&self) -> Worth {
        let now = self.backend.epoch();
        let seat = lock(&self.seat);
        match (seat.epoch, seat.abstains_until) {
            (Some(epoch), _) if epoch != now || seat.forgot => Worth::Unknown,
            (None, _) => Worth::Unknown,
            (Some(epoch), Some(until)) if until > Instant::now() => {
                Worth::Abstains { epoch, left: until - Instant::now() }
            }
            // Whatever it had promised is over: it has to be told what it forgot.
            (Some(_), Some(_)) => Worth::Unknown,
            (Some(epoch), None) => {
                let seed = seat.mark.as_ref().map_or(0, |mark| mark.seed);
                Worth::Counts { epoch, seed }
            }
        }
    }

    /// What an ask depends on at this node: its mark, where the store can tell.
    pub(super) fn witness(&self) -> Option<Claim> {
        lock(&self.seat).witness.clone()
    }

    /// Takes note of an answer to an ask. A store that has lost its mark has to be looked at before
    /// it is asked again, though it was not reached anew.
    pub(super) fn answered(&self, answer: Result<Answer, Fault>) -> Result<Answer, Fault> {
        self.heard(&answer);
        if !matches!(answer, Ok(Answer::Forgot)) {
            return answer;
        }
        lock(&self.seat).forgot = true;
        Err(Fault::transient("count this vote", "the store has forgotten that it belongs here"))
    }

    /// Refuses what was heard from a store that was reached anew meanwhile: it may have forgotten
    /// what it promised.
    pub(super) fn still_in(&self, epoch: u64) -> Result<(), Fault> {
        if self.backend.epoch() == epoch {
            return Ok(());
        }
        Err(Fault::transient("count this vote", "the store was reached anew meanwhile"))
    }
}

impl Worth {
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
