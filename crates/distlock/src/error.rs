//! What can go wrong, told so that the caller knows what to do about it.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use distlock_core::{Fault, Holder, Invalid, Key, NoQuorum};

/// Why a call did not do what was asked.
///
/// Three groups: *not now* ([`Held`](Self::Held), [`Timeout`](Self::Timeout),
/// [`RetriesExhausted`](Self::RetriesExhausted), [`TooManyWaiters`](Self::TooManyWaiters)), *no
/// longer* ([`Lost`](Self::Lost), [`NotHeld`](Self::NotHeld), [`Closed`](Self::Closed)) and
/// *cannot tell* ([`Backend`](Self::Backend), [`ReleaseUncertain`](Self::ReleaseUncertain),
/// [`NoQuorum`](Self::NoQuorum), [`NotReplicated`](Self::NotReplicated)). The rest are mistakes of
/// the program. [`Error::is_transient`] says whether the same call may succeed later.
///
/// The text of an error is complete: it names the operation, the key, the store, the cause and what
/// to do next. [`source`](std::error::Error::source) returns only what the text does not contain.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another client has it and the call was not to wait.
    #[error("acquire {key:?}: {}", held(.holder.as_deref(), *.ahead))]
    Held {
        /// The key.
        key: Key,
        /// When the first holder's lease ends unless it is renewed.
        retry_after: Option<Duration>,
        /// Who has it.
        holder: Option<Box<Holder>>,
        /// How many wait ahead.
        ahead: u64,
    },
    /// The call waited as long as it was allowed to.
    #[error("acquire {key:?}: timed out after {waited:?}{}", because(.source.as_ref()))]
    Timeout {
        /// The key.
        key: Key,
        /// How long it waited.
        waited: Duration,
        /// The last fault on the way, if the backend was out of reach.
        // Raw, so that it is not the `source()` of the error: its text is part of the message.
        r#source: Option<Fault>,
    },
    /// The call tried as often as its pacing allows.
    #[error("acquire {key:?}: still held after {attempts} attempts")]
    RetriesExhausted {
        /// The key.
        key: Key,
        /// How often it tried.
        attempts: u32,
    },
    /// The lock was held and is no longer.
    #[error("hold {key:?}: lost, {reason}")]
    Lost {
        /// The key.
        key: Key,
        /// Why.
        reason: LossReason,
    },
    /// The store does not know the claim: it expired, was released or never held.
    #[error("find a hold of {key:?}: there is none under this claim id")]
    NotHeld {
        /// The key.
        key: Key,
    },
    /// The token of [`Options::cancel_on`](crate::Options::cancel_on) was cancelled.
    #[error("acquire {key:?}: cancelled by the token given to cancel_on")]
    Cancelled {
        /// The key.
        key: Key,
    },
    /// These locks were closed.
    #[error("use these locks: they are closed")]
    Closed,
    /// The call was awaited outside a tokio runtime, which its connection and its deadline need.
    /// Renewals and releases of dropped guards need none.
    #[error("acquire outside a tokio runtime")]
    NoRuntime,
    /// A blocking call was made inside an async task, which it would stop together with all others
    /// of its thread. Nothing was sent.
    #[error(
        "block inside an async task: call the async API there, or move the call into \
         tokio::task::spawn_blocking"
    )]
    AsyncContext,
    /// The backend cannot do this and never will.
    #[error("use {what}: the backend does not support it")]
    Unsupported {
        /// The missing capability.
        what: &'static str,
    },
    /// The key is in use under another order.
    #[error("acquire {key:?}: the key is in use under another order")]
    Conflict {
        /// The key.
        key: Key,
    },
    /// The queue is full.
    #[error("acquire {key:?}: too many are waiting already")]
    TooManyWaiters {
        /// The key.
        key: Key,
    },
    /// Too few nodes of a quorum could be reached to decide.
    #[error("acquire {key:?}: no quorum, {granted} of {needed} nodes granted: {faults}")]
    NoQuorum {
        /// The key.
        key: Key,
        /// How many nodes make a majority.
        needed: usize,
        /// How many granted.
        granted: usize,
        /// What the others said, by node.
        faults: NodeFaults,
    },
    /// Too few replicas confirmed the grant; it was given back.
    #[error("replicate {key:?}: {confirmed} of {wanted} replicas confirmed")]
    NotReplicated {
        /// The key.
        key: Key,
        /// How many confirmed in time.
        confirmed: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// The release may or may not have reached the store. It is repeated in the background; at the
    /// latest the lock is free when its lease ends.
    #[error("release {key:?}: the outcome is unknown: {source}")]
    ReleaseUncertain {
        /// The key.
        key: Key,
        /// What happened.
        r#source: Fault,
    },
    /// A value was refused at the door; nothing was sent.
    #[error("accept {0}")]
    Invalid(Invalid),
    /// The URL of a store cannot be used: its scheme, an option, or a file that it names. Nothing
    /// was sent.
    #[error("open {0}")]
    Url(Invalid),
    /// The backend failed.
    #[error(transparent)]
    Backend(Fault),
}

