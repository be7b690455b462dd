//! Guards: what a holder sees of its hold, and how it hands it on.

#![allow(clippy::unwrap_used, reason = "tests")]

mod adopting;
mod downgrade;
mod limits;
mod scope;
#[path = "../engine/support.rs"]
mod support;
mod watching;
