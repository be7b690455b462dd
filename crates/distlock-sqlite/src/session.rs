//! One transaction, seen from inside: records by key, and the law on them.

use distlock_core::law::{AddressedPush, Now, Parts, Record};
use distlock_core::rows::{Extent, VerbSubject};
use distlock_core::{ClientId, FENCE_MAX, Key, Snapshot};
use rusqlite::{Connection, OptionalExtension, Result};

use super::cells::as_sql;
use super::{load, save};

/// How far ahead of what was given out the ceiling of fences is put: an hour of a clock that counts
/// microseconds.
const HEADROOM: u64 = 60 * 60 * 1_000_000;

/// What a store knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreMeta {
    /// Tells this store from all others.
    pub(super) name: String,
    /// The start of the machine that its times belong to.
    pub(super) boot: String,
    /// The last fence or ticket that was given out, whatever the key.
    pub(super) counter: u64,
    /// No fence above this is given out.
    pub(super) ceiling: u64,
}

impl StoreMeta {
    pub(super) fn read(connection: &Connection) -> Result<Option<Self>> {
        let mut statement = connection.prepare_cached(include_str!("../sql/store.sql"))?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let meta = statement.query_row([], |row| {
            Ok(Self {
                name: row.get(0)?,
                boot: row.get(1)?,
                counter: number(row.get(2)?),
                ceiling: number(row.get(3)?),
            })
        });
        meta.optional()
    }

    /// The ceiling that leaves room for a while above all that may be given out now.
    pub(super) fn next_ceiling(counter: u64, now: Now) -> u64 {
        (counter.max(now.seed) + HEADROOM).min(FENCE_MAX)
    }
}

/// One transaction. Work for the same store that has nothing to do with locks can use its
/// connection.
#[derive(Debug)]
pub(super) struct StoreSession<'a> {
    connection: &'a Connection,
    now: Now,
    meta: StoreMeta,
    /// What was given out before this transaction.
    counter_before: u64,
    notices: Vec<AddressedPush>,
}

impl<'a> StoreSession<'a> {
    pub(super) fn new(connection: &'a Connection, now: Now, meta: StoreMeta) -> Self {
        let counter_before = meta.counter;
        Self { connection, now, meta, counter_before, notices: Vec::new() }
    }

    pub(super) fn connection(&self) -> &Connection {
        self.connection
    }

    pub(super) fn now(&self) -> Now {
        self.now
    }

    pub(super) fn meta(&self) -> &StoreMeta {
        &self.meta
    }

    /// Decides one verb by the law.
    pub(super) fn decide<T>(
        &mut self,
        key: &Key,
        client: ClientId,
        about: VerbSubject,
        verb: impl Fn(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> Result<T> {
        if let Some(outcome) = self.decide_on(key, Extent::For(client, about), &verb)? {
            return Ok(outcome);
        }
        // The verb lets in more than the excerpt shows.
        self.decide_whole(key, Some(about), verb)
    }

    /// Decides on all of a record: for verbs about many claims at once.
    pub(super) fn decide_whole<T>(
        &mut self,
        key: &Key,
        about: Option<VerbSubject>,
        verb: impl Fn(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> Result<T> {
        let outcome = self.decide_on(key, Extent::Whole(about), &verb)?;
        outcome.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// None, and nothing is changed, if the extent turns out to be too small.
    fn decide_on<T>(
        &mut self,
        key: &Key,
        extent: Extent,
        verb: &impl Fn(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> Result<Option<T>> {
        let parts = load::load(self.connection, key, extent, self.now.at)?;
        let before = Record::from_parts(Parts { counter: self.meta.counter, ..parts });
        let mut record = before.clone();
        let (outcome, notices) = verb(&mut record, self.now);
        if !record.knows_its_head() {
            return Ok(None);
        }
        save::save(self.connection, key, &record.changes_since(&before))?;
        self.meta.counter = record.counter();
        self.notices.extend(notices);
        Ok(Some(outcome))
    }

    /// Looks at a key.
    pub(super) fn inspect(&self, key: &Key) -> Result<Snapshot> {
        let parts = load::load(self.connection, key, Extent::Whole(None), self.now.at)?;
        Ok(Record::from_parts(parts).inspect(key, self.now.at))
    }

    /// The keys from one on that a client holds.
    pub(super) fn keys_from(&self, first: &str, limit: usize) -> Result<Vec<String>> {
        let mut statement = self.connection.prepare_cached(include_str!("../sql/keys_from.sql"))?;
        let rows = statement.query_map((first, as_sql(limit as u64)), |row| row.get(0))?;
        rows.collect()
    }

    /// Notices what has ended where no client asks any more: one key each time.
    pub(super) fn tidy(&mut self) -> Result<()> {
        let now = as_sql(self.now.at.as_micros());
        let tombstones = "DELETE FROM graves WHERE until_us <= ?1";
        self.connection.prepare_cached(tombstones)?.execute([now])?;
        let ended = "SELECT key FROM holders WHERE until_us <= ?1 LIMIT 1";
        let key: Option<String> =
            self.connection.prepare_cached(ended)?.query_row([now], |row| row.get(0)).optional()?;
        if let Some(key) = key.and_then(|key| Key::new(key).ok()) {
            self.decide_whole(&key, None, |record, now| ((), record.settle_at(now)))?;
        }
        Ok(())
    }

    /// Writes down what was given out. False if that is more than may be: then the ceiling has to
    /// be raised and everything decided again.
    pub(super) fn close(&self) -> Result<bool> {
        if self.meta.counter > self.meta.ceiling {
            return Ok(false);
        }
        if self.meta.counter != self.counter_before {
            let counter = "UPDATE store SET counter = ?1";
            let mut statement = self.connection.prepare_cached(counter)?;
            statement.execute([as_sql(self.meta.counter)])?;
        }
        Ok(true)
    }

    /// What to tell the clients once everything is committed.
    pub(super) fn into_notices(self) -> Vec<AddressedPush> {
        self.notices
    }
}
