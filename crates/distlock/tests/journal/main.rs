//! The past of the locks: what is noted down, who reads it, and what it never costs.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stores;
mod support;
mod telling;
mod trouble;
mod visits;
