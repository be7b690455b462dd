//! Every lock kind as a user meets it: several processes on one store in memory, on paused time.

#![allow(clippy::unwrap_used, reason = "tests")]

mod api;
mod cancelling;
mod election;
mod errors;
mod extending;
mod given_up;
mod lease;
mod lifetimes;
mod loss;
mod many_keys;
mod mutex;
mod operator;
mod options;
mod orders;
mod polling;
mod reentrant;
mod rwlock;
mod semaphore;
mod short;
mod support;
mod traps;
mod two_keys;
