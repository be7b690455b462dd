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
    pub(crate) about: Option<(String, Mode)>,
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

    pub(crate) fn about(self, owner: &str, mode: Mode) -> Self {
        Self { about: Some((owner.to_owned(), mode)), ..self }
    }
}

impl Account {
    pub(crate) fn new(max: usize) -> Self {
        Self { ledger: Arc::default(), max }
    }

    /// A slot for one more lease. A request that repeats another, or repeats the one for a lease
    /// that lives, shares the slot with it.
    pub(crate) fn slot(&self, id: Option<ClaimId>) -> Result<Slot, Problem> {
        if lock(&self.ledger).take(id, Instant::now(), self.max) {
            return Ok(Slot { account: self.clone(), id: Some(id) });
        }
        Err(Problem::too_many("this token has as many leases as it may have"))
    }

    /// What is known of a lease.
    pub(crate) fn known(&self, id: ClaimId, key: &Key) -> Option<Leased> {
        let ledger = lock(&self.ledger);
        let leased = ledger.entries.get(&id)?.leased.as_ref()?;
        (leased.lease.key() == key).then(|| leased.clone())
    }

    /// A lease was renewed. One that was granted elsewhere counts there.
    pub(crate) fn renewed(&self, lease: &Lease) {
        let mut ledger = lock(&self.ledger);
        if let Some(leased) = ledger.remove(lease.id()) {
            let end = Instant::now() + lease.ttl();
            ledger.put(Leased { lease: lease.clone(), end, ..leased });
        }
    }

    /// A lease was released or found to be lost.
    pub(crate) fn ended(&self, id: ClaimId) {
        lock(&self.ledger).remove(id);
    }

    /// A hold was broken, whoever had it.
    pub(crate) fn broken(&self, key: &Key, fence: u64) {
        let mut ledger = lock(&self.ledger);
        let hit = |leased: &Leased| leased.lease.key() == key && leased.lease.fence() == fence;
        let found = ledger.entries.iter().find(|(_, entry)| entry.leased.as_ref().is_some_and(hit));
        if let Some(id) = found.map(|(id, _)| *id) {
            ledger.remove(id);
        }
    }

    /// Forgets what has ended.
    pub(crate) fn tidy(&self) {
        lock(&self.ledger).purge(Instant::now());
    }
}

/// A slot for a lease that is being asked for. It is given back if nothing comes of it.
#[derive(Debug)]
pub(crate) struct Slot {
    account: Account,
    /// Under which id it was taken, if it is still to be given back.
    id: Option<Option<ClaimId>>,
}

impl Slot {
    /// The lease was granted, and has the slot until it ends.
    pub(crate) fn leased(mut self, leased: Leased) {
        let mut ledger = lock(&self.account.ledger);
        ledger.put(leased);
        if let Some(id) = self.id.take() {
            ledger.give_back(id);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            lock(&self.account.ledger).give_back(id);
        }
    }
}

#[derive(Debug, Default)]
struct Ledger {
    entries: HashMap<ClaimId, Entry>,
    by_end: BTreeSet<(Instant, ClaimId)>,
    /// Requests without an id of their own.
    nameless: usize,
}

/// A lease, or requests for it, or both.
#[derive(Debug, Default)]
struct Entry {
    calls: usize,
    leased: Option<Leased>,
}

impl Ledger {
    /// Takes a slot, if there is one. Looks for ended leases only if there may be too many.
    fn take(&mut self, id: Option<ClaimId>, now: Instant, max: usize) -> bool {
        if let Some(entry) = id.and_then(|id| self.entries.get_mut(&id)) {
            entry.calls += 1;
            return true;
        }
        if self.used() >= max {
            self.purge(now);
        }
        if self.used() >= max {
            return false;
        }
        match id {
            Some(id) => self.entries.entry(id).or_default().calls += 1,
            None => self.nameless += 1,
        }
        true
    }

    fn give_back(&mut self, id: Option<ClaimId>) {
        let Some(id) = id else {
            self.nameless -= 1;
            return;
        };
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.calls -= 1;
            self.drop_if_empty(id);
        }
    }

    fn used(&self) -> usize {
        self.entries.len() + self.nameless
    }

    fn purge(&mut self, now: Instant) {
        while let Some(&(end, id)) = self.by_end.first()
            && end <= now
        {
            self.remove(id);
        }
    }

    fn put(&mut self, leased: Leased) {
        let (end, id) = (leased.end, leased.lease.id());
        self.remove(id);
        self.entries.entry(id).or_default().leased = Some(leased);
        self.by_end.insert((end, id));
    }

    fn remove(&mut self, id: ClaimId) -> Option<Leased> {
        let leased = self.entries.get_mut(&id)?.leased.take()?;
        self.by_end.remove(&(leased.end, id));
        self.drop_if_empty(id);
        Some(leased)
    }

    fn drop_if_empty(&mut self, id: ClaimId) {
        if self.entries.get(&id).is_some_and(|entry| entry.calls == 0 && entry.leased.is_none()) {
            self.entries.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
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
        assert!(ledger.remove(id(2)).is_some());
        assert!(ledger.remove(id(2)).is_none());
        assert_eq!((ledger.used(), ledger.by_end.len()), (0, 0));
    }

    #[test]
    fn requests_under_way_count_and_repeats_of_one_count_once() {
        let account = Account::new(2);
        let (one, two) = (account.slot(Some(id(1))).unwrap(), account.slot(None).unwrap());
        assert!(account.slot(Some(id(3))).is_err() && account.slot(None).is_err());
        let again = account.slot(Some(id(1))).unwrap();
        drop(one);
        assert!(account.slot(None).is_err(), "one of the two is still under way");
        again.leased(leased(1));
        two.leased(leased(2));
        assert!(account.slot(None).is_err(), "both were granted");
        assert!(account.slot(Some(id(2))).is_ok(), "the lease that it asks for is there");
        account.ended(id(1));
        assert!(account.slot(None).is_ok());
        account.broken(&Key::new("key").unwrap(), 0);
        assert_eq!(lock(&account.ledger).used(), 0);
    }
}
