//! The stores that can carry locks. Each knows the core and its own client, nothing else.

mod memory;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
mod redis;
mod ring;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite;

pub use memory::Memory;
pub use quorum::{Quorum, QuorumOptions, ReleaseReport};
#[cfg(feature = "redis")]
pub use redis::Redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use sqlite::Sqlite;
