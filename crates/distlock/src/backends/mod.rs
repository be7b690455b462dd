//! The stores that can carry locks. Each knows the core and its own client, nothing else.

mod memory;
#[cfg(feature = "redis")]
mod redis;
mod ring;

pub use memory::Memory;
#[cfg(feature = "redis")]
pub use redis::Redis;
