//! The values in the columns of rows.

use distlock_core::law::Attempts;
use distlock_core::{Label, Moment, Order};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};

const ORDERS: [(Order, &str); 3] = [
    (Order::Fifo, "fifo"),
    (Order::PreferWriters, "prefer-writers"),
    (Order::PreferReaders, "prefer-readers"),
];

pub(super) fn order_name(order: Order) -> &'static str {
    ORDERS.iter().find(|(one, _)| *one == order).map_or("fifo", |(_, name)| name)
}

pub(super) fn order(row: &Row<'_>, column: usize) -> Result<Order> {
    let name: &str = row.get_ref(column)?.as_str()?;
    let found = ORDERS.iter().find(|(_, known)| *known == name);
    found.map(|(order, _)| *order).ok_or_else(|| nonsense(column, "an unknown order"))
}

pub(super) fn label(row: &Row<'_>, column: usize) -> Result<Option<Label>> {
    match row.get_ref(column)?.as_str_or_null()? {
        None => Ok(None),
        Some(text) => Label::new("label", text).map(Some).map_err(|error| nonsense(column, error)),
    }
}

pub(super) fn required_label(row: &Row<'_>, column: usize) -> Result<Label> {
    label(row, column)?.ok_or_else(|| nonsense(column, "no label"))
}

pub(super) fn attempts(row: &Row<'_>, column: usize) -> Result<Attempts> {
    match row.get_ref(column)?.as_blob_or_null()? {
        None => Ok(Attempts::default()),
        Some(bytes) => {
            Attempts::from_bytes(bytes).ok_or_else(|| nonsense(column, "half an attempt"))
        }
    }
}

/// NULL where there are none, as for most claims.
pub(super) fn attempts_cell(attempts: &Attempts) -> Option<Vec<u8>> {
    (!attempts.is_empty()).then(|| attempts.to_bytes())
}

fn nonsense(column: usize, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, why.into())
}

pub(super) fn moment(row: &Row<'_>, column: usize) -> Result<Moment> {
    number(row, column).map(Moment::from_micros)
}

pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

pub(super) fn as_count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// A number as SQLite can store it. What is larger is the end of time anyway.
pub(super) fn as_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
