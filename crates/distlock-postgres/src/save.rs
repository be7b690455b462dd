//! Writing a record to its rows: no more of it than a verb changed.

use std::collections::{BTreeMap, BTreeSet};

use distlock_core::law::{Changes, HeldClaim, Record, TOMBSTONES_MAX};
use distlock_core::rows::{HolderRow, WaiterRow, as_column};
use distlock_core::{ClaimId, ClientId, Key, Moment};
use tokio_postgres::types::Type;

use super::load::{KeySums, LoadedRecord};
use super::pipeline::{
    BoundValue, Pipeline, bytes, many_bytes, many_flags, many_numbers, many_small, many_texts,
    number, small,
};

/// A record before and after a verb.
pub(super) struct DecidedRecord {
    loaded: LoadedRecord,
    before: Record,
    after: Record,
}

impl DecidedRecord {
    pub(super) fn new(loaded: LoadedRecord, before: Record, after: Record) -> Self {
        Self { loaded, before, after }
    }

    /// Adds the statements that write down what the verb changed.
    pub(super) fn save<'a>(&'a self, pipeline: &mut Pipeline<'a>, key: &'a Key) {
        let changes = self.after.changes_since(&self.before);
        let sums = self.sums(&changes);
        let sole = self.sole(&changes, &sums);
        let writer = RowWriter { pipeline, key: key.as_str().as_bytes() };
        let is_new = sums != self.loaded.sums || !changes.holders.is_empty();
        writer.write(&changes, &self.places_of_clients(), self);
        if is_new {
            pipeline.add(include_str!("../sql/put_key.sql"), put_key(key, &sums, sole));
        }
    }

    /// The clock of the server, as the verb saw it.
    pub(super) fn clock_us(&self) -> u64 {
        self.loaded.now.at.as_micros()
    }

    /// True if the next ask may find the key free.
    pub(super) fn leaves_free(&self) -> bool {
        let sums = self.sums(&self.after.changes_since(&self.before));
        sums.lines == [0, 0] && (sums.holders == 0 || sums.sharers == 0)
    }

    /// What the row of the key says after the verb.
    fn sums(&self, changes: &Changes<'_>) -> KeySums {
        let mut sums = KeySums { counter: self.after.counter(), ..self.loaded.sums.clone() };
        for (id, held) in &changes.holders {
            if let Some(before) = self.loaded.parts.holders.get(id) {
                sums.holders = sums.holders.saturating_sub(1);
                if shares(before) {
                    sums.sharers = sums.sharers.saturating_sub(1);
                    sums.shared_weight -= sums.shared_weight.min(before.weight.into());
                }
            }
            if let Some(held) = held {
                sums.holders += 1;
                if shares(held) {
                    sums.sharers += 1;
                    sums.shared_weight += u64::from(held.weight);
                }
            }
        }
        for (ticket, place) in &changes.places {
            let before = self.loaded.parts.places.get(ticket);
            if let Some(before) = before {
                let line = &mut sums.lines[usize::from(before.ask.is_exclusive())];
                *line = line.saturating_sub(1);
            }
            if let Some(place) = place {
                sums.lines[usize::from(place.ask.is_exclusive())] += 1;
            }
        }
        for until in changes.tombstones.iter().filter_map(|(_, until)| *until) {
            sums.tombstones_until = sums.tombstones_until.max(until);
        }
        sums
    }

    /// The claim that holds alone and may be given back without more ado.
    fn sole(&self, changes: &Changes<'_>, sums: &KeySums) -> Option<ClaimId> {
        if sums.holders != 1 || sums.sharers != 0 {
            return None;
        }
        let mut holders: BTreeMap<ClaimId, &HeldClaim> =
            self.loaded.parts.holders.iter().map(|(id, held)| (*id, held)).collect();
        for (id, held) in &changes.holders {
            match held {
                Some(held) => holders.insert(*id, *held),
                None => holders.remove(id),
            };
        }
        holders.into_iter().next().filter(|(_, held)| !held.kept).map(|(id, _)| id)
    }

    /// How many places each client has after the verb, of those where that has changed.
    fn places_of_clients(&self) -> BTreeMap<ClientId, i64> {
        let mut differences: BTreeMap<ClientId, i64> = BTreeMap::new();
        for (ticket, place) in &self.after.changes_since(&self.before).places {
            if let Some(before) = self.loaded.parts.places.get(ticket) {
                *differences.entry(before.client).or_default() -= 1;
            }
            if let Some(place) = place {
                *differences.entry(place.client).or_default() += 1;
            }
        }
        differences.retain(|_, difference| *difference != 0);
        for (client, places) in &mut differences {
            let before = self.loaded.places.get(client).copied().unwrap_or(0);
            *places += i64::try_from(before).unwrap_or(0);
        }
        differences
    }

    /// How many places a client had before.
    fn places_before(&self, client: ClientId) -> i64 {
        self.loaded.places.get(&client).map_or(0, |places| i64::try_from(*places).unwrap_or(0))
    }

    /// Until when a client lived before.
    fn until_before(&self, client: ClientId) -> Moment {
        let mut clients = self.loaded.parts.clients.iter();
        clients.find(|(id, ..)| *id == client).map_or(Moment::ORIGIN, |(_, until, _)| *until)
    }
}

