//! What can be chosen about a quorum.

use std::time::Duration;

use distlock_core::{Invalid, TTL_MAX};

/// What can be chosen about a [`Quorum`](super::Quorum). All clients of one must choose the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumOptions {
    /// The nodes keep every grant through a crash: Redis with `appendfsync always`. A node that
    /// restarts then votes at once instead of abstaining for [`max_ttl`](Self::max_ttl).
    pub persistent: bool,
    /// The longest lease, 60 s unless chosen otherwise: so long a node abstains that lost its
    /// memory. A longer ttl is refused.
    pub max_ttl: Duration,
    /// How long a call waits for a node, 1 s unless chosen otherwise. It should be well below the
    /// ttl, and never counts for more than half of it. Calls end as soon as a majority has
    /// answered. A node that has answered nothing for half of this time counts as silent: it is
    /// asked now and then, and when the others do not suffice.
    pub node_timeout: Duration,
}

impl Default for QuorumOptions {
    fn default() -> Self {
        let (max_ttl, node_timeout) = (Duration::from_secs(60), Duration::from_secs(1));
        Self { persistent: false, max_ttl, node_timeout }
    }
}

impl QuorumOptions {
    /// Says that the nodes keep every grant through a crash.
    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.persistent = persistent;
        self
    }

    /// Chooses the longest lease.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// Chooses how long a call waits for a node.
    #[must_use]
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let second = Duration::from_secs(1);
        if self.max_ttl < second || self.max_ttl > TTL_MAX {
            let shown = format_args!("{:?}", self.max_ttl).to_string();
            return Err(Invalid::new("max_ttl", shown, "must be between 1 s and 365 days"));
        }
        if self.node_timeout < second / 100 || self.node_timeout > second * 60 {
            let shown = format_args!("{:?}", self.node_timeout).to_string();
            return Err(Invalid::new("node_timeout", shown, "must be between 10 ms and 60 s"));
        }
        Ok(())
    }
}
