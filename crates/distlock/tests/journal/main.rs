//! The past of the locks and what can be seen of them: the journal, numbers, spans.

#![allow(clippy::unwrap_used, reason = "tests")]

mod hold_records;
mod leases;
#[cfg(feature = "metrics")]
mod numbers;
mod spans;
mod stores;
mod support;
mod telling;
mod trouble;
