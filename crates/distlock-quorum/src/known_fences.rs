//! Which fences the nodes know of.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::vote::QuorumSize;
use distlock_core::sync::lock;

/// Which fences the nodes know to be given out.
#[derive(Debug)]
pub(super) struct KnownFences {
    by_node: Mutex<Vec<u64>>,
    by_majority: AtomicU64,
}

impl KnownFences {
    pub(super) fn new(size: QuorumSize) -> Self {
        Self { by_node: Mutex::new(vec![0; size.0]), by_majority: AtomicU64::new(0) }
    }

    /// The largest fence that a majority knows of.
    pub(super) fn by_majority(&self) -> u64 {
        self.by_majority.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, index: usize, fence: u64, size: QuorumSize) {
        let mut by_node = lock(&self.by_node);
        if let Some(known) = by_node.get_mut(index) {
            *known = fence;
        }
        let mut sorted = by_node.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let known = sorted.get(size.majority() - 1).copied().unwrap_or(0);
        self.by_majority.store(known, Ordering::Release);
    }
}
