//! Who held together and must not have: one sweep over all validities of a key.

use std::collections::{BTreeMap, BTreeSet};

use distlock_core::Moment;

use super::{Rule, SeenAcquisition, Stamp, Violation};

/// What happens at one moment of the sweep. Ends come first: at the very moment of its end a
/// validity excludes no client any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SweepEvent {
    End,
    Lower(u32),
    Begin,
}

/// The validities of one key that overlap the present moment.
#[derive(Default)]
struct LiveSpans<'a> {
    /// By fence, the sequence in which the store granted them.
    by_fence: BTreeMap<(u64, usize), HeldSpan<'a>>,
    exclusive: BTreeSet<(u64, usize)>,
    /// How many there are of each group and order.
    kinds: BTreeMap<ShareKind<'a>, BTreeSet<(u64, usize)>>,
    weight: u64,
}

type ShareKind<'a> = (distlock_core::Order, Option<&'a str>);

#[derive(Clone, Copy)]
struct HeldSpan<'a> {
    seen: &'a SeenAcquisition,
    weight: u32,
}

impl HeldSpan<'_> {
    fn is_exclusive(&self) -> bool {
        self.weight == self.seen.wish.capacity
    }
}

pub(super) fn check(entries: &[&SeenAcquisition]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut live = LiveSpans::default();
    for (at, event, _, index) in events(entries) {
        let seen = entries[index];
        let Some((fence, _)) = seen.grant else {
            continue;
        };
        let id = (fence, index);
        match event {
            SweepEvent::End => drop(live.remove(id)),
            SweepEvent::Lower(weight) => live.lower(id, weight),
            SweepEvent::Begin => {
                let held = HeldSpan { seen, weight: weight_at_first(seen) };
                let found = live.conflict(&held);
                live.insert(id, held);
                let found = found.or_else(|| live.excess(id));
                violations.extend(found.map(|what| violation(seen, at, &what)));
            }
        }
    }
    violations
}

fn events(entries: &[&SeenAcquisition]) -> Vec<(Moment, SweepEvent, u64, usize)> {
    let mut events = Vec::new();
    for (index, seen) in entries.iter().enumerate() {
        let Some((_, (from, number))) = seen.grant else {
            continue;
        };
        let until: Option<Stamp> = seen.until();
        // What ended when it began excluded no client.
        if until.is_some_and(|(until, _)| until <= from) {
            continue;
        }
        events.push((from, SweepEvent::Begin, number, index));
        events.extend(until.map(|(until, number)| (until, SweepEvent::End, number, index)));
        let lowered = seen.weights.iter();
        let later = lowered.filter(|((at, _), _)| *at > from);
        events.extend(
            later.map(|&((at, number), weight)| (at, SweepEvent::Lower(weight), number, index)),
        );
    }
    events.sort_unstable();
    events
}

/// The weight with which a claim begins, which counts at once what it gave up at that moment.
fn weight_at_first(seen: &SeenAcquisition) -> u32 {
    let Some((_, (from, _))) = seen.grant else {
        return seen.wish.weight;
    };
    let lowered = seen.weights.iter().filter(|((at, _), _)| *at <= from);
    lowered.map(|(_, weight)| *weight).fold(seen.wish.weight, u32::min)
}

fn violation(seen: &SeenAcquisition, at: Moment, what: &str) -> Violation {
    Violation::new(Rule::Exclusion, seen, format!("{seen} was granted at {at:?} {what}"))
}

impl<'a> LiveSpans<'a> {
    /// What the claim must not overlap and does.
    fn conflict(&self, held: &HeldSpan<'a>) -> Option<String> {
        let seen = held.seen;
        let mut others = self.by_fence.values().map(|held| held.seen);
        let mut guards = self.exclusive.iter().map(|id| self.by_fence[id].seen);
        let other = if held.is_exclusive() {
            others.find(|other| !other.is_sibling(seen))
        } else {
            guards.find(|other| !other.is_sibling(seen))
        };
        if let Some(other) = other {
            return Some(format!("beside {other}"));
        }
        let other = self.kinds.iter().find(|(kind, _)| **kind != kind_of(seen));
        let other = other.and_then(|(_, ids)| ids.first()).map(|id| self.by_fence[id].seen);
        other
            .filter(|other| !other.is_sibling(seen))
            .map(|other| format!("beside {other} of another group or order"))
    }

    /// Who was granted although too much was held by those granted before. Only the newcomer and
    /// those granted after it can be concerned, and there is rarely one of the latter: clients
    /// learn of grants in about the sequence in which they are made.
    fn excess(&self, newcomer: (u64, usize)) -> Option<String> {
        let mut sum = self.weight;
        for (_, held) in self.by_fence.range(newcomer..).rev() {
            let shared = !held.is_exclusive();
            if shared && sum > u64::from(held.seen.wish.capacity) {
                return Some(format!("so that {sum} were held when {} was granted", held.seen));
            }
            sum -= u64::from(held.weight);
        }
        None
    }

    fn insert(&mut self, id: (u64, usize), held: HeldSpan<'a>) {
        self.weight += u64::from(held.weight);
        if held.is_exclusive() {
            self.exclusive.insert(id);
        }
        self.kinds.entry(kind_of(held.seen)).or_default().insert(id);
        self.by_fence.insert(id, held);
    }

    fn remove(&mut self, id: (u64, usize)) -> Option<HeldSpan<'a>> {
        let held = self.by_fence.remove(&id)?;
        self.weight -= u64::from(held.weight);
        self.exclusive.remove(&id);
        let kind = kind_of(held.seen);
        if let Some(ids) = self.kinds.get_mut(&kind) {
            ids.remove(&id);
            if ids.is_empty() {
                self.kinds.remove(&kind);
            }
        }
        Some(held)
    }

    fn lower(&mut self, id: (u64, usize), weight: u32) {
        if let Some(mut held) = self.remove(id) {
            held.weight = held.weight.min(weight);
            self.insert(id, held);
        }
    }
}

fn kind_of(seen: &SeenAcquisition) -> ShareKind<'_> {
    (seen.wish.order, seen.wish.group.as_deref())
}
