//! What must not happen and did, in words.

use std::fmt;

use super::{AcquireSpec, SeenAcquisition};

/// A rule of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// Two held together that must not, or too much was held.
    Exclusion,
    /// A fence was used twice or went back.
    Fence,
    /// A claim overtook another.
    Order,
    /// A claim was granted or ended twice, or out of turn.
    Accounting,
}

/// Something that must not happen and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule it breaks.
    pub rule: Rule,
    /// The key.
    pub key: String,
    /// What happened.
    pub text: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, seen: &SeenAcquisition, text: String) -> Self {
        Self { rule, key: seen.wish.key.clone(), text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = format!("{:?}", self.rule).to_lowercase();
        write!(f, "{rule} at {:?}: {}", self.key, self.text)
    }
}

/// A granted claim in words, for violations.
impl fmt::Display for SeenAcquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AcquireSpec { weight, capacity, group, .. } = &self.wish;
        write!(f, "[{weight} of {capacity}")?;
        if let Some(group) = group {
            write!(f, ", group {group}")?;
        }
        if let Some(ticket) = self.ticket {
            write!(f, ", ticket {ticket}")?;
        }
        if let Some((fence, (at, _))) = self.grant {
            write!(f, ", fence {fence}, from {at:?}")?;
        }
        if let Some((until, _)) = self.until() {
            write!(f, " to {until:?}")?;
        }
        write!(f, "]")
    }
}
