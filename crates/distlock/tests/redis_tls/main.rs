//! Locks over TLS, on real servers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod files;
mod servers;
mod topologies;
