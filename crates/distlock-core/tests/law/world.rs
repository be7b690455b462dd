//! One key whose time and record are in the hands of a test.

use std::time::Duration;

use distlock_core::law::{AddressedPush, Now, Record};
use distlock_core::{Answer, Ask, Claim, ClaimId, ClientId, Key, Label, Moment, ReleaseOptions};
use distlock_core::{ReleaseOutcome, Renewal, Snapshot, Standing, Target};

/// What can happen to a key.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Acquire(Ask, ClientId),
    Renew(Renewal, ClientId),
    Release(Target, ReleaseOptions),
    Pass(Duration),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Answer),
    Standing(Standing),
    Outcome(ReleaseOutcome),
    Passed,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) record: Record,
    pub(crate) now: Now,
}

impl World {
    pub(crate) fn new() -> Self {
        let start = 1_000_000;
        Self { record: Record::new(0), now: Now { at: Moment::from_micros(start), seed: start } }
    }

    pub(crate) fn apply(&mut self, op: &Op) -> (Reply, Vec<AddressedPush>) {
        match op {
            Op::Acquire(ask, client) => {
                ask.check().unwrap();
                let (answer, notices) = self.record.acquire(ask, *client, self.now);
                self.record.verify(self.now.at);
                (Reply::Answer(answer), notices)
            }
            Op::Renew(renewal, client) => {
                renewal.check().unwrap();
                let (standing, notices) = self.record.renew(renewal, *client, self.now);
                (Reply::Standing(standing), notices)
            }
            Op::Release(target, how) => {
                let (outcome, notices) = self.record.release(target, *how, self.now);
                self.record.verify(self.now.at);
                (Reply::Outcome(outcome), notices)
            }
            Op::Pass(while_) => {
                self.pass(*while_);
                (Reply::Passed, Vec::new())
            }
        }
    }

    /// Lets time pass; the wall clock moves with it.
    pub(crate) fn pass(&mut self, while_: Duration) {
        self.now.at = self.now.at.after(while_);
        self.now.seed += while_.as_micros() as u64;
    }

    /// Forgets everything but the counter, as a store does with a record that no client needs.
    pub(crate) fn forget_if_idle(&mut self) {
        if self.record.is_idle() {
            self.record = Record::new(self.record.counter());
        }
    }

    pub(crate) fn acquire(&mut self, ask: &Ask, client: ClientId) -> (Answer, Vec<AddressedPush>) {
        match self.apply(&Op::Acquire(ask.clone(), client)) {
            (Reply::Answer(answer), notices) => (answer, notices),
            (other, _) => panic!("an acquire was answered {other:?}"),
        }
    }

    pub(crate) fn renew(
        &mut self,
        renewal: Renewal,
        client: ClientId,
    ) -> (Standing, Vec<AddressedPush>) {
        match self.apply(&Op::Renew(renewal, client)) {
            (Reply::Standing(standing), notices) => (standing, notices),
            (other, _) => panic!("a renewal was answered {other:?}"),
        }
    }

    pub(crate) fn release(
        &mut self,
        target: Target,
        how: ReleaseOptions,
    ) -> (ReleaseOutcome, Vec<AddressedPush>) {
        match self.apply(&Op::Release(target, how)) {
            (Reply::Outcome(outcome), notices) => (outcome, notices),
            (other, _) => panic!("a release was answered {other:?}"),
        }
    }

    /// Releases a claim, leaving nothing behind.
    pub(crate) fn give_up(&mut self, ask: &Ask) -> (ReleaseOutcome, Vec<AddressedPush>) {
        self.release(Target::Claim(ask.claim.clone()), ReleaseOptions::default())
    }

    pub(crate) fn look(&self) -> Snapshot {
        self.record.inspect(&key(), self.now.at)
    }
}

pub(crate) fn key() -> Key {
    Key::new("k").unwrap()
}

pub(crate) fn client(number: u8) -> ClientId {
    ClientId::from_bytes([number; 16])
}

pub(crate) fn label(text: &str) -> Label {
    Label::new("label", text).unwrap()
}

pub(crate) fn claim(number: u64) -> Claim {
    Claim::new(key(), ClaimId::from_bytes(u128::from(number).to_be_bytes()))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
