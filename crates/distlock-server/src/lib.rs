//! Distributed locks over HTTP: fenced, fair, renewable leases for every language.
//!
//! The service keeps no lock state of its own. Leases live in the backend, any replica answers for
//! any of them, and a restart loses nothing. What it adds to the library is a door: JSON, scopes,
//! limits, and the care to undo what a client that went away can no longer use.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock_server::ServerError> {
//! use distlock::Locks;
//! use distlock_server::{ServerConfig, Server};
//! use tokio_util::sync::CancellationToken;
//!
//! let stop = CancellationToken::new();
//! let listen = "127.0.0.1:0".parse().expect("an address");
//! let server = Server::bind(ServerConfig::new(listen), Locks::memory()).await?;
//! println!("listening on {}", server.url());
//! stop.cancel();
//! server.run(stop).await?;
//! # Ok(()) }
//! ```

mod audit;
mod auth;
mod auth_throttle;
mod body;
mod compat;
mod config;
mod connections;
mod dashboard;
mod delivery;
mod error;
mod events;
mod health;
mod journal_reader;
mod leader;
mod lease_quota;
mod leases;
mod limits;
mod list;
mod listen;
mod losses;
mod many_leases;
mod metrics;
mod middleware;
mod open_holds;
mod openapi;
mod own_lease;
mod paths;
mod patterns;
mod problem;
mod renewed_ttls;
mod router;
mod scope;
mod server;
mod serving;
mod socket;
mod state;
mod summary;
mod sync;
mod tls;
mod token_line;
mod tokens;
mod tracked_stream;
mod unix_socket;
mod wire;

pub use config::ServerConfig;
pub use error::ServerError;
pub use listen::Listen;
pub use server::{Reloader, Server};
pub use tls::ServerTls;
pub use tokens::Tokens;
