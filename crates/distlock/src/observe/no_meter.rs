//! Without the feature `metrics` nothing is counted, and nothing is paid for it.

use std::time::Duration;

use distlock_core::Key;

use super::WakeCause;

/// Counts nothing.
#[derive(Debug)]
pub(crate) struct Meter;

impl Meter {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn acquired(&self, _: &Key, _: &'static str, _: Duration) {}

    pub(crate) fn waiters(&self, _: &Key, _: f64) {}

    pub(crate) fn held(&self, _: &Key, _: f64) {}

    pub(crate) fn ended(&self, _: &Key, _: &'static str, _: Duration) {}

    pub(crate) fn lost(&self, _: &Key, _: &'static str) {}

    pub(crate) fn margin(&self, _: &Key, _: Duration) {}

    pub(crate) fn woken(&self, _: WakeCause) {}
}
