//! The file of locks: against the law, between processes, and when things go wrong.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod clocks;
mod differ;
mod files;
mod hostile;
mod other_process;
mod processes;
mod sockets;
mod support;
mod trouble;
mod wire;
