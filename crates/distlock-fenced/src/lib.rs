#![doc = include_str!("../README.md")]

mod error;
#[cfg(feature = "object-store")]
pub mod object_store;
#[cfg(feature = "redis")]
pub mod redis;
mod register;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
pub mod sql;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;
#[cfg(feature = "tower")]
pub mod tower;

pub use error::{FencedError, Refused};
pub use register::FenceRegister;

pub use distlock_core::FENCE_MAX;

/// The examples of the guide of `distlock`, which has none of the clients that they need.
#[cfg(doctest)]
#[doc = include_str!("../../distlock/src/guide/fencing.md")]
mod guide {}
