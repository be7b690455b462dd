//! Calls that wait for a connection: in sequence for each key, and together where that is possible.

use std::collections::{HashMap, VecDeque};

use distlock_core::Key;

/// How many simple calls share a transaction at most.
const SIMPLE_MAX: usize = 64;

/// How many calls for one key share a transaction at most.
const OF_KEY_MAX: usize = 64;

/// Calls by key. The calls of a key are served in the sequence in which they came, so a release
/// comes after the acquire that it ends, and no two transactions of this client wait for each
/// other.
#[derive(Debug)]
pub(super) struct CallQueue<J> {
    keys: HashMap<Key, CallsOfKey<J>>,
    /// Keys with calls of which none is being served.
    ready: VecDeque<Key>,
}

#[derive(Debug)]
struct CallsOfKey<J> {
    jobs: VecDeque<J>,
    in_service: bool,
}

/// Calls that are served by one transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallBatch<J> {
    /// One simple call of each key, the keys in sequence.
    Simple(Vec<(Key, J)>),
    /// Calls for one key, decided one after the other.
    OfKey(Key, Vec<J>),
}

impl<J> Default for CallQueue<J> {
    fn default() -> Self {
        Self { keys: HashMap::new(), ready: VecDeque::new() }
    }
}

impl<J> CallQueue<J> {
    /// Adds a call.
    pub(super) fn push(&mut self, key: Key, job: J) {
        let line = self.keys.entry(key.clone()).or_insert_with(|| {
            self.ready.push_back(key);
            CallsOfKey { jobs: VecDeque::new(), in_service: false }
        });
        line.jobs.push_back(job);
    }

    /// How many keys have calls of which none is being served.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The next calls to be served. Their keys have to be given back with [`done`](Self::done).
    pub(super) fn next(&mut self, is_simple: impl Fn(&J) -> bool) -> Option<CallBatch<J>> {
        let first = self.ready.pop_front()?;
        if !self.first_is(&first, &is_simple) {
            return Some(CallBatch::OfKey(first.clone(), self.take(&first, OF_KEY_MAX)));
        }
        let mut simple: Vec<(Key, J)> = Vec::new();
        let mut others = VecDeque::new();
        for key in std::iter::once(first).chain(std::mem::take(&mut self.ready)) {
            if simple.len() < SIMPLE_MAX && self.first_is(&key, &is_simple) {
                simple.extend(self.take(&key, 1).into_iter().map(|job| (key.clone(), job)));
            } else {
                others.push_back(key);
            }
        }
        self.ready = others;
        simple.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        Some(CallBatch::Simple(simple))
    }

    /// A key was served. A call that has to be served again comes before all others of it.
    pub(super) fn done(&mut self, key: &Key, again: Option<J>) {
        let Some(line) = self.keys.get_mut(key) else { return };
        line.in_service = false;
        if let Some(job) = again {
            line.jobs.push_front(job);
        }
        if line.jobs.is_empty() {
            self.keys.remove(key);
        } else {
            self.ready.push_back(key.clone());
        }
    }

    fn first_is(&self, key: &Key, is_simple: impl Fn(&J) -> bool) -> bool {
        self.keys.get(key).and_then(|line| line.jobs.front()).is_some_and(is_simple)
    }

    fn take(&mut self, key: &Key, most: usize) -> Vec<J> {
        let Some(line) = self.keys.get_mut(key) else { return Vec::new() };
        line.in_service = true;
        let count = line.jobs.len().min(most);
        line.jobs.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    /// Even numbers are simple.
    fn next(queue: &mut CallQueue<u32>) -> Option<CallBatch<u32>> {
        queue.next(|job| job % 2 == 0)
    }

    #[test]
    fn simple_calls_of_several_keys_go_together_in_the_sequence_of_the_keys() {
        let mut queue = CallQueue::default();
        for (name, job) in [("b", 2), ("c", 3), ("a", 4), ("b", 6)] {
            queue.push(key(name), job);
        }
        let both = vec![(key("a"), 4), (key("b"), 2)];
        assert_eq!(next(&mut queue), Some(CallBatch::Simple(both)));
        assert_eq!(next(&mut queue), Some(CallBatch::OfKey(key("c"), vec![3])));
        assert_eq!(next(&mut queue), None, "the second call of b waits for the first");
        queue.done(&key("b"), None);
        assert_eq!(next(&mut queue), Some(CallBatch::Simple(vec![(key("b"), 6)])));
    }

    #[test]
    fn the_calls_of_a_key_keep_their_sequence() {
        let mut queue = CallQueue::default();
        queue.push(key("a"), 2);
        assert!(next(&mut queue).is_some());
        queue.push(key("a"), 4);
        queue.push(key("a"), 5);
        // It was not simple after all.
        queue.done(&key("a"), Some(1));
        assert_eq!(next(&mut queue), Some(CallBatch::OfKey(key("a"), vec![1, 4, 5])));
        queue.done(&key("a"), None);
        assert_eq!(next(&mut queue), None);
        assert!(queue.keys.is_empty(), "a key without calls is forgotten");
    }

    #[test]
    fn batches_have_a_bound() {
        let mut queue = CallQueue::default();
        for at in 0..100 {
            queue.push(key(&format!("k{at}")), 2);
            queue.push(key("one"), 3);
        }
        let sizes: Vec<_> = std::iter::from_fn(|| next(&mut queue))
            .map(|batch| match batch {
                CallBatch::Simple(jobs) => jobs.len(),
                CallBatch::OfKey(_, jobs) => jobs.len(),
            })
            .collect();
        assert_eq!(sizes, [SIMPLE_MAX, OF_KEY_MAX, 100 - SIMPLE_MAX]);
    }
}
