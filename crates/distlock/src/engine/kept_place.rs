//! A place that a call keeps when its wait is over: it is given up unless the caller learns of it.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{AttemptId, Claim};

use crate::keeper::Keeper;

/// A place in the queue that its caller does not know of yet.
pub(crate) struct KeptPlace<'a> {
    pub(crate) keeper: &'a Arc<Keeper>,
    pub(crate) claim: Claim,
    pub(crate) attempt: AttemptId,
    pub(crate) lease: Duration,
    pub(crate) heard: bool,
}

impl Drop for KeptPlace<'_> {
    fn drop(&mut self) {
        if self.heard {
            return;
        }
        self.keeper.leave_attempt(&self.claim, self.attempt, self.lease, false);
    }
}
