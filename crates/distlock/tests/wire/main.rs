//! Locks of other libraries and ours on the same server: each excludes the other.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod disguises;
mod foreign;
mod kinds;
mod losing;
mod ours;
mod quorum;
mod stage;
mod theirs;
