//! A queue of tickets that knows how many stand before any of them, in logarithmic time.

use super::parts::OmittedRows;
use crate::Ticket;

/// Tickets in growing order. Leaving marks a slot dead; dead slots are swept out in bulk.
///
/// `counts` is a Fenwick tree over the slots: `counts[i]` is the number of live slots in the range
/// of length `lowest_bit(i + 1)` that ends at slot `i`.
#[derive(Clone, Debug, Default)]
pub(super) struct RankedQueue {
    slots: Vec<RankedTicket>,
    counts: Vec<u32>,
    live: usize,
    /// Every slot before this one is dead.
    front: usize,
    /// What is not here: a line may be an excerpt of a longer one.
    rest: OmittedRows,
}

#[derive(Clone, Copy, Debug)]
struct RankedTicket {
    ticket: Ticket,
    live: bool,
}

impl RankedQueue {
    pub(super) fn len(&self) -> usize {
        self.live + self.rest.count
    }

    pub(super) fn leave_out(&mut self, rest: OmittedRows) {
        self.rest = rest;
    }

    /// True if the first of the whole line is here.
    pub(super) fn knows_its_head(&self) -> bool {
        self.rest.count == 0 || self.first().is_some_and(|first| first <= self.rest.after)
    }

    pub(super) fn first(&self) -> Option<Ticket> {
        self.slots.get(self.front).map(|slot| slot.ticket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Ticket> {
        self.slots[self.front..].iter().filter(|slot| slot.live).map(|slot| slot.ticket)
    }

    /// How many live tickets are smaller.
    pub(super) fn before(&self, ticket: Ticket) -> usize {
        let mut end = self.slots.partition_point(|slot| slot.ticket < ticket);
        let mut sum = self.rest.before(ticket);
        while end > 0 {
            sum += self.counts[end - 1] as usize;
            end -= lowest_bit(end);
        }
        sum
    }

    /// Appends a ticket larger than all before it.
    pub(super) fn push(&mut self, ticket: Ticket) {
        debug_assert!(self.slots.last().is_none_or(|last| last.ticket < ticket));
        self.slots.push(RankedTicket { ticket, live: true });
        self.live += 1;
        let end = self.slots.len();
        let start = end - lowest_bit(end);
        let (mut sum, mut child) = (1, end - 1);
        while child > start {
            sum += self.counts[child - 1];
            child -= lowest_bit(child);
        }
        self.counts.push(sum);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        let Ok(at) = self.slots.binary_search_by_key(&ticket, |slot| slot.ticket) else { return };
        if !std::mem::replace(&mut self.slots[at].live, false) {
            return;
        }
        self.live -= 1;
        let mut node = at + 1;
        while node <= self.counts.len() {
            self.counts[node - 1] -= 1;
            node += lowest_bit(node);
        }
        while self.slots.get(self.front).is_some_and(|slot| !slot.live) {
            self.front += 1;
        }
        // Sweeping costs as much as the removals since the last sweep, so each stays logarithmic.
        if self.slots.len() >= 64 && self.live * 2 < self.slots.len() {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let tickets: Vec<_> = self.iter().collect();
        *self = Self { rest: self.rest, ..Self::default() };
        for ticket in tickets {
            self.push(ticket);
        }
    }
}

fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_counts_like_a_sorted_set(steps in prop::collection::vec(0u64..400, 1..400)) {
            let (mut line, mut set, mut next) = (RankedQueue::default(), BTreeSet::new(), 0);
            for step in steps {
                if step % 3 > 0 {
                    next += 1 + step % 5;
                    line.push(next);
                    set.insert(next);
                } else {
                    let victim = set.range(step..).next().or(set.first()).copied();
                    line.remove(victim.unwrap_or(step));
                    victim.map(|victim| set.remove(&victim));
                }
                prop_assert_eq!(line.len(), set.len());
                prop_assert_eq!(line.first(), set.first().copied());
                prop_assert_eq!(line.before(step), set.range(..step).count());
                prop_assert!(line.iter().eq(set.iter().copied()));
            }
        }
    }
}
