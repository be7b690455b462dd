//! The leases that one caller got here: how many more there may be, and what was known of each.
//!
//! It decides about nothing else, so it does not matter that other replicas have ledgers of their
//! own. A request has its slot before it asks the store: two that come at the same time cannot
//! both take the last one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use distlock::{ClaimId, HeldCount, Key, Lease, Leases};

use crate::problem::Problem;
use crate::sync::lock;
use crate::wire::ModeBody;

/// How many leases of one caller may wait for the answer whether they were lost.
const OVERDUE_MAX: usize = 1_000;

/// What tells leases apart: an id may be in use on several keys.
type Name = (Key, ClaimId);

/// The ledger of one caller. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct LeaseQuota {
    state: Arc<Mutex<QuotaState>>,
    max: usize,
}

/// A lease that was granted here, with what its end shall be noted down with.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) leases: Leases,
    /// Whose it is and how it is held, for answers about it.
    pub(crate) about: Option<LeaseSubject>,
    end: Instant,
    /// Counts among the locks that are held until it is forgotten.
    _held: Arc<HeldCount>,
}

impl Leased {
    pub(crate) fn new(lease: Lease, leases: Leases) -> Self {
        let end = Instant::now() + lease.ttl();
        let _held = Arc::new(leases.count_held());
        Self { lease, leases, about: None, end, _held }
    }

    pub(crate) fn about(self, about: LeaseSubject) -> Self {
        Self { about: Some(about), ..self }
    }
}

/// Whose a lease is and how it is held.
#[derive(Clone, Debug)]
pub(crate) struct LeaseSubject {
    pub(crate) owner: String,
    pub(crate) mode: ModeBody,
    pub(crate) permits: Option<u32>,
    pub(crate) limit: Option<u32>,
}

/// A lease whose time is over as far as this replica knows. Another one may have renewed or
/// released it.
#[derive(Clone, Debug)]
pub(crate) struct OverdueLease {
    pub(crate) lease: Lease,
    pub(crate) leases: Leases,
    /// How often it was found gone.
    pub(crate) looks: u8,
    pub(crate) about: Option<LeaseSubject>,
}

impl LeaseQuota {
    pub(crate) fn new(max: usize) -> Self {
        Self { state: Arc::default(), max }
    }

    /// A slot for one more lease. A request that repeats another, or repeats the one for a lease
    /// that lives, shares the slot with it.
    pub(crate) fn slot(&self, key: &Key, id: Option<ClaimId>) -> Result<QuotaSlot, Problem> {
        let name = id.map(|id| (key.clone(), id));
        if lock(&self.state).take(name.clone(), Instant::now(), self.max) {
            return Ok(QuotaSlot { quota: self.clone(), name: Some(name) });
        }
        Err(Problem::too_many("this token has as many leases as it may have"))
    }

    /// What is known of a lease.
    pub(crate) fn known(&self, id: ClaimId, key: &Key) -> Option<Leased> {
        let state = lock(&self.state);
        state.entries.get(&(key.clone(), id))?.leased.clone()
    }

    /// A lease was renewed. False for one that was granted elsewhere: it counts there.
    pub(crate) fn renewed(&self, lease: &Lease) -> bool {
        let mut state = lock(&self.state);
        let Some(leased) = state.remove(&name_of(lease)) else { return false };
        let end = Instant::now() + lease.ttl();
        state.put(Leased { lease: lease.clone(), end, ..leased });
        true
    }

    /// A lease was released or found to be lost.
    pub(crate) fn ended(&self, lease: &Lease) {
        lock(&self.state).remove(&name_of(lease));
    }

    /// A hold was broken. Returns the lease, if it was granted here.
    pub(crate) fn broken(&self, key: &Key, fence: u64) -> Option<Leased> {
        let mut state = lock(&self.state);
        let hit = |leased: &Leased| leased.lease.key() == key && leased.lease.fence() == fence;
        let found = state.entries.iter().find(|(_, entry)| entry.leased.as_ref().is_some_and(hit));
        let name = found.map(|(name, _)| name.clone())?;
        state.remove(&name)
    }

    /// True if no lease is alive and none is being asked for.
    pub(crate) fn is_empty(&self) -> bool {
        let mut state = lock(&self.state);
        state.purge(Instant::now());
        state.used() == 0
    }

    /// Forgets what has ended.
    pub(crate) fn tidy(&self) {
        lock(&self.state).purge(Instant::now());
    }

    /// The leases whose time is over and that were not released here, each once.
    pub(crate) fn overdue(&self) -> Vec<OverdueLease> {
        let mut state = lock(&self.state);
        state.purge(Instant::now());
        std::mem::take(&mut state.overdue)
    }

    /// An overdue lease lives: another replica renewed it.
    pub(crate) fn lives(&self, overdue: OverdueLease) {
        let OverdueLease { lease, leases, about, .. } = overdue;
        let leased = Leased { about, ..Leased::new(lease, leases) };
        lock(&self.state).put(leased);
    }

    /// Whether an overdue lease lives could not be found out yet.
    pub(crate) fn ask_again(&self, overdue: OverdueLease) {
        lock(&self.state).remember(overdue);
    }
}

