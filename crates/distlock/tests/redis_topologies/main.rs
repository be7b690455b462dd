//! What breaks locks on replicas, behind Sentinels and on clusters, and what holds all the same: on
//! real servers, by failure mode.
//!
//! `docs/failure-modes.md` lists the failure modes and their tests. Every test has
//! servers of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod failover;
mod fences;
mod hung;
mod names;
mod push;
mod reads;
mod secrets;
mod sentinel;
mod slots;
mod support;
