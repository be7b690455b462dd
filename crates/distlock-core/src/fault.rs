//! "We cannot tell what happened": the third outcome beside yes and no.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A call whose outcome is unknown, or that the backend cannot serve.
///
/// Busy and gone are answers, never faults. A fault says what was tried, what came back, and
/// through [`Fault::kind`] whether trying again can help.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: FaultKind,
    action: &'static str,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A time-out, a broken connection, a server that starts up or fails over: try again.
    Transient,
    /// A wrong password, a key of another type: it will fail again until somebody mends it.
    Permanent,
    /// The backend does not have this capability and never will.
    Unsupported,
}

impl Fault {
    /// A fault after which the same call may succeed. `action` completes "could not …".
    pub fn transient(
        action: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind: FaultKind::Transient, action, source: Some(Arc::from(source.into())) }
    }

    /// A fault that repeats until somebody mends its cause. `action` completes "could not …".
    pub fn permanent(
        action: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind: FaultKind::Permanent, action, source: Some(Arc::from(source.into())) }
    }

    /// The backend does not offer this. `what` names the capability.
    pub fn unsupported(what: &'static str) -> Self {
        Self { kind: FaultKind::Unsupported, action: what, source: None }
    }

    /// Whether trying again can help.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// True if the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        self.kind == FaultKind::Transient
    }

    /// What was tried; for an unsupported capability, its name.
    pub fn action(&self) -> &'static str {
        self.action
    }
}

/// Too few nodes of a store could be reached to decide: the source of a [`Fault`].
///
/// A minority of them may have executed the call all the same.
#[derive(Clone, Debug)]
pub struct NoQuorum {
    /// How many nodes make a majority.
    pub needed: usize,
    /// How many said yes.
    pub granted: usize,
    /// What those said that could not answer, by the names of the nodes.
    pub faults: Vec<(String, Fault)>,
    /// The names of the other nodes.
    pub others: Vec<String>,
}

impl NoQuorum {
    /// The one behind a fault, if there is one.
    pub fn of(fault: &Fault) -> Option<&Self> {
        fault.source()?.downcast_ref()
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no quorum, {} of {} nodes agreed", self.granted, self.needed)?;
        self.faults.iter().try_for_each(|(node, fault)| write!(f, "; {node}: {fault}"))
    }
}

impl Error for NoQuorum {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == FaultKind::Unsupported {
            return write!(f, "the backend does not support {}", self.action);
        }
        match &self.source {
            Some(source) => write!(f, "could not {}: {source}", self.action),
            None => write!(f, "could not {}", self.action),
        }
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
