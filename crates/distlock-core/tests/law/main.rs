//! The law from outside: named examples, random histories against a naive oracle, and promises
//! that are checked with nothing but what clients can see.
//!
//! `DISTLOCK_LAW_STEPS` sets the number of random operations per order. A failure prints the seed
//! of its history; `DISTLOCK_LAW_SEED=<seed>` replays that history alone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod attempts;
mod differential;
mod examples;
mod examples_life;
mod oracle;
mod oracle_view;
mod progress;
mod rng;
mod safety;
mod seen;
mod walk;
mod world;
