//! What breaks locks on replicas, behind Sentinels and on clusters, and what holds all the same: on
//! real servers, by failure mode.
//!
//! Names begin with the number of the failure mode. Every test has servers of its own. F-40 is
//! in `redis_durability.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod failover;
mod hung;
mod names;
mod push;
mod reads;
mod secrets;
mod sentinel;
mod slots;
mod support;
