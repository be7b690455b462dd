//! A quorum of real servers and of memory nodes: what it promises, and what breaks around it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod chaos;
mod counters;
mod failures;
mod hung;
mod kit;
mod members;
mod pending_releases;
mod runtimes;
mod silence;
mod support;
mod sweep;
mod two_keys;
mod unpolled;
