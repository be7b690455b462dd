//! The command line as a user meets it: every test starts the real binary against a real store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod child;
mod codes;
mod counting;
mod doctor;
mod flags;
mod leases;
mod looking;
mod loss;
mod past;
mod serving;
mod signals;
mod support;
mod terminal;
mod trouble;
mod waiting;
