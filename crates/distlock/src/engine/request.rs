//! What to acquire, and how long it may take.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::Ask;

use crate::options::Settings;

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// One attempt, no waiting.
    Once,
    /// This long.
    For(Duration),
    /// As long as it takes.
    Forever,
}

impl WaitLimit {
    /// The limit of a waiting form: a wait of no length is no wait.
    pub(crate) fn from_max_wait(max_wait: Option<Duration>) -> Self {
        match max_wait {
            Some(Duration::ZERO) => Self::Once,
            Some(max_wait) => Self::For(max_wait),
            None => Self::Forever,
        }
    }
}

/// What to acquire.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub(crate) ask: Ask,
    pub(crate) limit: WaitLimit,
    pub(crate) settings: Arc<Settings>,
    /// The claim id is the caller's: it is not exchanged for another.
    pub(crate) fixed_id: bool,
    /// No client will renew the grant soon, so it must be good for the full ttl.
    pub(crate) full_ttl: bool,
    /// After so long in the queue the call fails, and leaves its place to a client that knows the
    /// id.
    pub(crate) keep_place_after: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_no_length_is_a_single_attempt() {
        assert_eq!(WaitLimit::from_max_wait(Some(Duration::ZERO)), WaitLimit::Once);
        assert_eq!(WaitLimit::from_max_wait(None), WaitLimit::Forever);
    }
}
