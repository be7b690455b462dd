//! When each claim is due. Claims of the same moment, as those are that go out together, form one
//! list: to move all of them costs little more than to move one.

use std::collections::BTreeMap;

use distlock_core::Moment;

/// Where a claim sits in the table.
pub(super) type TableIndex = usize;

/// The end of a list: before the first, and after the last.
const NO_LINK: TableIndex = TableIndex::MAX;

/// The claims by the moment at which they are due.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// The first of those that are due at a moment.
    firsts: BTreeMap<Moment, TableIndex>,
    /// By slot: who else is due then.
    links: Vec<TimerLink>,
    /// Whose timer was set last. Most are set to the same moment as the one before.
    last_set: TableIndex,
}

#[derive(Clone, Copy, Debug)]
struct TimerLink {
    at: Option<Moment>,
    before: TableIndex,
    after: TableIndex,
}

impl TimerLink {
    const LOOSE: Self = Self { at: None, before: NO_LINK, after: NO_LINK };
}

impl Timers {
    /// The soonest of all moments.
    pub(super) fn soonest(&self) -> Option<Moment> {
        self.firsts.first_key_value().map(|(at, _)| *at)
    }

    /// Takes out all that are due by then, the soonest first.
    pub(super) fn take_due(&mut self, by: Moment) -> Vec<TableIndex> {
        let mut due = Vec::new();
        while let Some(first) = self.firsts.first_entry()
            && *first.key() <= by
        {
            let mut slot = first.remove();
            while let Some(link) = self.links.get_mut(slot) {
                due.push(slot);
                slot = std::mem::replace(link, TimerLink::LOOSE).after;
            }
        }
        due
    }

    /// All that are due by then.
    pub(super) fn due(&self, by: Moment) -> impl Iterator<Item = TableIndex> {
        let next =
            |slot: &TableIndex| Some(self.links[*slot].after).filter(|slot| *slot != NO_LINK);
        let list = move |first| std::iter::successors(Some(first), next);
        self.firsts.range(..=by).flat_map(move |(_, first)| list(*first))
    }

    /// Sets the timer of a claim anew.
    pub(super) fn set(&mut self, slot: TableIndex, at: Moment) {
        if slot >= self.links.len() {
            self.links.resize(slot + 1, TimerLink::LOOSE);
        }
        if self.links[slot].at == Some(at) {
            return;
        }
        self.unset(slot);
        let last = std::mem::replace(&mut self.last_set, slot);
        let (before, after) = match self.links.get_mut(last) {
            Some(link) if link.at == Some(at) => (last, std::mem::replace(&mut link.after, slot)),
            _ => (NO_LINK, self.firsts.insert(at, slot).unwrap_or(NO_LINK)),
        };
        self.links[slot] = TimerLink { at: Some(at), before, after };
        if let Some(link) = self.links.get_mut(after) {
            link.before = slot;
        }
    }

    /// Takes a claim out, if it has a timer.
    pub(super) fn unset(&mut self, slot: TableIndex) {
        let Some(link) = self.links.get_mut(slot) else { return };
        let TimerLink { at: Some(at), before, after } = std::mem::replace(link, TimerLink::LOOSE)
        else {
            return;
        };
        if let Some(link) = self.links.get_mut(after) {
            link.before = before;
        }
        if let Some(link) = self.links.get_mut(before) {
            link.after = after;
        } else if after == NO_LINK {
            self.firsts.remove(&at);
        } else {
            self.firsts.insert(at, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const AT: fn(u64) -> Moment = Moment::from_micros;

    /// Numbers that look random and are the same each time.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state: u64 = 7;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        }
    }

    #[test]
    fn they_are_a_set_of_moments_and_claims() {
        let (mut timers, mut set, mut number) = (Timers::default(), BTreeSet::new(), numbers());
        for _ in 0..20_000 {
            let (slot, at) = (number(40) as usize, AT(number(8)));
            match number(4) {
                0 => {
                    timers.unset(slot);
                    set.retain(|(_, other)| *other != slot);
                }
                1 if number(4) == 0 => {
                    let mut taken = timers.take_due(at);
                    taken.sort_unstable();
                    let later = set.split_off(&(at, TableIndex::MAX));
                    let mut due: Vec<_> = set.iter().map(|(_, slot)| *slot).collect();
                    due.sort_unstable();
                    assert_eq!(taken, due);
                    set = later;
                }
                _ => {
                    timers.set(slot, at);
                    set.retain(|(_, other)| *other != slot);
                    set.insert((at, slot));
                }
            }
            let due: BTreeSet<_> = timers.due(AT(4)).collect();
            let expected: BTreeSet<_> =
                set.iter().filter(|(at, _)| *at <= AT(4)).map(|(_, slot)| *slot).collect();
            assert_eq!(due, expected);
            assert_eq!(timers.due(AT(4)).count(), expected.len(), "one is there twice");
            assert_eq!(timers.soonest(), set.first().map(|(at, _)| *at));
        }
    }
}
