//! What a call asks of one key, and how it is decided.

use distlock_core::law::{AddressedPush, Now, Record};
use distlock_core::rows::VerbSubject;
use distlock_core::{
    Answer, Ask, ClientId, Key, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};

/// One call about one key.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    Acquire(Ask),
    /// Claims of one key, in the sequence of their answers.
    Renew(Vec<Renewal>),
    Release(Target, ReleaseOptions),
    /// Drops what has expired and admits waiters, without a call that asks for it.
    Settle(Key),
}

/// The answer to a [`Verb`].
#[derive(Clone, Debug)]
pub(super) enum VerbReply {
    Answer(Answer),
    Standings(Vec<Standing>),
    Outcome(ReleaseOutcome),
    Settled,
}

impl Verb {
    /// What it does, for faults.
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::Acquire(_) => "acquire",
            Self::Renew(_) => "renew",
            Self::Release(..) => "release",
            Self::Settle(_) => "settle",
        }
    }

    /// The key; none for a renewal of nothing.
    pub(super) fn key(&self) -> Option<&Key> {
        match self {
            Self::Acquire(ask) => Some(&ask.claim.key),
            Self::Renew(renewals) => renewals.first().map(|renewal| &renewal.claim.key),
            Self::Release(target, _) => Some(target.key()),
            Self::Settle(key) => Some(key),
        }
    }

    /// What of the record it is about; none if it needs all of it.
    pub(super) fn about(&self) -> Option<VerbSubject> {
        match self {
            Self::Acquire(ask) => Some(VerbSubject::claim_in(ask.claim.id, ask.attempt)),
            Self::Renew(renewals) => match &renewals[..] {
                [one] => Some(VerbSubject::Claim(one.claim.id)),
                _ => None,
            },
            Self::Release(target, _) => Some(VerbSubject::target(target)),
            Self::Settle(_) => None,
        }
    }

    /// True if it only adds to a record, so that an excerpt is enough for several such verbs.
    pub(super) fn only_adds(&self) -> bool {
        matches!(self, Self::Acquire(_))
    }

    /// Decides by the law.
    pub(super) fn decide(
        &self,
        record: &mut Record,
        client: ClientId,
        now: Now,
    ) -> (VerbReply, Vec<AddressedPush>) {
        match self {
            Self::Acquire(ask) => {
                let (answer, notices) = record.acquire(ask, client, now);
                (VerbReply::Answer(answer), notices)
            }
            Self::Renew(renewals) => {
                let (mut standings, mut notices) = (Vec::with_capacity(renewals.len()), Vec::new());
                for renewal in renewals {
                    let (standing, more) = record.renew(renewal, client, now);
                    standings.push(standing);
                    notices.extend(more);
                }
                (VerbReply::Standings(standings), notices)
            }
            Self::Release(target, how) => {
                let (outcome, notices) = record.release(target, *how, now);
                (VerbReply::Outcome(outcome), notices)
            }
            Self::Settle(_) => (VerbReply::Settled, record.settle_at(now)),
        }
    }

    /// True if one statement may do: an exclusive ask, if the key turns out to be free, and a plain
    /// release, if the claim turns out to hold alone and no other waits.
    pub(super) fn is_simple(&self) -> bool {
        match self {
            Self::Acquire(ask) => ask.is_exclusive(),
            Self::Release(Target::Claim(_), how) => how.keep.is_zero() && how.bury.is_zero(),
            _ => false,
        }
    }
}
