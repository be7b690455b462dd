//! Reading a record from its rows: no more of it than a verb needs.

use std::collections::{BTreeMap, BTreeSet};

use distlock_core::law::{Now, Parts};
use distlock_core::rows::{
    self, BadRow, EXCERPT_LEN, HOLDERS_MAX, VerbSubject, as_column, as_count, as_number,
};
use distlock_core::{ClaimId, ClientId, FENCE_MAX, Key, Moment, ReentryId, Ticket};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::cells::{self, RowError, WAITER_CLIENT, get};
use super::pipeline::{BoundValue, Pipeline, bytes, many_bytes, number};

/// What the row of a key says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeySums {
    pub(super) counter: u64,
    pub(super) holders: usize,
    pub(super) sharers: usize,
    pub(super) shared_weight: u64,
    /// How long the two lines are: shared waiters, and exclusive ones.
    pub(super) lines: [usize; 2],
    pub(super) tombstones_until: Moment,
}

/// A record as it was read: the excerpt, and what a change of it has to know.
#[derive(Clone, Debug)]
pub(super) struct LoadedRecord {
    pub(super) sums: KeySums,
    pub(super) parts: Parts,
    pub(super) now: Now,
    /// How many places each client has that was read.
    pub(super) places: BTreeMap<ClientId, usize>,
}

/// How much of a record is read.
#[derive(Clone, Debug)]
pub(super) enum ReadExtent {
    /// Enough for verbs of this client that only add to the record, or for one that does not.
    For(ClientId, Vec<VerbSubject>),
    /// All of it but the tombstones, of which only those of the subjects matter.
    Whole(Vec<VerbSubject>),
}

/// Where the rows of an excerpt are among the answers of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct ExcerptQuery {
    extent: ReadExtent,
    first: usize,
}

impl ExcerptQuery {
    /// Adds the statements that read a record. What has ended is part of it: the law drops it.
    pub(super) fn ask<'a>(pipeline: &mut Pipeline<'a>, key: &'a Key, extent: ReadExtent) -> Self {
        let key = || bytes(key.as_str().as_bytes());
        let first = pipeline.add(include_str!("../sql/state.sql"), vec![key()]);
        let tombstones = |abouts: &[VerbSubject]| {
            vec![key(), ids(abouts.iter().flat_map(|about| about.tombstones()))]
        };
        let (client, abouts) = match &extent {
            ReadExtent::For(client, abouts) => (client, abouts),
            ReadExtent::Whole(abouts) => {
                pipeline.add(include_str!("../sql/holders.sql"), vec![key()]);
                pipeline.add(include_str!("../sql/waiters.sql"), vec![key()]);
                pipeline.add(include_str!("../sql/tombstones.sql"), tombstones(abouts));
                return Self { extent, first };
            }
        };
        let claims = || ids(abouts.iter().filter_map(|about| about.claim()));
        let fence = abouts.iter().find_map(|about| match about {
            VerbSubject::Fence(fence) => Some(as_column(*fence)),
            _ => None,
        });
        let few = number(as_column(HOLDERS_MAX));
        let holders = vec![key(), claims(), number(fence), few];
        pipeline.add(include_str!("../sql/holders_for.sql"), holders);
        let head = number(as_column(EXCERPT_LEN));
        pipeline.add(include_str!("../sql/waiters_for.sql"), vec![key(), claims(), head]);
        pipeline.add(include_str!("../sql/before.sql"), vec![key(), claims()]);
        let caller: BoundValue<'_> = (Box::new(client.as_bytes().to_vec()), Type::BYTEA);
        pipeline.add(include_str!("../sql/client.sql"), vec![key(), caller]);
        pipeline.add(include_str!("../sql/tombstones.sql"), tombstones(abouts));
        Self { extent, first }
    }

    /// Reads the rows. `seen` is a fence that this client knows of: fences of all keys go on above
    /// it. None if the verbs need the whole record: several of their claims wait already.
    pub(super) fn read(
        self,
        key: &Key,
        answers: &[Vec<Row>],
        seen: u64,
    ) -> Result<Option<LoadedRecord>, RowError> {
        let rows = |nth: usize| answers.get(self.first + nth).map_or(&[][..], Vec::as_slice);
        let mut loaded = state(rows(0).first(), seen)?;
        for row in rows(1) {
            let (claim, held) = cells::holder(row)?.read()?;
            loaded.parts.holders.insert(claim, held);
        }
        loaded.add_waiters(key, rows(2))?;
        let (client, abouts, tombstones) = match self.extent {
            ReadExtent::For(client, abouts) => (Some(client), abouts, rows(5)),
            // A claim that is dead stays dead, also where it is decided on the whole record.
            ReadExtent::Whole(abouts) => (None, abouts, rows(3)),
        };
        for row in tombstones {
            let (claim, until) = (get::<&[u8]>(row, 0)?, get(row, 1)?);
            let mut ids = abouts.iter().flat_map(|about| about.tombstones());
            if let Some(id) = ids.find(|id| id.as_bytes() == claim) {
                loaded.parts.tombstones.push((id, Moment::from_micros(as_number(until))));
            }
        }
        let Some(client) = client else { return Ok(Some(loaded)) };
        if rows(3).len() > 1 {
            return Ok(None);
        }
        if loaded.sums.sharers as u64 > HOLDERS_MAX {
            let (sharers, weight) = (loaded.sums.sharers, loaded.sums.shared_weight);
            loaded.parts.crowd = rows::crowd(&loaded.parts, sharers, weight);
        }
        if let Some(row) = rows(4).first() {
            let until = Moment::from_micros(as_number(get(row, 0)?));
            loaded.add_client(client, until, as_count(get::<i32>(row, 1)?.into()));
        }
        loaded.leave_out(rows(3).first())?;
        Ok(Some(loaded))
    }
}