fn shares(held: &HeldClaim) -> bool {
    held.weight < held.capacity
}

fn put_key<'a>(key: &'a Key, sums: &KeySums, sole: Option<ClaimId>) -> Vec<BoundValue<'a>> {
    let count = |count: usize| small(i32::try_from(count).unwrap_or(i32::MAX));
    vec![
        bytes(key.as_str().as_bytes()),
        number(as_column(sums.counter)),
        count(sums.holders),
        count(sums.sharers),
        number(as_column(sums.shared_weight)),
        (Box::new(sole.map(|id| id.as_bytes().to_vec())), Type::BYTEA),
        count(sums.lines[1]),
        count(sums.lines[0]),
        number(as_column(sums.tombstones_until.as_micros())),
    ]
}

/// Ids that are not part of the record any more, or are values of their own.
fn ids(ids: impl Iterator<Item = [u8; 16]>) -> BoundValue<'static> {
    (Box::new(ids.map(|id| id.to_vec()).collect::<Vec<_>>()), Type::BYTEA_ARRAY)
}

struct RowWriter<'f, 'a> {
    pipeline: &'f mut Pipeline<'a>,
    key: &'a [u8],
}

impl<'a> RowWriter<'_, 'a> {
    fn add(&mut self, sql: &'a str, mut values: Vec<BoundValue<'a>>) {
        values.insert(0, bytes(self.key));
        self.pipeline.add(sql, values);
    }

    fn write(
        mut self,
        changes: &Changes<'a>,
        places: &BTreeMap<ClientId, i64>,
        of: &DecidedRecord,
    ) {
        let (came, left): (Vec<_>, Vec<_>) =
            changes.holders.iter().copied().partition(|(_, held)| held.is_some());
        if !left.is_empty() {
            let ids = ids(left.iter().map(|(id, _)| *id.as_bytes()));
            self.add(include_str!("../sql/drop_holders.sql"), vec![ids]);
        }
        self.put_holders(&came);
        self.write_places(changes);
        self.write_clients(changes, places, of);
        self.write_tombstones(changes);
    }

    fn put_holders(&mut self, came: &[(ClaimId, Option<&'a HeldClaim>)]) {
        let ids: Vec<_> = came.iter().map(|(id, _)| id.as_bytes().to_vec()).collect();
        let rows: Vec<HolderRow<'a>> = came
            .iter()
            .filter_map(|(_, held)| held.map(|held| HolderRow::of(&NO_ID, held)))
            .collect();
        if rows.is_empty() {
            return;
        }
        let attempts: Vec<_> =
            rows.iter().map(|row| row.attempts.as_ref().map(|bytes| bytes.to_vec())).collect();
        let values = vec![
            (Box::new(ids) as _, Type::BYTEA_ARRAY),
            many_texts(rows.iter().map(|row| row.queueing)),
            many_bytes(rows.iter().map(|row| row.client)),
            many_texts(rows.iter().map(|row| row.owner)),
            many_texts(rows.iter().map(|row| row.reason)),
            many_numbers(rows.iter().map(|row| row.weight)),
            many_numbers(rows.iter().map(|row| row.capacity)),
            many_texts(rows.iter().map(|row| row.readers)),
            many_bytes(rows.iter().map(|row| row.reentry)),
            many_numbers(rows.iter().map(|row| row.fence)),
            many_numbers(rows.iter().map(|row| row.since_us)),
            many_numbers(rows.iter().map(|row| row.until_us)),
            many_flags(rows.iter().map(|row| row.kept)),
            (Box::new(attempts), Type::BYTEA_ARRAY),
        ];
        self.add(include_str!("../sql/put_holders.sql"), values);
    }

    fn write_places(&mut self, changes: &Changes<'a>) {
        let left = changes.places.iter().filter(|(_, place)| place.is_none());
        let left: Vec<_> = left.map(|(ticket, _)| as_column(*ticket)).collect();
        if !left.is_empty() {
            self.add(include_str!("../sql/drop_waiters.sql"), vec![many_numbers(left)]);
        }
        let came = changes.places.iter();
        let rows: Vec<WaiterRow<'a>> = came
            .filter_map(|(ticket, place)| place.map(|place| WaiterRow::of(*ticket, place)))
            .collect();
        if rows.is_empty() {
            return;
        }
        let attempts: Vec<_> =
            rows.iter().map(|row| row.attempts.as_ref().map(|bytes| bytes.to_vec())).collect();
        let values = vec![
            many_flags(rows.iter().map(|row| row.exclusive)),
            many_numbers(rows.iter().map(|row| row.ticket)),
            many_bytes(rows.iter().map(|row| row.claim)),
            many_texts(rows.iter().map(|row| row.queueing)),
            many_bytes(rows.iter().map(|row| row.client)),
            many_texts(rows.iter().map(|row| row.owner)),
            many_texts(rows.iter().map(|row| row.reason)),
            many_numbers(rows.iter().map(|row| row.weight)),
            many_numbers(rows.iter().map(|row| row.capacity)),
            many_texts(rows.iter().map(|row| row.readers)),
            many_bytes(rows.iter().map(|row| row.reentry)),
            many_numbers(rows.iter().map(|row| row.fence_floor)),
            many_numbers(rows.iter().map(|row| row.since_us)),
            many_numbers(rows.iter().map(|row| row.ttl_us)),
            (Box::new(attempts), Type::BYTEA_ARRAY),
        ];
        self.add(include_str!("../sql/put_waiters.sql"), values);
    }

    fn write_clients(
        &mut self,
        changes: &Changes<'a>,
        places: &BTreeMap<ClientId, i64>,
        of: &DecidedRecord,
    ) {
        let changed: BTreeMap<ClientId, Option<Moment>> = changes.clients.iter().copied().collect();
        let gone = || changed.iter().filter(|(_, until)| until.is_none());
        if gone().next().is_some() {
            let gone = ids(gone().map(|(client, _)| *client.as_bytes()));
            self.add(include_str!("../sql/drop_clients.sql"), vec![gone]);
        }
        let alive = changed.iter().filter(|(_, until)| until.is_some()).map(|(client, _)| *client);
        let moved = places.keys().copied().filter(|client| !changed.contains_key(client));
        let put: BTreeSet<ClientId> = alive.chain(moved).collect();
        if put.is_empty() {
            return;
        }
        let until = |client: &ClientId| {
            let until = changed.get(client).copied().flatten();
            as_column(until.unwrap_or_else(|| of.until_before(*client)).as_micros())
        };
        let count = |client: &ClientId| {
            let count = places.get(client).copied().unwrap_or_else(|| of.places_before(*client));
            i32::try_from(count).unwrap_or(i32::MAX)
        };
        let values = vec![
            ids(put.iter().map(|client| *client.as_bytes())),
            many_numbers(put.iter().map(until)),
            many_small(put.iter().map(count)),
        ];
        self.add(include_str!("../sql/put_clients.sql"), values);
    }

    fn write_tombstones(&mut self, changes: &Changes<'a>) {
        let gone = || changes.tombstones.iter().filter(|(_, until)| until.is_none());
        if gone().next().is_some() {
            let gone = ids(gone().map(|(id, _)| *id.as_bytes()));
            self.add(include_str!("../sql/drop_tombstones.sql"), vec![gone]);
        }
        let put: Vec<_> = changes
            .tombstones
            .iter()
            .filter_map(|(id, until)| until.map(|until| (*id, until)))
            .collect();
        if put.is_empty() {
            return;
        }
        let until = put.iter().map(|(_, until)| as_column(until.as_micros()));
        let values = vec![ids(put.iter().map(|(id, _)| *id.as_bytes())), many_numbers(until)];
        self.add(include_str!("../sql/put_tombstones.sql"), values);
        let most = i64::try_from(TOMBSTONES_MAX).unwrap_or(i64::MAX);
        self.add(include_str!("../sql/limit_tombstones.sql"), vec![number(most)]);
    }
}

/// Stands in for the claim of a row whose claim is written apart.
const NO_ID: ClaimId = ClaimId::from_bytes([0; 16]);
