//! Locking a mutex whose data is consistent even if a thread panicked while holding it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, poisoned or not: no code of distlock or of its drivers leaves its data half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
