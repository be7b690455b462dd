//! The law on rows: what stores have in common that keep a record in tables.
//!
//! Such a store runs the [law](crate::law) inside a transaction. It reads an [excerpt](Parts) of
//! the record, decides, and writes the rows that [changed](crate::law::Changes). This module says
//! what an excerpt has to contain and how a row becomes a value of the law and back; the
//! statements, the clock and the wake-up of waiters belong to the store.
//!
//! [`HolderRow`] and [`WaiterRow`] have a field for each column. They borrow from the row that they
//! are read from, so reading copies only what the law keeps.

mod cells;
mod excerpt;
mod holder;
mod waiter;

#[cfg(doc)]
use crate::law::Parts;

pub use cells::{BadRow, as_column, as_count, as_number};
pub use excerpt::{EXCERPT_LEN, Extent, HOLDERS_MAX, VerbSubject, clients_of, crowd, rest};
pub use holder::HolderRow;
pub use waiter::WaiterRow;
