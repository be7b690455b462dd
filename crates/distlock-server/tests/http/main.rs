//! Every route and every status, by a real client over a real socket.

#![allow(clippy::unwrap_used, reason = "tests")]

mod answers;
mod audit;
mod connections;
mod dapr;
mod down;
mod electing;
mod gone;
mod guarding;
mod leases;
mod limits;
mod looking;
mod losses;
mod numbers;
mod patterns;
mod permits;
mod redlock;
mod renewals;
mod repeats;
mod replicas;
mod schema;
mod secrets;
mod stopping;
mod support;
mod terraform;
mod terraform_rights;
mod terraform_slow;
mod throttling;
mod tokens;
mod waiting;
