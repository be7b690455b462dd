//! The command line as a user meets it: every test starts the real binary against a real store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod acl;
mod child;
mod codes;
mod counting;
mod doctor;
mod flags;
mod guardian;
mod history;
mod leases;
mod looking;
mod loss;
mod many_keys;
mod packaging;
mod recipes;
mod serving;
mod serving_files;
mod serving_flood;
mod serving_sockets;
mod serving_tls;
mod signals;
mod states;
mod support;
mod terminal;
mod trouble;
mod waiting;
