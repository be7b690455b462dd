//! The blocking API as a program without a runtime meets it.

#![cfg(feature = "blocking")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod contexts;
mod ending;
mod kinds;

use std::sync::Arc;

use distlock::backends::Memory;
use distlock::blocking::Locks;

/// Two processes on one store.
fn two() -> [Locks; 2] {
    let store = Memory::new();
    [(); 2].map(|()| Locks::new(Arc::new(store.client())).unwrap())
}
