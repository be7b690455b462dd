//! Real servers for tests: started on free ports of this machine, ended by their own handle.

mod redis;

pub use redis::{RedisServer, RedisServerOptions};