impl Error {
    /// True if the same call may succeed later without anybody mending anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Held { .. }
            | Self::Timeout { .. }
            | Self::RetriesExhausted { .. }
            | Self::TooManyWaiters { .. }
            | Self::Lost { .. }
            | Self::NotReplicated { .. }
            | Self::ReleaseUncertain { .. } => true,
            Self::Backend(fault) => fault.is_transient(),
            Self::NoQuorum { faults: NodeFaults(faults), .. } => {
                faults.is_empty() || faults.iter().any(|(_, fault)| fault.is_transient())
            }
            Self::NotHeld { .. }
            | Self::Cancelled { .. }
            | Self::Closed
            | Self::NoRuntime
            | Self::AsyncContext
            | Self::Unsupported { .. }
            | Self::Conflict { .. }
            | Self::Invalid(_)
            | Self::Url(_) => false,
        }
    }

    /// The error that a fault at a key amounts to.
    pub(crate) fn from_fault_at(key: &Key, fault: Fault) -> Self {
        match NoQuorum::of(&fault) {
            Some(NoQuorum { needed, granted, faults, .. }) => Self::NoQuorum {
                key: key.clone(),
                needed: *needed,
                granted: *granted,
                faults: NodeFaults(faults.clone()),
            },
            None => Self::from_fault(fault.at_key(key)),
        }
    }

    /// The error that a fault amounts to.
    pub(crate) fn from_fault(fault: Fault) -> Self {
        match fault.kind() {
            distlock_core::FaultKind::Unsupported => Self::Unsupported { what: fault.action() },
            _ => Self::Backend(fault),
        }
    }
}

impl From<Invalid> for Error {
    fn from(refused: Invalid) -> Self {
        Self::Invalid(refused)
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn held(holder: Option<&Holder>, ahead: u64) -> String {
    let by = holder.map_or_else(String::new, |holder| format!(" by {}", holder.owner));
    let line = if ahead > 0 { format!(", {ahead} waiting ahead") } else { String::new() };
    format!("held{by}{line}")
}

fn because(source: Option<&Fault>) -> String {
    source.map_or_else(String::new, |fault| format!("; {fault}"))
}

/// What single nodes of a quorum said.
#[derive(Clone, Debug, Default)]
pub struct NodeFaults(pub Vec<(String, Fault)>);

impl fmt::Display for NodeFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (node, fault)) in self.0.iter().enumerate() {
            write!(f, "{}{node}: {fault}", if index > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

/// Why a held lock was lost. Lost is final: getting it back is a new acquisition, with a new fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended by the local clock before a renewal was confirmed: the program was paused,
    /// starved or suspended.
    Expired,
    /// The lease ended by the local clock while renewals failed.
    Unreachable,
    /// The store said that the claim is gone: deleted, evicted, expired or forgotten.
    Gone,
    /// An operator broke the hold.
    Broken,
    /// The hold lasted as long as `max_hold` allows.
    MaxHold,
    /// The locks were closed.
    Closed,
    /// The answer took longer than the lease, so no hold ever began.
    TooSlow,
    /// The token of [`Options::cancel_on`](crate::Options::cancel_on) was cancelled.
    Cancelled,
}

impl LossReason {
    /// The reason in a word, as the journal and the metrics have it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::Gone => "gone",
            Self::Broken => "broken",
            Self::MaxHold => "max-hold",
            Self::Closed => "closed",
            Self::TooSlow => "too-slow",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ended before it was renewed",
            Self::Unreachable => "the lease ended while the backend was out of reach",
            Self::Gone => "the store no longer knows the hold",
            Self::Broken => "an operator broke the hold",
            Self::MaxHold => "it was held as long as max_hold allows",
            Self::Closed => "the locks were closed",
            Self::TooSlow => "the answer took longer than the lease lasts",
            Self::Cancelled => "the token given to cancel_on was cancelled",
        })
    }
}
