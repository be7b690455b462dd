//! Reading a record from its rows: no more of it than a verb needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use distlock_core::law::{HeldClaim, OmittedRows, Parts, WaitingClaim};
use distlock_core::{Ask, AttemptId, Claim, ClaimId, ClientId, Key, Moment, ReentryId, Ticket};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};

use super::cells::{as_count, as_sql, attempts, label, moment, number, order, required_label};

/// How many of each line a verb gets to see. If it admits all of them it is decided once more on
/// the whole record, so a larger number only helps locks that let in many at once. Where the code
/// is debugged, queues are short: tests shall meet the edges, too.
const EXCERPT_LEN: u64 = if cfg!(debug_assertions) { 2 } else { 8 };

/// How many holders are read without a second thought. If there are more, they are a crowd of which
/// a verb gets to see those that matter.
const HOLDERS: u64 = if cfg!(debug_assertions) { 1 } else { 16 };

/// What a verb is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbSubject {
    /// A claim that holds, waits, or would like to.
    Claim(ClaimId),
    /// The same in one call for it, which may be dead by itself.
    Attempt(ClaimId, AttemptId),
    /// The holder with this fence.
    Fence(u64),
}

impl VerbSubject {
    pub(super) fn new(claim: ClaimId, attempt: Option<AttemptId>) -> Self {
        attempt.map_or(Self::Claim(claim), |attempt| Self::Attempt(claim, attempt))
    }

    fn claim(self) -> Option<ClaimId> {
        match self {
            Self::Claim(claim) | Self::Attempt(claim, _) => Some(claim),
            Self::Fence(_) => None,
        }
    }

    /// The ids under which it may be dead.
    fn buried(self) -> [Option<ClaimId>; 2] {
        let attempt = match self {
            Self::Attempt(claim, attempt) => Some(attempt.tombstone(&claim)),
            Self::Claim(_) | Self::Fence(_) => None,
        };
        [self.claim(), attempt]
    }
}

/// What a verb needs of a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// Enough for one verb of this client.
    For(ClientId, VerbSubject),
    /// All of it.
    Whole,
}

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
    let Extent::For(_, about) = extent else { return Ok(parts) };
    for buried in about.buried().into_iter().flatten() {
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
            into.holders.insert(ClaimId::from_bytes(row.get(0)?), held(row)?);
        }
        Ok(())
    };
    let name = key.as_str();
    let limit = if let Extent::For(..) = extent { HOLDERS + 1 } else { u64::MAX };
    read(include_str!("../sql/holders.sql"), params![name, as_sql(limit)], parts)?;
    let Extent::For(_, about) = extent else { return Ok(()) };
    if parts.holders.len() as u64 <= HOLDERS {
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
    let seen: u64 = parts.holders.values().map(|held| u64::from(held.weight)).sum();
    parts.crowd.count = as_count(sharers).saturating_sub(parts.holders.len());
    parts.crowd.weight = weight.saturating_sub(seen);
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
        Extent::Whole => {
            queue.read(include_str!("../sql/waiters.sql"), [key.as_str()])?;
            return queue.read_clients(None, [OmittedRows::default(); 2]);
        }
        Extent::For(client, about) => (client, about),
    };
    let mut rests = [OmittedRows::default(); 2];
    for line in [0, 1] {
        let head = queue.read(
            include_str!("../sql/head.sql"),
            params![key.as_str(), as_sql(line as u64), as_sql(EXCERPT_LEN)],
        )?;
        rests[line].after = head.last().copied().unwrap_or(0);
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
    for line in [0, 1] {
        rests[line] = queue.rest(line, lengths[line], own, rests[line])?;
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
            let (ticket, place) = place(self.key, row)?;
            self.parts.places.insert(ticket, place);
            tickets.push(ticket);
        }
        Ok(tickets)
    }

    /// What of a line was not read.
    fn rest(
        &self,
        line: usize,
        length: usize,
        own: Ticket,
        rest: OmittedRows,
    ) -> Result<OmittedRows> {
        let read = || {
            let in_line = move |place: &WaitingClaim| usize::from(place.ask.is_exclusive()) == line;
            self.parts.places.iter().filter(move |(_, place)| in_line(place))
        };
        let count = length.saturating_sub(read().count());
        if count == 0 || own == 0 {
            return Ok(OmittedRows { count, own, ..rest });
        }
        let mut before = self.connection.prepare_cached(include_str!("../sql/before.sql"))?;
        let params = params![self.key.as_str(), as_sql(line as u64), as_sql(own)];
        let before = as_count(before.query_row(params, |row| row.get(0))?);
        let before_own = before.saturating_sub(read().filter(|(ticket, _)| **ticket < own).count());
        Ok(OmittedRows { count, own, before_own, ..rest })
    }

    /// Reads the heartbeats of all clients whose places were read, and of the one that calls.
    fn read_clients(&mut self, caller: Option<ClientId>, rests: [OmittedRows; 2]) -> Result<()> {
        [self.parts.shared, self.parts.exclusive] = rests;
        let is_whole = rests.iter().all(|rest| rest.count == 0);
        let mut clients: BTreeMap<ClientId, usize> = BTreeMap::new();
        for place in self.parts.places.values() {
            *clients.entry(place.client).or_default() += 1;
        }
        clients.extend(caller.filter(|caller| !clients.contains_key(caller)).map(|id| (id, 0)));
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

fn held(row: &Row<'_>) -> Result<HeldClaim> {
    Ok(HeldClaim {
        client: ClientId::from_bytes(row.get(2)?),
        owner: required_label(row, 3)?,
        reason: label(row, 4)?,
        weight: row.get(5)?,
        capacity: row.get(6)?,
        order: order(row, 1)?,
        group: label(row, 7)?,
        reentry: row.get::<_, Option<_>>(8)?.map(ReentryId::from_bytes),
        fence: number(row, 9)?,
        since: moment(row, 10)?,
        until: moment(row, 11)?,
        kept: row.get(12)?,
        attempts: attempts(row, 13)?,
    })
}

fn place(key: &Key, row: &Row<'_>) -> Result<(Ticket, WaitingClaim)> {
    let ask = Ask {
        claim: Claim::new(key.clone(), ClaimId::from_bytes(row.get(1)?)),
        attempt: None,
        owner: required_label(row, 4)?,
        reason: label(row, 5)?,
        weight: row.get(6)?,
        capacity: row.get(7)?,
        order: order(row, 2)?,
        group: label(row, 8)?,
        reentry: row.get::<_, Option<_>>(9)?.map(ReentryId::from_bytes),
        ttl: Duration::from_micros(number(row, 13)?),
        witness: None,
        fence_floor: row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned),
        wait: None,
    };
    let client = ClientId::from_bytes(row.get(3)?);
    let (since, attempts) = (moment(row, 11)?, attempts(row, 12)?);
    Ok((number(row, 0)?, WaitingClaim { ask, client, since, attempts }))
}
