//! Locks inside one process: a map of records that the law decides about.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::law::{AddressedPush, Now, Record, Step, acquire_all};
use distlock_core::{
    AcquireMany, Answer, Ask, Backend, Capabilities, Claim, ClientId, Clock, Cursor, EntryId,
    Extensions, Fault, Health, Journal, JournalEntry, JournalPage, Key, ManyAnswer, Note, Page,
    Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal, Retention, SNAPSHOT_MAX, Snapshot,
    Standing, Streaming, Target,
};
use futures_util::stream;
use tokio::sync::broadcast;

use super::ring::Ring;
use crate::clock::BootClock;
use distlock_core::sync::lock;

/// How many pushes a client may fall behind. What it misses, its next heartbeat tells.
const MEMORY_PUSHES_MAX: usize = 1024;

/// A store in the memory of this process.
///
/// Every value is one client of its store. [`Memory::client`] makes another client of the same
/// store: with it a test plays several processes, each with locks of its own.
///
/// ```
/// use std::sync::Arc;
/// use distlock::{Locks, backends::Memory};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let store = Memory::new();
/// let here = Locks::new(Arc::new(store.client()));
/// let there = Locks::new(Arc::new(store.client()));
///
/// let guard = here.mutex("deploy")?.lock().await?;
/// assert!(there.mutex("deploy")?.try_lock().await.is_err());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Memory {
    store: Arc<MemoryStore>,
    client: ClientId,
}

#[derive(Debug)]
struct MemoryStore {
    clock: Arc<dyn Clock>,
    /// The time of day at the clock's origin.
    origin_ms: u64,
    state: Mutex<MemoryState>,
    journal: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct MemoryState {
    records: BTreeMap<Key, Record>,
    /// The largest number that any dropped record gave out. New records go on from it, so fences
    /// grow although nothing is kept of a key that is free.
    counter: u64,
    /// The record that was tidied last.
    tidied: Option<Key>,
    clients: HashMap<ClientId, broadcast::Sender<Push>>,
    clients_made: u128,
}

impl Memory {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty store on a clock of one's own, such as one that a test moves.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let origin_ms = (wall_micros() - clock.now().as_micros().min(wall_micros())) / 1000;
        let (state, journal) = (Mutex::default(), Mutex::default());
        Self::join(Arc::new(MemoryStore { clock, origin_ms, state, journal }))
    }

    /// Another client of the same store.
    #[must_use]
    pub fn client(&self) -> Self {
        Self::join(Arc::clone(&self.store))
    }

    fn join(store: Arc<MemoryStore>) -> Self {
        let client = {
            let mut state = store.state();
            // No client outside this process can forge a client of this store, so a number will do.
            state.clients_made += 1;
            let client = ClientId::from_bytes(state.clients_made.to_be_bytes());
            state.clients.insert(client, broadcast::channel(MEMORY_PUSHES_MAX).0);
            client
        };
        Self { store, client }
    }

