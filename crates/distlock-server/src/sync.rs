//! What several requests share: a mutex without poison, and a value that can be replaced.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks, poisoned or not: nothing in this crate leaves its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that is replaced as a whole. Each reader keeps the one it has loaded.
#[derive(Debug)]
pub(crate) struct Swap<T>(Mutex<Arc<T>>);

impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&lock(&self.0))
    }

    pub(crate) fn store(&self, value: T) {
        *lock(&self.0) = Arc::new(value);
    }
}
