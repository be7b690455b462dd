//! A quorum of real servers and of memory nodes: what it promises, and what breaks around it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod chaos;
mod counters;
mod failures;
mod hung;
mod kit;
mod members;
mod silence;
mod support;
mod sweep;
mod unheard;
mod unpolled;
