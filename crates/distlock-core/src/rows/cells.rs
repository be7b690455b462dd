//! The values in the columns of rows.

use std::borrow::Cow;
use std::fmt;

use crate::law::Attempts;
use crate::{Label, Order};

/// A row that distlock did not write: a column holds what it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The column.
    pub column: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl BadRow {
    pub(super) fn new(column: &'static str, why: impl fmt::Display) -> Self {
        Self { column, why: why.to_string() }
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the column {} of a row makes no sense: {}", self.column, self.why)
    }
}

impl std::error::Error for BadRow {}

const ORDERS: [Order; 3] = [Order::Fifo, Order::PreferWriters, Order::PreferReaders];

pub(super) fn order_name(order: Order) -> &'static str {
    match order {
        Order::Fifo => "fifo",
        Order::PreferWriters => "prefer-writers",
        Order::PreferReaders => "prefer-readers",
    }
}

pub(super) fn order(column: &'static str, name: &str) -> Result<Order, BadRow> {
    let found = ORDERS.into_iter().find(|order| order_name(*order) == name);
    found.ok_or_else(|| BadRow::new(column, "an unknown order"))
}

pub(super) fn label(column: &'static str, text: &str) -> Result<Label, BadRow> {
    Label::new("label", text).map_err(|why| BadRow::new(column, why))
}

pub(super) fn optional_label(
    column: &'static str,
    text: Option<&str>,
) -> Result<Option<Label>, BadRow> {
    text.map(|text| label(column, text)).transpose()
}

pub(super) fn id(column: &'static str, bytes: &[u8]) -> Result<[u8; 16], BadRow> {
    bytes.try_into().map_err(|_| BadRow::new(column, "an id has 16 bytes"))
}

pub(super) fn part(column: &'static str, number: i64) -> Result<u32, BadRow> {
    u32::try_from(number).map_err(|_| BadRow::new(column, "out of range"))
}

pub(super) fn attempts(column: &'static str, bytes: Option<&[u8]>) -> Result<Attempts, BadRow> {
    let Some(bytes) = bytes else { return Ok(Attempts::default()) };
    Attempts::from_bytes(bytes).ok_or_else(|| BadRow::new(column, "half an attempt"))
}

/// NULL where there are none, as for most claims.
pub(super) fn attempts_column(attempts: &Attempts) -> Option<Cow<'static, [u8]>> {
    (!attempts.is_empty()).then(|| attempts.to_bytes().into())
}

/// A number of a column. What is negative was written by another program and counts as zero.
pub fn as_number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

/// The same where things are counted.
pub fn as_count(column: i64) -> usize {
    usize::try_from(column).unwrap_or(0)
}

/// A number as a column can store it. What is larger is the end of time anyway.
pub fn as_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
