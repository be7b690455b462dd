//! A quorum of real servers and of memory nodes: what it promises, and what breaks around it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod kit;
mod support;
