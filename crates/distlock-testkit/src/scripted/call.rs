//! The log of what was asked of a scripted backend.

use std::time::Duration;

use distlock_core::{Ask, Cursor, Key, ReleaseOptions, Renewal, Target};

/// One call that was made, and when: counted from the creation of the backend on tokio's clock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScriptedCall {
    /// An acquire.
    Acquire {
        /// When.
        at: Duration,
        /// What was asked.
        ask: Ask,
    },
    /// A renewal of a batch.
    Renew {
        /// When.
        at: Duration,
        /// The batch.
        renewals: Vec<Renewal>,
    },
    /// A release.
    Release {
        /// When.
        at: Duration,
        /// Of what.
        target: Target,
        /// How.
        how: ReleaseOptions,
    },
    /// A hold to be confirmed by replicas.
    Confirm {
        /// When.
        at: Duration,
        /// The hold.
        renewal: Renewal,
        /// By how many.
        replicas: u32,
    },
    /// A look at one key.
    Inspect {
        /// When.
        at: Duration,
        /// The key.
        key: Key,
    },
    /// A look at many keys.
    List {
        /// When.
        at: Duration,
        /// What they begin with.
        prefix: String,
        /// Where the page begins.
        cursor: Option<Cursor>,
    },
    /// A look at the store.
    Probe {
        /// When.
        at: Duration,
    },
    /// A stream of pushes was made.
    Pushes {
        /// When.
        at: Duration,
    },
}

impl ScriptedCall {
    /// When the call was made.
    pub fn at(&self) -> Duration {
        match self {
            Self::Acquire { at, .. }
            | Self::Renew { at, .. }
            | Self::Release { at, .. }
            | Self::Confirm { at, .. }
            | Self::Inspect { at, .. }
            | Self::List { at, .. }
            | Self::Probe { at }
            | Self::Pushes { at } => *at,
        }
    }
}
