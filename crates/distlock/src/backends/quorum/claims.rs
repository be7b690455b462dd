//! What is known of claims that this client asked for: what they asked, and which calls are late.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{Ask, ClaimId};
use futures_util::future::Shared;
use tokio::time::Instant;

use crate::sync::lock;

/// How many claims are looked through at once for those that are over.
const TIDY_MIN: usize = 1024;

/// A call that was not waited for. True if it was answered, false if nobody knows what became of
/// it.
pub(super) type Late = Shared<Pin<Box<dyn Future<Output = bool> + Send>>>;

/// The claims by their ids.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    known: HashMap<ClaimId, Known>,
    /// When to look through them next.
    tidy_at: usize,
}

/// What is known of a claim.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// What was asked, so that a node that lost the claim can be given it again; none once it was
    /// released.
    pub(super) ask: Option<Arc<Ask>>,
    /// Calls under way, by node. Whatever comes next for this claim at that node waits for them.
    pub(super) late: Vec<(usize, Late)>,
    /// The nodes where an ask may still arrive, as bits.
    pub(super) doubtful: u64,
    /// When it is over unless it is heard of again.
    pub(super) until: Instant,
}

impl Known {
    /// Nothing is known; it will be forgotten after this long.
    pub(super) fn new(life: Duration) -> Self {
        Self { ask: None, late: Vec::new(), doubtful: 0, until: Instant::now() + life }
    }

    pub(super) fn late_at(&self, node: usize) -> Option<Late> {
        self.late.iter().find(|(late, _)| *late == node).map(|(_, late)| late.clone())
    }

    /// True if an ask may still arrive at this node, as far as can be told.
    pub(super) fn is_doubtful(&self, node: usize) -> bool {
        self.doubtful >> node & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.ask.is_none() && self.late.is_empty() && self.doubtful == 0
    }
}

impl Claims {
    /// Takes out what is known. Whoever does so puts back what it makes of it.
    pub(super) fn take(&self, id: &ClaimId) -> Option<Known> {
        lock(&self.0).known.remove(id)
    }

    /// The claim is about to be released: from now on no node is given it again. Calls under way
    /// stay known until the release has ended, so that one that is dropped forgets nothing.
    pub(super) fn releasing(&self, id: &ClaimId) -> Option<Known> {
        self.change(id, |known| {
            known.ask = None;
            known.clone()
        })
    }

    pub(super) fn put(&self, id: ClaimId, known: Known) {
        if known.is_empty() {
            return;
        }
        let mut table = lock(&self.0);
        table.known.insert(id, known);
        if table.known.len() > table.tidy_at {
            let now = Instant::now();
            table.known.retain(|_, known| known.until > now);
            table.tidy_at = (table.known.len() * 2).max(TIDY_MIN);
        }
    }

    /// Changes what is known of a claim, if anything is.
    pub(super) fn change<T>(
        &self,
        id: &ClaimId,
        change: impl FnOnce(&mut Known) -> T,
    ) -> Option<T> {
        let mut table = lock(&self.0);
        let known = table.known.get_mut(id)?;
        let done = change(known);
        if known.is_empty() {
            table.known.remove(id);
        }
        Some(done)
    }

    /// A late call has ended.
    pub(super) fn ended(&self, id: &ClaimId, node: usize, call: &Late, answered: bool) {
        self.change(id, |known| {
            known.late.retain(|(late, other)| *late != node || !other.ptr_eq(call));
            if !answered {
                known.doubtful |= 1 << node;
            }
        });
    }
}
