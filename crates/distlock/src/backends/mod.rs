//! The stores that can carry locks. Each knows the core and its own client, nothing else.

mod memory;

pub use memory::Memory;
