//! Distributed locks over HTTP: fenced, fair, renewable leases for every language.
//!
//! The service keeps no lock state of its own. Leases live in the backend, any replica answers for
//! any of them, and a restart loses nothing. What it adds to the library is a door: JSON, scopes,
//! limits, and the care to undo what a client that went away can no longer use.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock_server::Error> {
//! use distlock::Locks;
//! use distlock_server::{Config, Server};
//! use tokio_util::sync::CancellationToken;
//!
//! let stop = CancellationToken::new();
//! let listen = "127.0.0.1:0".parse().expect("an address");
//! let server = Server::bind(Config::new(listen), Locks::memory()).await?;
//! println!("listening on {}", server.address());
//! stop.cancel();
//! server.run(stop).await?;
//! # Ok(()) }
//! ```

mod auth;
mod body;
mod compat;
mod config;
mod dashboard;
mod delivery;
mod door;
mod error;
mod events;
mod guesses;
mod health;
mod leases;
mod ledger;
mod limits;
mod line;
mod list;
mod metrics;
mod openapi;
mod patterns;
mod problem;
mod reader;
mod router;
mod server;
mod state;
mod summary;
mod sync;
mod wire;

pub use auth::Tokens;
pub use config::Config;
pub use error::Error;
pub use server::Server;
