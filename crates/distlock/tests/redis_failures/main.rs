//! What breaks locks on Redis, and what holds all the same: on real servers, by failure mode.
//!
//! `docs/failure-modes.md` lists the failure modes and their tests. Every test has a
//! server of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod acl;
mod cancel;
mod client;
mod crowd;
mod forged;
mod functions;
mod hand_over;
mod heartbeats;
mod hiccup;
mod hostile;
mod inputs;
mod mass;
mod memory;
mod network;
mod operator;
mod partition;
mod queue;
mod server;
mod shared;
mod support;
mod together;
