//! Holds that began according to the journal and have not ended: among them are those of holders
//! that crashed, which write nothing about their end.
//!
//! A hold counts as lost if the store does not show it any more, or shows a later hold that
//! excludes it, for two looks: the note about its release may be on its way.

use std::collections::{BTreeMap, HashMap, HashSet};

use distlock::{Key, Mode, Snapshot};

/// How many holds are followed.
const OPEN_MAX: usize = 20_000;

/// For how many looks a hold must be missing.
const MISSING_MAX: u32 = 2;

/// The holds, by key and fence.
#[derive(Debug, Default)]
pub(crate) struct OpenHolds {
    by_key: HashMap<Key, BTreeMap<u64, OpenHold>>,
    count: usize,
    /// The number of the present look.
    look: u64,
    /// Keys of which the present look shows a part of the holders only.
    partly_shown: HashSet<Key>,
}

/// One hold.
#[derive(Debug)]
struct OpenHold {
    at_ms: u64,
    mode: Mode,
    /// The look before which it was learned of, and the last one that showed it.
    since: u64,
    shown: u64,
    /// When a hold that excludes it was granted.
    superseded_at_ms: Option<u64>,
    missing: u32,
}

/// A hold that ended without a note.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Vanished {
    pub(crate) key: Key,
    pub(crate) fence: u64,
    /// Since when that is known at the latest; none if it was found out now.
    pub(crate) at_ms: Option<u64>,
}

impl OpenHolds {
    /// A hold began.
    pub(crate) fn granted(&mut self, key: &Key, fence: u64, mode: Mode, at_ms: u64) {
        let holds = self.by_key.entry(key.clone()).or_default();
        for (_, open) in holds.range_mut(..fence) {
            if mode == Mode::Exclusive || open.mode == Mode::Exclusive {
                open.superseded_at_ms.get_or_insert(at_ms);
            }
        }
        if self.count >= OPEN_MAX || holds.contains_key(&fence) {
            return;
        }
        self.count += 1;
        let (since, shown) = (self.look, 0);
        let open = OpenHold { at_ms, mode, since, shown, superseded_at_ms: None, missing: 0 };
        holds.insert(fence, open);
    }

    /// A hold ended, and there is a note about it.
    pub(crate) fn ended(&mut self, key: &Key, fence: u64) {
        let Some(holds) = self.by_key.get_mut(key) else { return };
        self.count -= usize::from(holds.remove(&fence).is_some());
        if holds.is_empty() {
            self.by_key.remove(key);
        }
    }

    /// A look at the store begins.
    pub(crate) fn begin_look(&mut self) {
        self.look += 1;
        self.partly_shown.clear();
    }

    /// The store shows this key.
    pub(crate) fn see(&mut self, seen: &Snapshot) {
        let Some(holds) = self.by_key.get_mut(&seen.key) else { return };
        for holder in &seen.holders {
            if let Some(open) = holds.get_mut(&holder.fence) {
                open.shown = self.look;
            }
        }
        if seen.holders_total > seen.holders.len() as u64 {
            self.partly_shown.insert(seen.key.clone());
        }
    }

    /// The look is over; `complete` if it showed every key. Returns the holds that have vanished.
    pub(crate) fn end_look(&mut self, complete: bool) -> Vec<Vanished> {
        let (look, mut vanished) = (self.look, Vec::new());
        for (key, holds) in &mut self.by_key {
            let shown = complete && !self.partly_shown.contains(key);
            for (fence, open) in holds {
                let missing = shown && open.since < look && open.shown < look;
                match missing || open.superseded_at_ms.is_some() {
                    true => open.missing += 1,
                    false => open.missing = 0,
                }
                if open.missing >= MISSING_MAX {
                    // What was learned from the first reading of the journal ended in the past.
                    let at_ms = open.superseded_at_ms.or((open.since <= 1).then_some(open.at_ms));
                    vanished.push(Vanished { key: key.clone(), fence: *fence, at_ms });
                }
            }
        }
        vanished.iter().for_each(|hold| self.ended(&hold.key, hold.fence));
        vanished
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock::{Holder, Label};

    use super::*;

    const NONE: [u64; 0] = [];

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn showing(fences: &[u64]) -> Snapshot {
        let holder = |fence: &u64| Holder {
            owner: Label::new("owner", "o").unwrap(),
            reason: None,
            fence: *fence,
            weight: 1,
            capacity: Some(1),
            exclusive: true,
            group: None,
            held_for: Duration::ZERO,
            expires_in: None,
        };
        let holders: Vec<_> = fences.iter().map(holder).collect();
        let holders_total = holders.len() as u64;
        Snapshot { holders, holders_total, ..Snapshot::free(key()) }
    }

    fn look(holds: &mut OpenHolds, fences: &[u64], complete: bool) -> Vec<u64> {
        holds.begin_look();
        holds.see(&showing(fences));
        holds.end_look(complete).into_iter().map(|vanished| vanished.fence).collect()
    }

    #[test]
    fn a_hold_that_is_not_shown_twice_has_vanished() {
        let mut holds = OpenHolds::default();
        look(&mut holds, &[], true);
        holds.granted(&key(), 7, Mode::Exclusive, 1);
        assert_eq!(look(&mut holds, &[7], true), NONE);
        assert_eq!(look(&mut holds, &[], true), NONE);
        assert_eq!(look(&mut holds, &[], false), NONE, "a look at a part of the keys says nothing");
        assert_eq!(look(&mut holds, &[], true), NONE);
        assert_eq!(look(&mut holds, &[], true), [7]);
        assert_eq!((look(&mut holds, &[], true), holds.count), (vec![], 0));
    }

    #[test]
    fn a_hold_that_was_followed_has_vanished_unless_its_end_is_told() {
        let mut holds = OpenHolds::default();
        for fence in [7, 8] {
            holds.granted(&key(), fence, Mode::Exclusive, fence);
        }
        assert_eq!(look(&mut holds, &[8], false), NONE);
        assert_eq!(look(&mut holds, &[8], false), [7]);
        holds.granted(&key(), 9, Mode::Exclusive, 9);
        holds.ended(&key(), 8);
        for _ in 0..3 {
            assert_eq!(look(&mut holds, &[9], true), NONE);
        }
    }

    #[test]
    fn sharers_do_not_follow_each_other() {
        let mut holds = OpenHolds::default();
        for fence in [7, 8] {
            holds.granted(&key(), fence, Mode::Shared, fence);
        }
        for _ in 0..3 {
            assert_eq!(look(&mut holds, &[7, 8], true), NONE);
        }
    }
}
