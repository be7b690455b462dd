//! The engine: one waiting loop that keeps its deadlines, tells faults from contention, and leaves
//! nothing behind, whatever ends it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod attempts;
mod cleanup;
mod errors;
mod faults;
mod fixed;
mod pushes;
mod queue;
mod slow;
mod support;
mod timeouts;
