//! The keeper: renews in time, tells a loss in time, and releases what no guard holds any more.

#![allow(clippy::unwrap_used, reason = "tests")]

mod accounting;
mod clocks;
mod closing;
mod crowd;
mod loss;
mod own_thread;
mod releasing;
mod renewal;
mod runtimes;
#[path = "../engine/support.rs"]
mod support;
