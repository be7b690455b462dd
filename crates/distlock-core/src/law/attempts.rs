//! The calls that stand behind a claim whose id the caller chose.

use crate::AttemptId;

/// The attempts of a claim: at most [`MAX`](Self::MAX), in the sequence in which they came.
///
/// A claim that was created without an attempt has none and never gets any: no clean-up of a call
/// gives it up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts(Vec<AttemptId>);

impl Attempts {
    /// How many attempts a claim has at most. With one more it has none from then on: no clean-up
    /// can tell any longer whether its call was the last, so the claim ends by its id, or with its
    /// lease or place.
    pub const MAX: usize = 8;

    /// The attempts of a new claim.
    pub fn of(first: Option<AttemptId>) -> Self {
        Self(first.into_iter().collect())
    }

    /// True if no attempt can give up the claim.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The claim was asked for again.
    pub(super) fn add(&mut self, again: Option<AttemptId>) {
        let is_new = |attempt: &AttemptId| !self.is_empty() && !self.0.contains(attempt);
        let Some(attempt) = again.filter(is_new) else { return };
        if self.0.len() < Self::MAX {
            self.0.push(attempt);
        } else {
            self.0.clear();
        }
    }

    /// A call is over. True if it was the last that stood behind the claim.
    pub(super) fn remove(&mut self, attempt: &AttemptId) -> bool {
        let before = self.0.len();
        self.0.retain(|known| known != attempt);
        self.0.is_empty() && before > 0
    }

    /// Their bytes, one behind the other.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|attempt| *attempt.as_bytes()).collect()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote; none if it is anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ids, rest) = bytes.as_chunks::<16>();
        let ids = ids.iter().map(|id| AttemptId::from_bytes(*id)).collect();
        rest.is_empty().then_some(Self(ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read_as_they_were_written() {
        let mut attempts = Attempts::of(Some(AttemptId::from_bytes([1; 16])));
        attempts.add(Some(AttemptId::from_bytes([2; 16])));
        assert_eq!(Attempts::from_bytes(&attempts.to_bytes()), Some(attempts));
        assert_eq!(Attempts::from_bytes(&[]), Some(Attempts::default()));
        assert_eq!(Attempts::from_bytes(&[0; 17]), None);
    }
}
