//! Reading a record from its rows: no more of it than a verb needs.

use std::collections::BTreeSet;

use distlock_core::law::{OmittedRows, Parts};
use distlock_core::rows::{self, EXCERPT_LEN, Extent, HOLDERS_MAX, VerbSubject};
use distlock_core::{ClientId, Key, Moment, Ticket};
use rusqlite::{Connection, OptionalExtension, Params, Result, params};

use super::cells::{self, as_count, as_sql, bad_row, moment, number};

/// Reads a record. What has ended is part of it: the law drops it.
pub(super) fn load(
    connection: &Connection,
    key: &Key,
    extent: Extent,
    now: Moment,
) -> Result<Parts> {
    let mut parts = Parts::default();
    load_holders(connection, key, extent, now, &mut parts)?;
    let lengths = "SELECT exclusive, shared FROM queues WHERE key = ?1";
    let lengths = connection
        .prepare_cached(lengths)?
        .query_row([key.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
        .optional()?;
    if let Some((exclusive, shared)) = lengths {
        let lengths = [as_count(shared), as_count(exclusive)];
        load_queue(connection, key, extent, now, lengths, &mut parts)?;
    }
    // A claim that is dead stays dead, also where a verb is decided again on the whole record.
    let (Extent::For(_, about) | Extent::Whole(Some(about))) = extent else { return Ok(parts) };
    for buried in about.tombstones() {
        let tombstone = "SELECT until_us FROM graves WHERE key = ?1 AND claim = ?2";
        let until = connection
            .prepare_cached(tombstone)?
            .query_row(params![key.as_str(), buried.as_bytes()], |row| moment(row, 0))
            .optional()?;
        parts.tombstones.extend(until.map(|until| (buried, until)));
    }
    Ok(parts)
}

/// Reads the holders that a verb needs, and counts the rest.
fn load_holders(
    connection: &Connection,
    key: &Key,
    extent: Extent,
    now: Moment,
    parts: &mut Parts,
) -> Result<()> {
    let read = |sql: &str, params: &[&dyn rusqlite::ToSql], into: &mut Parts| -> Result<()> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            let (claim, held) = cells::holder(row)?.read().map_err(bad_row)?;
            into.holders.insert(claim, held);
        }
        Ok(())
    };
    let name = key.as_str();
    let limit = if let Extent::For(..) = extent { HOLDERS_MAX + 1 } else { u64::MAX };
    read(include_str!("../sql/holders.sql"), params![name, as_sql(limit)], parts)?;
    let Extent::For(_, about) = extent else { return Ok(()) };
    if parts.holders.len() as u64 <= HOLDERS_MAX {
        return Ok(());
    }
    let crowd = "SELECT sharers, weight FROM crowds WHERE key = ?1";
    let crowd = connection
        .prepare_cached(crowd)?
        .query_row([name], |row| Ok((row.get::<_, i64>(0)?, number(row, 1)?)))
        .optional()?;
    let Some((sharers, weight)) = crowd else {
        // One thread of work that has entered many times.
        return read(include_str!("../sql/holders.sql"), params![name, i64::MAX], parts);
    };
    let now = as_sql(now.as_micros());
    read(include_str!("../sql/dead_sharers.sql"), params![name, now], parts)?;
    read(include_str!("../sql/first_sharers.sql"), params![name, now], parts)?;
    read(include_str!("../sql/last_sharer.sql"), params![name, now], parts)?;
    match about {
        VerbSubject::Claim(claim) | VerbSubject::Attempt(claim, _) => {
            read(include_str!("../sql/holder.sql"), params![name, claim.as_bytes()], parts)?;
        }
        VerbSubject::Fence(fence) => {
            let params = params![name, as_sql(fence)];
            read(include_str!("../sql/holders_with_fence.sql"), params, parts)?;
        }
    }
    parts.crowd = rows::crowd(parts, as_count(sharers), weight);
    Ok(())
}

