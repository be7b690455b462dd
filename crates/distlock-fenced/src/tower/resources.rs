//! The fences of all resources of a process, in bounded memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::admission::{Admission, Admissions};
use crate::Refused;

/// One resource, as requests share it.
#[derive(Debug, Default)]
struct Resource {
    admissions: Mutex<Admissions>,
    /// A request has left.
    left: Notify,
}

/// All resources. Those that have not been used for longest are forgotten, and the largest fence of
/// a forgotten one becomes the floor for every resource that is not known: a fence that was refused
/// once is refused for ever.
#[derive(Debug)]
pub(super) struct Resources {
    /// Resources move to `recent` when they are used. When that is full, `older` is forgotten and
    /// `recent` takes its place.
    state: Mutex<Generations>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<String, Arc<Resource>>,
    older: HashMap<String, Arc<Resource>>,
    floor: u64,
}

impl Resources {
    /// Remembers `capacity` resources at least, and twice as many at most, beside those in use.
    pub(super) fn new(capacity: usize, floor: u64) -> Self {
        let state = Generations { floor, ..Generations::default() };
        Self { state: Mutex::new(state), capacity }
    }

    /// Waits until a request may run.
    pub(super) async fn admit(&self, name: &str, fence: u64) -> Result<Running, Refused> {
        let resource = self.find(name);
        loop {
            let left = resource.left.notified();
            tokio::pin!(left);
            // Registered before the decision, so that a request that leaves after it is noticed.
            left.as_mut().enable();
            let decided = lock(&resource.admissions).admit(fence)?;
            match decided {
                Admission::Run => break,
                Admission::Wait => left.await,
            }
        }
        Ok(Running { resource })
    }

    fn find(&self, name: &str) -> Arc<Resource> {
        let mut state = lock(&self.state);
        if let Some(known) = state.recent.get(name) {
            return Arc::clone(known);
        }
        let found = state.older.remove(name).unwrap_or_else(|| {
            let admissions = Mutex::new(Admissions::starting_at(state.floor));
            Arc::new(Resource { admissions, left: Notify::new() })
        });
        if state.recent.len() >= self.capacity {
            state.forget();
        }
        state.recent.insert(name.to_owned(), Arc::clone(&found));
        found
    }
}

impl Generations {
    /// Forgets the older generation, but for what is in use.
    fn forget(&mut self) {
        let older = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
        for (name, resource) in older {
            if Arc::strong_count(&resource) > 1 {
                self.recent.insert(name, resource);
            } else {
                self.floor = self.floor.max(lock(&resource.admissions).newest());
            }
        }
    }
}

/// A request that runs. Its end is noted when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    resource: Arc<Resource>,
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.resource.admissions).leave();
        self.resource.left.notify_waiters();
    }
}

/// No code that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn a_forgotten_resource_refuses_what_it_would_have_refused() {
        let resources = Resources::new(4, 0);
        drop(resources.admit("first", 100).await.unwrap());
        let held = resources.admit("held", 5).await.unwrap();
        for number in 0..100 {
            drop(resources.admit(&format!("other/{number}"), 200).await.unwrap());
        }
        {
            let known = lock(&resources.state);
            assert!(known.recent.len() + known.older.len() <= 9, "bounded");
        }
        assert!(resources.admit("first", 99).await.is_err());
        assert!(resources.admit("first", 201).await.is_ok());
        assert!(resources.admit("held", 5).await.is_ok(), "what is in use is not forgotten");
        drop(held);
    }
}
