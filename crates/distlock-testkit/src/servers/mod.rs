//! Real servers for tests: started on free ports of this machine, ended by their own handle.

mod account;
mod certificates;
mod cluster;
mod folder;
mod pgbouncer;
mod postgres;
mod proxy;
mod redis;
mod sentinel;

pub use certificates::{Certificates, ClientCertificates};
pub use cluster::RedisCluster;
pub use folder::TempFolder;
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use proxy::{Flow, Proxy};
pub use redis::{RedisServer, RedisServerOptions};
pub use sentinel::RedisSentinel;
