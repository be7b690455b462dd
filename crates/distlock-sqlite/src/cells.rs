//! The rows of the file as the core knows them.

use std::borrow::Cow;

use distlock_core::rows::{BadRow, HolderRow, WaiterRow};
use rusqlite::types::{FromSqlResult, Type, ValueRef};
use rusqlite::{Error, Result, Row};

pub(super) use distlock_core::rows::{as_column as as_sql, as_count, as_number};

use distlock_core::Moment;

/// The columns of a holder, as all statements that read one name them.
pub(super) fn holder<'a>(row: &'a Row<'_>) -> Result<HolderRow<'a>> {
    Ok(HolderRow {
        claim: bytes(row, 0)?,
        queueing: text(row, 1)?,
        client: bytes(row, 2)?,
        owner: text(row, 3)?,
        reason: optional_text(row, 4)?,
        weight: row.get(5)?,
        capacity: row.get(6)?,
        readers: optional_text(row, 7)?,
        reentry: optional_bytes(row, 8)?,
        fence: row.get(9)?,
        since_us: row.get(10)?,
        until_us: row.get(11)?,
        kept: row.get(12)?,
        attempts: optional_bytes(row, 13)?.map(Cow::Borrowed),
    })
}

/// The columns of a waiter, as all statements that read one name them.
pub(super) fn waiter<'a>(row: &'a Row<'_>) -> Result<WaiterRow<'a>> {
    let (weight, capacity) = (row.get(6)?, row.get(7)?);
    Ok(WaiterRow {
        exclusive: weight == capacity,
        ticket: row.get(0)?,
        claim: bytes(row, 1)?,
        queueing: text(row, 2)?,
        client: bytes(row, 3)?,
        owner: text(row, 4)?,
        reason: optional_text(row, 5)?,
        weight,
        capacity,
        readers: optional_text(row, 8)?,
        reentry: optional_bytes(row, 9)?,
        fence_floor: row.get(10)?,
        since_us: row.get(11)?,
        attempts: optional_bytes(row, 12)?.map(Cow::Borrowed),
        ttl_us: row.get(13)?,
    })
}

/// A row that distlock did not write, as an error of the client crate.
pub(super) fn bad_row(bad: BadRow) -> Error {
    Error::FromSqlConversionFailure(0, Type::Text, bad.into())
}

pub(super) fn moment(row: &Row<'_>, column: usize) -> Result<Moment> {
    number(row, column).map(Moment::from_micros)
}

pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    row.get(column).map(as_number)
}

fn read<'a, T>(
    row: &'a Row<'_>,
    column: usize,
    read: impl FnOnce(ValueRef<'a>) -> FromSqlResult<T>,
) -> Result<T> {
    Ok(read(row.get_ref(column)?)?)
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str> {
    read(row, column, |value| value.as_str())
}

fn optional_text<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a str>> {
    read(row, column, |value| value.as_str_or_null())
}

fn bytes<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8]> {
    read(row, column, |value| value.as_blob())
}

fn optional_bytes<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a [u8]>> {
    read(row, column, |value| value.as_blob_or_null())
}