    /// Runs one verb on the record of `key` and carries out what follows from it.
    fn decide<T>(
        &self,
        key: &Key,
        verb: impl FnOnce(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> T {
        self.store.state().decide(key, self.store.now(), verb)
    }

    fn ask(&self, ask: &Ask) -> Answer {
        let (mut state, now) = (self.store.state(), self.store.now());
        if ask.witness.as_ref().is_some_and(|witness| !state.is_held(witness, now)) {
            return Answer::Forgot;
        }
        let take = |record: &mut Record, now| record.acquire(ask, self.client, now);
        state.decide(&ask.claim.key, now, take)
    }
}

impl MemoryState {
    fn decide<T>(
        &mut self,
        key: &Key,
        now: Now,
        verb: impl FnOnce(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> T {
        let outcome = self.change(key, now, verb);
        self.tidy(now);
        outcome
    }

    fn is_held(&self, claim: &Claim, now: Now) -> bool {
        let record = self.records.get(&claim.key);
        record.is_some_and(|record| record.is_held_by(&claim.id, now.at))
    }

    fn change<T>(
        &mut self,
        key: &Key,
        now: Now,
        verb: impl FnOnce(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> T {
        let counter = self.counter;
        let record = self.records.entry(key.clone()).or_insert_with(|| Record::new(counter));
        let (outcome, notices) = verb(record, now);
        if record.is_idle() {
            self.counter = counter.max(record.counter());
            self.records.remove(key);
        }
        for notice in notices {
            if let Some(client) = self.clients.get(&notice.to) {
                // A push without a listener is no error: the heartbeat tells.
                let _ = client.send(notice.push);
            }
        }
        outcome
    }

    /// Looks at one more record each time, so that keys no client asks for again are forgotten,
    /// too.
    fn tidy(&mut self, now: Now) {
        let after = self.tidied.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.records.range((after, Bound::Unbounded)).next().map(|(key, _)| key.clone());
        if let Some(key) = &next {
            self.change(key, now, |record, now| ((), record.settle_at(now)));
        }
        self.tidied = next;
    }
}

impl MemoryStore {
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        // The law does not panic half-way: a poisoned shelf is still a consistent one.
        lock(&self.state)
    }

    fn now(&self) -> Now {
        Now { at: self.clock.now(), seed: wall_micros() }
    }

    /// The time of day by the store's clock.
    fn wall_ms(&self) -> u64 {
        self.origin_ms + self.clock.now().as_micros() / 1000
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.store.state().clients.remove(&self.client);
    }
}

/// Microseconds since 1970: where fences start.
fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.durability = false;
        capabilities.one_counter = false;
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move { Ok(self.ask(ask)) })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        Box::pin(stream::iter(batch.iter().enumerate().map(|(index, renewal)| {
            let renew = |record: &mut Record, now| record.renew(renewal, self.client, now);
            (index, Ok(self.decide(&renewal.claim.key, renew)))
        })))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(async move {
            Ok(self.decide(target.key(), |record, now| record.release(target, how, now)))
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        Box::pin(async move {
            let now = self.store.clock.now();
            let state = self.store.state();
            let record = state.records.get(key);
            Ok(record.map_or_else(|| Snapshot::free(key.clone()), |r| r.inspect(key, now)))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        Box::pin(async move {
            let now = self.store.clock.now();
            let state = self.store.state();
            let mut page = Page::default();
            let start = match cursor {
                Some(Cursor(last)) => Key::new(last).ok().map(Bound::Excluded),
                None => Key::new(prefix).ok().map(Bound::Included),
            };
            let range = (start.unwrap_or(Bound::Unbounded), Bound::Unbounded);
            let matching =
                state.records.range(range).take_while(|(key, _)| key.as_str().starts_with(prefix));
            for (key, record) in matching {
                let seen = record.inspect(key, now);
                if seen.is_free() {
                    continue;
                }
                if page.locks.len() == SNAPSHOT_MAX {
                    page.next = page.locks.last().map(|lock| Cursor(lock.key.to_string()));
                    break;
                }
                page.locks.push(seen);
            }
            Ok(page)
        })
    }

    fn probe(&self) -> Pending<'_, Health> {
        let identity = format!("memory:{:p}", Arc::as_ptr(&self.store));
        Box::pin(async move { Ok(Health::new(identity.clone(), identity)) })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let receiver =
            self.store.state().clients.get(&self.client).map(broadcast::Sender::subscribe);
        Box::pin(stream::unfold(receiver, |receiver| async move {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Ok(push) => Some((push, Some(receiver))),
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    Some((Push::Interrupted, Some(receiver)))
                }
                Err(broadcast::error::RecvError::Closed) => None,
            }
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { many: Some(self), ..Extensions::at("memory:") }
    }
}

impl AcquireMany for Memory {
    fn acquire_all<'a>(&'a self, asks: &'a [Ask]) -> Pending<'a, ManyAnswer> {
        Box::pin(async move {
            let (mut state, now) = (self.store.state(), self.store.now());
            acquire_all(asks, |step| {
                Ok(match step {
                    Step::Acquire(ask) => {
                        let take = |record: &mut Record, now| record.acquire(ask, self.client, now);
                        Some(state.decide(&ask.claim.key, now, take))
                    }
                    Step::Release(claim) => {
                        let target = Target::Claim(claim.clone());
                        let give = |record: &mut Record, now| {
                            record.release(&target, ReleaseOptions::default(), now)
                        };
                        state.decide(&claim.key, now, give);
                        None
                    }
                })
            })
        })
    }
}

impl Journal for Memory {
    fn append<'a>(
        &'a self,
        notes: &'a [(Note, Duration)],
        retention: Retention,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            lock(&self.store.journal).append(notes, retention, self.store.wall_ms());
            Ok(())
        })
    }

    fn page<'a>(&'a self, after: Option<&'a EntryId>, limit: usize) -> Pending<'a, JournalPage> {
        Box::pin(async move { lock(&self.store.journal).page(after, limit) })
    }

    fn past<'a>(&'a self, key: &'a Key, limit: usize) -> Pending<'a, Vec<JournalEntry>> {
        Box::pin(async move { Ok(lock(&self.store.journal).past(key, limit)) })
    }

    fn last(&self) -> Pending<'_, Option<EntryId>> {
        Box::pin(async move { Ok(lock(&self.store.journal).last()) })
    }
}

#[cfg(test)]
mod tests {
    use distlock_core::{Claim, ClaimId, Label, ManualClock};

    use super::*;

    #[tokio::test]
    async fn abandoned_keys_are_forgotten_although_nobody_asks_for_them_again() {
        let clock = ManualClock::new();
        let store = Memory::with_clock(Arc::new(clock.clone()));
        let owner = Label::new("owner", "me").unwrap();
        let ask = |n: u32| {
            let claim = Claim::new(Key::new(n.to_string()).unwrap(), ClaimId::random().unwrap());
            Ask::new(claim, owner.clone(), Duration::from_secs(1))
        };
        for n in 0..1_000 {
            store.acquire(&ask(n)).await.unwrap();
        }
        clock.advance(Duration::from_secs(2));
        for _ in 0..1_100 {
            store.acquire(&ask(5_000)).await.unwrap();
        }
        assert_eq!(store.store.state().records.len(), 1);
    }
}