/// A slot for a lease that is being asked for. It is given back if nothing comes of it.
#[derive(Debug)]
pub(crate) struct QuotaSlot {
    quota: LeaseQuota,
    /// For which lease it was taken, if it is still to be given back.
    name: Option<Option<Name>>,
}

impl QuotaSlot {
    /// The lease was granted, and has the slot until it ends.
    pub(crate) fn leased(mut self, leased: Leased) {
        let mut state = lock(&self.quota.state);
        state.put(leased);
        if let Some(name) = self.name.take() {
            state.give_back(name);
        }
    }
}

impl Drop for QuotaSlot {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            lock(&self.quota.state).give_back(name);
        }
    }
}

#[derive(Debug, Default)]
struct QuotaState {
    entries: HashMap<Name, QuotaEntry>,
    by_end: BTreeSet<(Instant, Name)>,
    /// Requests without an id of their own.
    nameless: usize,
    /// Bounded: beyond that leases are forgotten uncounted.
    overdue: Vec<OverdueLease>,
}

/// A lease, or requests for it, or both.
#[derive(Debug, Default)]
struct QuotaEntry {
    calls: usize,
    leased: Option<Leased>,
}

impl QuotaState {
    /// Takes a slot, if there is one. Looks for ended leases only if there may be too many.
    fn take(&mut self, name: Option<Name>, now: Instant, max: usize) -> bool {
        if let Some(entry) = name.as_ref().and_then(|name| self.entries.get_mut(name)) {
            entry.calls += 1;
            return true;
        }
        if self.used() >= max {
            self.purge(now);
        }
        if self.used() >= max {
            return false;
        }
        match name {
            Some(name) => self.entries.entry(name).or_default().calls += 1,
            None => self.nameless += 1,
        }
        true
    }

    fn give_back(&mut self, name: Option<Name>) {
        let Some(name) = name else {
            self.nameless -= 1;
            return;
        };
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.calls -= 1;
            self.drop_if_empty(&name);
        }
    }

    fn used(&self) -> usize {
        self.entries.len() + self.nameless
    }

    fn purge(&mut self, now: Instant) {
        while let Some((end, name)) = self.by_end.first().cloned()
            && end <= now
        {
            if let Some(Leased { lease, leases, about, .. }) = self.remove(&name) {
                self.remember(OverdueLease { lease, leases, looks: 0, about });
            }
        }
    }

    fn remember(&mut self, overdue: OverdueLease) {
        if self.overdue.len() < OVERDUE_MAX {
            self.overdue.push(overdue);
        }
    }

    fn put(&mut self, leased: Leased) {
        let (end, name) = (leased.end, name_of(&leased.lease));
        self.remove(&name);
        self.entries.entry(name.clone()).or_default().leased = Some(leased);
        self.by_end.insert((end, name));
    }

    fn remove(&mut self, name: &Name) -> Option<Leased> {
        let leased = self.entries.get_mut(name)?.leased.take()?;
        self.by_end.remove(&(leased.end, name.clone()));
        self.drop_if_empty(name);
        Some(leased)
    }

    fn drop_if_empty(&mut self, name: &Name) {
        if self.entries.get(name).is_some_and(|entry| entry.calls == 0 && entry.leased.is_none()) {
            self.entries.remove(name);
        }
    }
}

fn name_of(lease: &Lease) -> Name {
    (lease.key().clone(), lease.id())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn key() -> Key {
        Key::new("key").unwrap()
    }

    fn leased(n: u8) -> Leased {
        let leases = distlock::Locks::memory().lease("key").unwrap();
        Leased::new(leases.lease_of(id(n)), leases)
    }

    #[test]
    fn a_ledger_forgets_what_has_ended_and_nothing_else() {
        let (mut state, start) = (QuotaState::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        for n in 0..3 {
            state.put(Leased { end: after(n), ..leased(n as u8) });
        }
        state.purge(after(1));
        assert_eq!(state.used(), 1);
        state.put(Leased { end: after(9), ..leased(2) });
        state.purge(after(5));
        assert_eq!(state.used(), 1);
        assert!(state.remove(&(key(), id(2))).is_some());
        assert!(state.remove(&(key(), id(2))).is_none());
        assert_eq!((state.used(), state.by_end.len()), (0, 0));
    }

    #[test]
    fn requests_under_way_count_and_repeats_of_one_count_once() {
        let quota = LeaseQuota::new(2);
        let (one, two) =
            (quota.slot(&key(), Some(id(1))).unwrap(), quota.slot(&key(), None).unwrap());
        assert!(quota.slot(&key(), Some(id(3))).is_err() && quota.slot(&key(), None).is_err());
        let again = quota.slot(&key(), Some(id(1))).unwrap();
        drop(one);
        assert!(quota.slot(&key(), None).is_err(), "one of the two is still under way");
        again.leased(leased(1));
        two.leased(leased(2));
        assert!(quota.slot(&key(), None).is_err(), "both were granted");
        assert!(quota.slot(&key(), Some(id(2))).is_ok(), "the lease that it asks for is there");
        quota.ended(&leased(1).lease);
        assert!(quota.slot(&key(), None).is_ok());
        quota.broken(&key(), 0);
        assert_eq!(lock(&quota.state).used(), 0);
    }
}
