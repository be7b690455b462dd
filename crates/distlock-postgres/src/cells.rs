//! The rows of the tables as the core knows them.

use std::borrow::Cow;
use std::fmt;

use distlock_core::rows::{BadRow, HolderRow, WaiterRow};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

/// Why a row was not read.
#[derive(Debug)]
pub(super) enum RowError {
    /// Another program wrote it.
    Bad(BadRow),
    /// The tables are not those of this version.
    Columns(tokio_postgres::Error),
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(bad) => write!(f, "{bad}"),
            Self::Columns(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RowError {}

impl From<BadRow> for RowError {
    fn from(bad: BadRow) -> Self {
        Self::Bad(bad)
    }
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, RowError> {
    row.try_get(column).map_err(RowError::Columns)
}

/// The columns of a holder, as all statements that read one name them.
pub(super) fn holder(row: &Row) -> Result<HolderRow<'_>, RowError> {
    Ok(HolderRow {
        claim: get(row, 0)?,
        queueing: get(row, 1)?,
        client: get(row, 2)?,
        owner: get(row, 3)?,
        reason: get(row, 4)?,
        weight: get(row, 5)?,
        capacity: get(row, 6)?,
        readers: get(row, 7)?,
        reentry: get(row, 8)?,
        fence: get(row, 9)?,
        since_us: get(row, 10)?,
        until_us: get(row, 11)?,
        kept: get(row, 12)?,
        attempts: get::<Option<&[u8]>>(row, 13)?.map(Cow::Borrowed),
    })
}

/// The columns of a waiter, as all statements that read one name them.
pub(super) fn waiter(row: &Row) -> Result<WaiterRow<'_>, RowError> {
    Ok(WaiterRow {
        exclusive: get(row, 0)?,
        ticket: get(row, 1)?,
        claim: get(row, 2)?,
        queueing: get(row, 3)?,
        client: get(row, 4)?,
        owner: get(row, 5)?,
        reason: get(row, 6)?,
        weight: get(row, 7)?,
        capacity: get(row, 8)?,
        readers: get(row, 9)?,
        reentry: get(row, 10)?,
        fence_floor: get(row, 11)?,
        since_us: get(row, 12)?,
        ttl_us: get(row, 13)?,
        attempts: get::<Option<&[u8]>>(row, 14)?.map(Cow::Borrowed),
    })
}

/// The number of the column that says until when the client of a waiter lives; how many places the
/// client has is in the next one.
pub(super) const WAITER_CLIENT: usize = 15;
