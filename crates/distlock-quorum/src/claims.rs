//! What is known of claims that this client asked for: what they asked, and which calls are late.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{Ask, Claim};
use futures_util::future::Shared;
use tokio::time::Instant;

use super::BURY_FOR;
use super::set::NodeSet;
use distlock_core::sync::lock;

/// How many claims are looked through at once for those that are over.
const TIDY_MIN: usize = 1024;

/// A call that was not waited for. True if it was answered, false if it is unknown what became of
/// it.
pub(super) type LateAnswer = Shared<Pin<Box<dyn Future<Output = bool> + Send>>>;

/// The claims. A caller may use one id for several keys: key and id together name a claim.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<ClaimStates>);

#[derive(Debug, Default)]
struct ClaimStates {
    known: HashMap<Claim, ClaimState>,
    /// When to look through them next.
    tidy_at: usize,
}

/// What is known of a claim.
#[derive(Clone, Debug)]
pub(super) struct ClaimState {
    /// What was asked, so that a node that lost the claim can be given it again; none once it was
    /// released.
    pub(super) ask: Option<Arc<Ask>>,
    /// The longest lease that was asked for.
    pub(super) lease: Duration,
    /// How often it was asked for.
    asks: u32,
    /// Calls under way, by node. Whatever comes next for this claim at that node waits for them.
    pub(super) late: Vec<(usize, LateAnswer)>,
    /// The nodes where an ask may still arrive.
    pub(super) doubtful: NodeSet,
    /// The nodes that were never asked: nothing of it is there.
    pub(super) unasked: NodeSet,
    /// When it is over unless it is heard of again.
    pub(super) until: Instant,
}

impl ClaimState {
    /// A claim with a lease like this; it will be forgotten a while after that.
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            ask: None,
            lease,
            asks: 0,
            late: Vec::new(),
            doubtful: NodeSet::NONE,
            unasked: NodeSet::NONE,
            until: Instant::now() + lease + BURY_FOR,
        }
    }

    pub(super) fn late_at(&self, node: usize) -> Option<LateAnswer> {
        self.late.iter().find(|(late, _)| *late == node).map(|(_, late)| late.clone())
    }

    /// It was renewed for this long.
    pub(super) fn renewed(&mut self, span: Duration) {
        self.lease = self.lease.max(span);
        self.until = Instant::now() + span + BURY_FOR;
    }

    fn is_empty(&self) -> bool {
        self.ask.is_none() && self.late.is_empty() && self.doubtful.is_empty()
    }
}

impl Claims {
    /// Takes out what is known. A client that does so puts back what it makes of it.
    pub(super) fn take(&self, claim: &Claim) -> Option<ClaimState> {
        lock(&self.0).known.remove(claim)
    }

    /// The claim is about to be asked for: what was known of it before. If the call is dropped,
    /// everything about it is in doubt on these nodes.
    pub(super) fn asking(
        &self,
        claim: Claim,
        lease: Duration,
        nodes: NodeSet,
    ) -> Option<ClaimState> {
        let mut table = lock(&self.0);
        let mut known = ClaimState::new(lease);
        known.doubtful = nodes;
        let before = table.known.get(&claim);
        known.asks = before.map_or(0, |before| before.asks) + 1;
        known.lease = before.map_or(lease, |before| before.lease.max(lease));
        known.late = before.map(|before| before.late.clone()).unwrap_or_default();
        table.known.insert(claim, known)
    }

    /// What has become of an ask.
    pub(super) fn asked(&self, claim: Claim, mut known: ClaimState) {
        if let Some(present) = lock(&self.0).known.get(&claim) {
            known.asks = present.asks;
            known.lease = known.lease.max(present.lease);
            // Others may have asked those that this call left alone.
            if present.asks > 1 {
                known.unasked = NodeSet::NONE;
            }
        }
        self.put(claim, known);
    }

    /// The claim is about to be released: from now on no node is given it again. Calls under way
    /// stay known until the release has ended, so that one that is dropped forgets nothing.
    pub(super) fn releasing(&self, claim: &Claim) -> Option<ClaimState> {
        self.change(claim, |known| {
            known.ask = None;
            known.clone()
        })
    }

    pub(super) fn put(&self, claim: Claim, known: ClaimState) {
        let mut table = lock(&self.0);
        if known.is_empty() {
            table.known.remove(&claim);
            return;
        }
        table.known.insert(claim, known);
        if table.known.len() > table.tidy_at {
            let now = Instant::now();
            table.known.retain(|_, known| known.until > now);
            table.tidy_at = (table.known.len() * 2).max(TIDY_MIN);
        }
    }

    /// Changes what is known of a claim, if anything is.
    pub(super) fn change<T>(
        &self,
        claim: &Claim,
        change: impl FnOnce(&mut ClaimState) -> T,
    ) -> Option<T> {
        let mut table = lock(&self.0);
        let known = table.known.get_mut(claim)?;
        let done = change(known);
        if known.is_empty() {
            table.known.remove(claim);
        }
        Some(done)
    }

    /// A release is about to be repeated, unless the claim was asked for again since: then false.
    pub(super) fn repeats(&self, claim: &Claim, node: usize, call: &LateAnswer) -> bool {
        let mut table = lock(&self.0);
        let known =
            table.known.entry(claim.clone()).or_insert_with(|| ClaimState::new(Duration::ZERO));
        if known.asks > 0 {
            return false;
        }
        known.late.push((node, call.clone()));
        true
    }

    /// A late call has ended.
    pub(super) fn ended(&self, claim: &Claim, node: usize, call: &LateAnswer, answered: bool) {
        self.change(claim, |known| {
            known.late.retain(|(late, other)| *late != node || !other.ptr_eq(call));
            if !answered {
                known.doubtful.add(node);
            }
        });
    }
}
