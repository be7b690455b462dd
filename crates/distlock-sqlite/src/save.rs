//! Writing a record to its rows: no more of it than a verb changed.

use distlock_core::law::{Changes, HeldClaim, TOMBSTONES_MAX, WaitingClaim};
use distlock_core::rows::{HolderRow, WaiterRow};
use distlock_core::{ClaimId, Key, Moment, Ticket};
use rusqlite::{Connection, Params, Result, params};

use super::cells::as_sql;

/// Ends a hold.
pub(super) const DROP_HOLDER: &str = "DELETE FROM holders WHERE key = ?1 AND claim = ?2";

/// Writes down what a verb changed.
pub(super) fn save(connection: &Connection, key: &Key, changes: &Changes<'_>) -> Result<()> {
    let writer = PartsWriter { connection, key: key.as_str() };
    for (id, held) in &changes.holders {
        writer.holder(*id, *held)?;
    }
    for (ticket, place) in &changes.places {
        writer.waiter(*ticket, *place)?;
    }
    for (client, until) in &changes.clients {
        writer.client(client.as_bytes(), *until)?;
    }
    for (id, until) in &changes.tombstones {
        writer.tombstone(*id, *until)?;
    }
    Ok(())
}

/// Writes the rows of one key; none means that the row goes.
struct PartsWriter<'a> {
    connection: &'a Connection,
    key: &'a str,
}

impl PartsWriter<'_> {
    fn run(&self, sql: &str, params: impl Params) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute(params).map(drop)
    }

    fn holder(&self, id: ClaimId, held: Option<&HeldClaim>) -> Result<()> {
        let Some(held) = held else {
            return self.run(DROP_HOLDER, params![self.key, id.as_bytes()]);
        };
        let row = HolderRow::of(&id, held);
        let params = params![
            self.key,
            row.claim,
            row.queueing,
            row.client,
            row.owner,
            row.reason,
            row.weight,
            row.capacity,
            row.readers,
            row.reentry,
            row.fence,
            row.since_us,
            row.until_us,
            row.kept,
            row.attempts,
        ];
        self.run(include_str!("../sql/put_holder.sql"), params)
    }

    fn waiter(&self, ticket: Ticket, place: Option<&WaitingClaim>) -> Result<()> {
        let Some(place) = place else {
            let gone = include_str!("../sql/drop_waiter.sql");
            return self.run(gone, params![self.key, as_sql(ticket)]);
        };
        let row = WaiterRow::of(ticket, place);
        let params = params![
            self.key,
            row.exclusive,
            row.ticket,
            row.claim,
            row.queueing,
            row.client,
            row.owner,
            row.reason,
            row.weight,
            row.capacity,
            row.readers,
            row.reentry,
            row.fence_floor,
            row.since_us,
            row.attempts,
            row.ttl_us,
        ];
        self.run(include_str!("../sql/put_waiter.sql"), params)
    }

    fn client(&self, client: &[u8; 16], until: Option<Moment>) -> Result<()> {
        let Some(until) = until else {
            let gone = "DELETE FROM clients WHERE key = ?1 AND client = ?2";
            return self.run(gone, params![self.key, client]);
        };
        let params = params![self.key, client, as_sql(until.as_micros())];
        self.run(include_str!("../sql/put_client.sql"), params)
    }

    fn tombstone(&self, id: ClaimId, until: Option<Moment>) -> Result<()> {
        let Some(until) = until else {
            let gone = "DELETE FROM graves WHERE key = ?1 AND claim = ?2";
            return self.run(gone, params![self.key, id.as_bytes()]);
        };
        let params = params![self.key, id.as_bytes(), as_sql(until.as_micros())];
        self.run(include_str!("../sql/put_grave.sql"), params)?;
        let most = as_sql(TOMBSTONES_MAX as u64);
        self.run(include_str!("../sql/limit_graves.sql"), params![self.key, most])
    }
}
