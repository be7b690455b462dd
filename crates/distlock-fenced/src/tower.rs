//! HTTP services that refuse requests of holders that have lost their lock.
//!
//! The header `Lock-Fence` carries the fence. On the server, [`FenceLayer`] keeps the largest fence
//! of each resource and
//!
//! - answers 412 to a request with a smaller one, with the largest in `Lock-Fence`,
//! - answers 428 to a request without one that is neither `GET` nor `HEAD` nor `OPTIONS`,
//! - lets a request with a larger one wait until those of older holders have been answered. Without
//!   this, a write that was admitted before could take effect after the newer holder's read.
//!
//! The client sends its fence with every request, reads included: [`SendFenceLayer`].
//!
//! The layer keeps fences in memory, so it suits a process that alone owns the data. Behind several
//! replicas, check the fence where the data is: [`sql`](crate::sql) or Redis. After a restart the
//! layer starts from [`FenceLayer::floor`].
//!
//! ```
//! use distlock_fenced::tower::FenceLayer;
//!
//! // The path without its last segment is the resource: /accounts/17/deposit -> /accounts/17
//! let layer = FenceLayer::new(|request| {
//!     request.uri.path().rsplit_once('/').map(|(resource, _)| resource.to_owned())
//! });
//! # let _ = layer;
//! ```

mod admission;
mod client;
mod resources;
mod server;

pub use client::{SendFence, SendFenceLayer, refusal};
pub use server::{FenceLayer, FenceService};

use http::HeaderName;

/// The header that carries a fence.
pub const LOCK_FENCE_HEADER: HeaderName = HeaderName::from_static("lock-fence");
