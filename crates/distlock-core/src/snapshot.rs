//! What an onlooker may see of a key. Claim ids are capabilities and never part of it.

use std::time::Duration;

use crate::{Holder, Key, Label, Order};

/// How many holders, waiters or keys one look shows at most.
pub const SNAPSHOT_MAX: usize = 100;

/// A key as it stands: its holders and its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The key.
    pub key: Key,
    /// The order that the sharers agree on; none while no claim shares or waits to share.
    pub order: Option<Order>,
    /// The holders, the one whose lease ends last first; at most [`SNAPSHOT_MAX`].
    pub holders: Vec<Holder>,
    /// How many holders there are.
    pub holders_total: u64,
    /// The first in the queue; at most [`SNAPSHOT_MAX`].
    pub waiters: Vec<Waiter>,
    /// How many wait.
    pub waiters_total: u64,
}

impl Snapshot {
    /// A key that no client holds or waits for.
    pub fn free(key: Key) -> Self {
        let (holders, waiters) = (Vec::new(), Vec::new());
        Self { key, order: None, holders, holders_total: 0, waiters, waiters_total: 0 }
    }

    /// True if no client holds and no client waits.
    pub fn is_free(&self) -> bool {
        self.holders_total == 0 && self.waiters_total == 0
    }
}

/// A waiter as others may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The owner's label.
    pub owner: Label,
    /// What for.
    pub reason: Option<Label>,
    /// How much it asks for.
    pub weight: u32,
    /// True if it wants to share with no other claim.
    pub exclusive: bool,
    /// The group of a shared waiter.
    pub group: Option<Label>,
    /// How long it has been waiting.
    pub waited: Duration,
}

/// Where the next page of a listing begins. Opaque: only the backend that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// One page of keys that are held or waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys, at most [`SNAPSHOT_MAX`].
    pub locks: Vec<Snapshot>,
    /// The next page; none on the last.
    pub next: Option<Cursor>,
}
