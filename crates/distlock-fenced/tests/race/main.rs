//! A holder that is paused between its read and its write loses no update and overwrites none.

#![allow(clippy::unwrap_used, reason = "tests")]

mod http;
mod objects;
mod play;
mod redis;
mod rows;