/// The places whose thread of work is part of an excerpt have to be part of it, too: most have
/// none.
pub(super) fn reentries(loaded: &LoadedRecord) -> Vec<ReentryId> {
    let places = loaded.parts.places.values();
    let ids: BTreeSet<_> = places.filter_map(|place| place.ask.reentry).collect();
    ids.into_iter().collect()
}

/// Adds the statement that reads those places.
pub(super) fn ask_reentries<'a>(pipeline: &mut Pipeline<'a>, key: &'a Key, ids: &'a [ReentryId]) {
    let ids = many_bytes(ids.iter().map(|id| id.as_bytes().as_slice()));
    let key = bytes(key.as_str().as_bytes());
    pipeline.add(include_str!("../sql/waiters_with_reentry.sql"), vec![key, ids]);
}

fn state(row: Option<&Row>, seen: u64) -> Result<LoadedRecord, RowError> {
    let row = row.ok_or_else(|| BadRow { column: "key", why: "no row".to_owned() })?;
    let count = |at| Ok::<_, RowError>(as_count(get::<i32>(row, at)?.into()));
    let sums = KeySums {
        counter: as_number(get(row, 0)?),
        holders: count(1)?,
        sharers: count(2)?,
        shared_weight: as_number(get(row, 3)?),
        lines: [count(5)?, count(4)?],
        tombstones_until: Moment::from_micros(as_number(get(row, 6)?)),
    };
    let us = as_number(get(row, 7)?);
    let now = Now { at: Moment::from_micros(us), seed: us.max(seen.saturating_add(1)) };
    let parts = Parts { counter: sums.counter, ..Parts::default() };
    Ok(LoadedRecord { sums, parts, now, places: BTreeMap::new() })
}

impl LoadedRecord {
    /// A record of which nothing was read yet.
    pub(super) fn empty() -> Self {
        let now = Now { at: Moment::ORIGIN, seed: 0 };
        let (sums, parts) = (KeySums::default(), Parts::default());
        Self { sums, parts, now, places: BTreeMap::new() }
    }

    /// Takes in places, some of them perhaps again, and the heartbeats of their clients.
    pub(super) fn add_waiters<'r>(
        &mut self,
        key: &Key,
        rows: impl IntoIterator<Item = &'r Row>,
    ) -> Result<(), RowError> {
        for row in rows {
            let (ticket, place) = cells::waiter(row)?.read(key)?;
            let until = Moment::from_micros(as_number(get(row, WAITER_CLIENT)?));
            let places = as_count(get::<i32>(row, WAITER_CLIENT + 1)?.into());
            self.add_client(place.client, until, places);
            self.parts.places.insert(ticket, place);
        }
        Ok(())
    }

    fn add_client(&mut self, client: ClientId, until: Moment, places: usize) {
        if self.places.insert(client, places).is_none() {
            self.parts.clients.push((client, until, false));
        }
    }

    /// Says what was left out, once all places were read that are part of the excerpt.
    fn leave_out(&mut self, before: Option<&Row>) -> Result<(), RowError> {
        let (mut own, mut before_own) = (0, [0; 2]);
        if let Some(row) = before {
            own = as_number(get(row, 0)?);
            before_own = [as_count(get(row, 1)?), as_count(get(row, 2)?)];
        }
        let parts = &self.parts;
        let rest = |line: usize| {
            let before = || Ok::<_, RowError>(before_own[line]);
            let after = self.after(line == 1);
            rows::rest(parts, line == 1, self.sums.lines[line], (after, own), before)
        };
        let (shared, exclusive) = (rest(0)?, rest(1)?);
        self.parts.shared = shared;
        self.parts.exclusive = exclusive;
        self.count_places();
        Ok(())
    }

    /// The last of those that were read as the head of a line.
    fn after(&self, exclusive: bool) -> Ticket {
        let line = self.parts.places.iter();
        let line = line.filter(|(_, place)| place.ask.is_exclusive() == exclusive);
        let head = usize::try_from(EXCERPT_LEN).unwrap_or(usize::MAX);
        line.take(head).last().map_or(0, |(ticket, _)| *ticket)
    }

    /// Takes in further places of threads of work, which were left out until then.
    pub(super) fn add_reentries(&mut self, key: &Key, rows: &[Row]) -> Result<(), RowError> {
        let known: BTreeSet<Ticket> = self.parts.places.keys().copied().collect();
        self.add_waiters(key, rows)?;
        let own = self.parts.exclusive.own.max(self.parts.shared.own);
        for (ticket, place) in &self.parts.places {
            if known.contains(ticket) {
                continue;
            }
            let exclusive = place.ask.is_exclusive();
            let line = if exclusive { &mut self.parts.exclusive } else { &mut self.parts.shared };
            line.count = line.count.saturating_sub(1);
            line.before_own = line.before_own.saturating_sub(usize::from(*ticket < own));
        }
        self.count_places();
        Ok(())
    }

    /// Says of each client whether it has places that were left out.
    fn count_places(&mut self) {
        let read = rows::clients_of(&self.parts, None);
        for (client, _, has_more) in &mut self.parts.clients {
            let read = read.get(client).copied().unwrap_or(0);
            *has_more = self.places.get(client).is_some_and(|places| *places > read);
        }
    }
}

/// Ids as an array of their own.
fn ids(ids: impl Iterator<Item = ClaimId>) -> BoundValue<'static> {
    (Box::new(ids.map(|id| id.as_bytes().to_vec()).collect::<Vec<_>>()), Type::BYTEA_ARRAY)
}

/// The largest fence, as a column.
pub(super) fn fence_max() -> i64 {
    as_column(FENCE_MAX)
}
