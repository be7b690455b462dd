//! What breaks locks on Redis, and what holds all the same: on real servers, by failure mode.
//!
//! Names begin with the number of the failure mode. Every test has a server of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod acl;
mod cancel;
mod client;
mod crowd;
mod inputs;
mod mass;
mod memory;
mod network;
mod operator;
mod partition;
mod queue;
mod relay;
mod server;
mod shared;
mod support;
mod together;
