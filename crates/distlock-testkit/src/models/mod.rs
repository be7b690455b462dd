//! The protocol as worlds small enough for a model checker to see all of them.
//!
//! [`rules`] hold in every state of their world. [`mutants`] are the same worlds with one rule
//! missing, and each of them is found out by the shortest way there is. [`goals`] are states that
//! must be reachable, for a world in which nothing happens breaks nothing. `make model` runs all of
//! them and writes `docs/models.md`.

mod book;
mod check;
mod lock;
mod node;
mod page;
mod quorum;
mod suite;
mod twin;
mod wake;

pub use check::{Found, Trace, World, explore, nearest};
pub use page::{page, rule_row, trace_row};
pub use suite::{Case, ModelSize, goals, mutants, rules};
