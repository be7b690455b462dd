//! Tests for distlock and for drivers of your own.
//!
//! - [`mod@conformance`]: one async fn per promise of the [`Backend`](distlock_core::Backend)
//!   contract, and a macro that turns them into one test each.
//! - [`journal`]: the same for the [`Journal`](distlock_core::Journal) contract.
//! - [`Scripted`] answers what a test tells it to; [`Faulty`] loses, delays and repeats messages.
//! - [`history`]: records what clients saw and checks exclusion, order and fences.
//! - [`differ`]: random operations, a backend against the law.
//! - `models` (a feature of that name): the protocol for a model checker, with mutants.
//! - [`forward_backend`]: a wrapper of a backend writes only the methods that it changes.
//! - [`sweep`]: drops a future after every possible number of polls.

pub mod conformance;
pub mod differ;
mod faulty;
mod forward;
pub mod history;
pub mod journal;
#[cfg(feature = "models")]
pub mod models;
mod rng;
mod scripted;
pub mod servers;
pub mod sweep;

/// The crate that [`forward_backend`] names types of.
#[doc(hidden)]
pub use distlock_core as core;
pub use faulty::{Counts, Faults, Faulty};
pub use rng::Rng;
pub use scripted::{ReplyGate, Scripted, ScriptedCall, ScriptedReply};
