//! The stores that can carry locks. Memory is part of this crate; every other store is a crate of
//! its own, which knows the core and its client and nothing else.

mod memory;
mod ring;

#[cfg(feature = "postgres")]
pub use distlock_postgres::{self as postgres, Postgres};
#[cfg(feature = "quorum")]
pub use distlock_quorum::{Quorum, QuorumOptions, ReleaseReport};
#[cfg(feature = "redis")]
pub use distlock_redis::Redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use distlock_sqlite::Sqlite;
pub use memory::Memory;
