//! PostgreSQL: the kit, the law step by step, and what goes wrong with servers, networks and
//! poolers.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod cancel;
mod crowd;
mod differ;
mod fenced;
mod kit;
mod listening;
mod roles;
mod server;
mod standby;
mod support;
mod tls;
mod workload;