/// Reads the places that a verb needs, the clients they belong to, and counts the rest.
fn load_queue(
    connection: &Connection,
    key: &Key,
    extent: Extent,
    now: Moment,
    lengths: [usize; 2],
    parts: &mut Parts,
) -> Result<()> {
    let mut queue = PartsReader { connection, key, parts };
    let (caller, about) = match extent {
        Extent::Whole(_) => {
            queue.read(include_str!("../sql/waiters.sql"), [key.as_str()])?;
            return queue.read_clients(None, [OmittedRows::default(); 2]);
        }
        Extent::For(client, about) => (client, about),
    };
    let mut after = [0; 2];
    for line in [0, 1] {
        let head = queue.read(
            include_str!("../sql/head.sql"),
            params![key.as_str(), as_sql(line as u64), as_sql(EXCERPT_LEN)],
        )?;
        after[line] = head.last().copied().unwrap_or(0);
    }
    let mut own = 0;
    if let Some(claim) = about.claim() {
        let params = params![key.as_str(), claim.as_bytes()];
        let found = queue.read(include_str!("../sql/waiter.sql"), params)?;
        own = found.first().copied().unwrap_or(0);
    }
    let dead = params![key.as_str(), as_sql(now.as_micros())];
    queue.read(include_str!("../sql/dead_waiters.sql"), dead)?;
    let reentries: BTreeSet<_> =
        queue.parts.places.values().filter_map(|place| place.ask.reentry).collect();
    for reentry in reentries {
        let params = params![key.as_str(), reentry.as_bytes()];
        queue.read(include_str!("../sql/reentrant_waiters.sql"), params)?;
    }
    let mut rests = [OmittedRows::default(); 2];
    for line in [0, 1] {
        let before = || queue.before(line, own);
        rests[line] =
            rows::rest(queue.parts, line == 1, lengths[line], (after[line], own), before)?;
    }
    queue.read_clients(Some(caller), rests)
}

/// Reads into the parts of one key.
struct PartsReader<'a> {
    connection: &'a Connection,
    key: &'a Key,
    parts: &'a mut Parts,
}

impl PartsReader<'_> {
    /// Reads places; answers their tickets in the sequence in which they came.
    fn read(&mut self, sql: &str, params: impl Params) -> Result<Vec<Ticket>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut tickets = Vec::new();
        while let Some(row) = rows.next()? {
            let (ticket, place) = cells::waiter(row)?.read(self.key).map_err(bad_row)?;
            self.parts.places.insert(ticket, place);
            tickets.push(ticket);
        }
        Ok(tickets)
    }

    /// How many of a line are before a ticket.
    fn before(&self, line: usize, own: Ticket) -> Result<usize> {
        let mut before = self.connection.prepare_cached(include_str!("../sql/before.sql"))?;
        let params = params![self.key.as_str(), as_sql(line as u64), as_sql(own)];
        before.query_row(params, |row| row.get(0)).map(as_count)
    }

    /// Reads the heartbeats of all clients whose places were read, and of the one that calls.
    fn read_clients(&mut self, caller: Option<ClientId>, rests: [OmittedRows; 2]) -> Result<()> {
        [self.parts.shared, self.parts.exclusive] = rests;
        let is_whole = rests.iter().all(|rest| rest.count == 0);
        let clients = rows::clients_of(self.parts, caller);
        let until = "SELECT until_us FROM clients WHERE key = ?1 AND client = ?2";
        let mut until = self.connection.prepare_cached(until)?;
        for (client, read) in clients {
            let params = params![self.key.as_str(), client.as_bytes()];
            if let Some(until) = until.query_row(params, |row| moment(row, 0)).optional()? {
                let has_more = !is_whole && self.has_more(client, read)?;
                self.parts.clients.push((client, until, has_more));
            }
        }
        Ok(())
    }

    fn has_more(&self, client: ClientId, read: usize) -> Result<bool> {
        let mut places = self.connection.prepare_cached(include_str!("../sql/places_of.sql"))?;
        let params = params![self.key.as_str(), client.as_bytes(), as_sql(read as u64 + 1)];
        let places = as_count(places.query_row(params, |row| row.get(0))?);
        Ok(places > read)
    }
}
