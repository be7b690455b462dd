//! Locking a mutex whose data is consistent even if somebody panicked while holding it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, poisoned or not: nothing in this crate leaves its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
