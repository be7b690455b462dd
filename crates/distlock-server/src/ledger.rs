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
use crate::wire::Mode;

/// How many leases of one caller may wait for the answer whether they were lost.
const OVERDUE_MAX: usize = 1_000;

/// What tells leases apart: an id may be in use on several keys.
type Name = (Key, ClaimId);

/// The ledger of one caller. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    ledger: Arc<Mutex<Ledger>>,
    max: usize,
}

/// A lease that was granted here, with what its end shall be noted down with.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) leases: Leases,
    /// Whose it is and how it is held, for answers about it.
    pub(crate) about: Option<About>,
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

    pub(crate) fn about(self, about: About) -> Self {
        Self { about: Some(about), ..self }
    }
}

/// Whose a lease is and how it is held.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) owner: String,
    pub(crate) mode: Mode,
    pub(crate) permits: Option<u32>,
    pub(crate) limit: Option<u32>,
}

/// A lease whose time is over as far as this replica knows. Another one may have renewed or
/// released it.
#[derive(Clone, Debug)]
pub(crate) struct Overdue {
    pub(crate) lease: Lease,
    pub(crate) leases: Leases,
    /// How often it was found gone.
    pub(crate) looks: u8,
    pub(crate) about: Option<About>,
}

impl Account {
    pub(crate) fn new(max: usize) -> Self {
        Self { ledger: Arc::default(), max }
    }

    /// A slot for one more lease. A request that repeats another, or repeats the one for a lease
    /// that lives, shares the slot with it.
    pub(crate) fn slot(&self, key: &Key, id: Option<ClaimId>) -> Result<Slot, Problem> {
        let name = id.map(|id| (key.clone(), id));
        if lock(&self.ledger).take(name.clone(), Instant::now(), self.max) {
            return Ok(Slot { account: self.clone(), name: Some(name) });
        }
        Err(Problem::too_many("this token has as many leases as it may have"))
    }

    /// What is known of a lease.
    pub(crate) fn known(&self, id: ClaimId, key: &Key) -> Option<Leased> {
        let ledger = lock(&self.ledger);
        ledger.entries.get(&(key.clone(), id))?.leased.clone()
    }

    /// A lease was renewed. False for one that was granted elsewhere: it counts there.
    pub(crate) fn renewed(&self, lease: &Lease) -> bool {
        let mut ledger = lock(&self.ledger);
        let Some(leased) = ledger.remove(&name_of(lease)) else { return false };
        let end = Instant::now() + lease.ttl();
        ledger.put(Leased { lease: lease.clone(), end, ..leased });
        true
    }

    /// A lease was released or found to be lost.
    pub(crate) fn ended(&self, lease: &Lease) {
        lock(&self.ledger).remove(&name_of(lease));
    }

    /// A hold was broken. Returns the lease, if it was granted here.
    pub(crate) fn broken(&self, key: &Key, fence: u64) -> Option<Leased> {
        let mut ledger = lock(&self.ledger);
        let hit = |leased: &Leased| leased.lease.key() == key && leased.lease.fence() == fence;
        let found = ledger.entries.iter().find(|(_, entry)| entry.leased.as_ref().is_some_and(hit));
        let name = found.map(|(name, _)| name.clone())?;
        ledger.remove(&name)
    }

    /// True if no lease is alive and none is being asked for.
    pub(crate) fn is_empty(&self) -> bool {
        let mut ledger = lock(&self.ledger);
        ledger.purge(Instant::now());
        ledger.used() == 0
    }

    /// Forgets what has ended.
    pub(crate) fn tidy(&self) {
        lock(&self.ledger).purge(Instant::now());
    }

    /// The leases whose time is over and that were not released here, each once.
    pub(crate) fn overdue(&self) -> Vec<Overdue> {
        let mut ledger = lock(&self.ledger);
        ledger.purge(Instant::now());
        std::mem::take(&mut ledger.overdue)
    }

    /// An overdue lease lives: another replica renewed it.
    pub(crate) fn lives(&self, overdue: Overdue) {
        let Overdue { lease, leases, about, .. } = overdue;
        let leased = Leased { about, ..Leased::new(lease, leases) };
        lock(&self.ledger).put(leased);
    }

    /// Whether an overdue lease lives could not be found out yet.
    pub(crate) fn ask_again(&self, overdue: Overdue) {
        lock(&self.ledger).remember(overdue);
    }
}

/// A slot for a lease that is being asked for. It is given back if nothing comes of it.
#[derive(Debug)]
pub(crate) struct Slot {
    account: Account,
    /// For which lease it was taken, if it is still to be given back.
    name: Option<Option<Name>>,
}

impl Slot {
    /// The lease was granted, and has the slot until it ends.
    pub(crate) fn leased(mut self, leased: Leased) {
        let mut ledger = lock(&self.account.ledger);
        ledger.put(leased);
        if let Some(name) = self.name.take() {
            ledger.give_back(name);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            lock(&self.account.ledger).give_back(name);
        }
    }
}

#[derive(Debug, Default)]
struct Ledger {
    entries: HashMap<Name, Entry>,
    by_end: BTreeSet<(Instant, Name)>,
    /// Requests without an id of their own.
    nameless: usize,
    /// Bounded: beyond that leases are forgotten uncounted.
    overdue: Vec<Overdue>,
}

/// A lease, or requests for it, or both.
#[derive(Debug, Default)]
struct Entry {
    calls: usize,
    leased: Option<Leased>,
}

impl Ledger {
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
                self.remember(Overdue { lease, leases, looks: 0, about });
            }
        }
    }

    fn remember(&mut self, overdue: Overdue) {
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
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        for n in 0..3 {
            ledger.put(Leased { end: after(n), ..leased(n as u8) });
        }
        ledger.purge(after(1));
        assert_eq!(ledger.used(), 1);
        ledger.put(Leased { end: after(9), ..leased(2) });
        ledger.purge(after(5));
        assert_eq!(ledger.used(), 1);
        assert!(ledger.remove(&(key(), id(2))).is_some());
        assert!(ledger.remove(&(key(), id(2))).is_none());
        assert_eq!((ledger.used(), ledger.by_end.len()), (0, 0));
    }

    #[test]
    fn requests_under_way_count_and_repeats_of_one_count_once() {
        let account = Account::new(2);
        let (one, two) =
            (account.slot(&key(), Some(id(1))).unwrap(), account.slot(&key(), None).unwrap());
        assert!(account.slot(&key(), Some(id(3))).is_err() && account.slot(&key(), None).is_err());
        let again = account.slot(&key(), Some(id(1))).unwrap();
        drop(one);
        assert!(account.slot(&key(), None).is_err(), "one of the two is still under way");
        again.leased(leased(1));
        two.leased(leased(2));
        assert!(account.slot(&key(), None).is_err(), "both were granted");
        assert!(account.slot(&key(), Some(id(2))).is_ok(), "the lease that it asks for is there");
        account.ended(&leased(1).lease);
        assert!(account.slot(&key(), None).is_ok());
        account.broken(&key(), 0);
        assert_eq!(lock(&account.ledger).used(), 0);
    }
}
