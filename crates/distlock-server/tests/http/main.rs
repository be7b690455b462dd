//! Every route and every status, by a real client over a real socket.

#![allow(clippy::unwrap_used, reason = "tests")]

mod answers;
mod dapr;
mod down;
mod gone;
mod guarding;
mod leases;
mod limits;
mod looking;
mod numbers;
mod patterns;
mod replicas;
mod schema;
mod secrets;
mod stopping;
mod support;
mod terraform;
mod waiting;
