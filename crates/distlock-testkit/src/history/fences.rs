//! Fences are unique and grow in real time.

use super::{Rule, Seen, Stamp, Violation};

pub(super) fn check(entries: &[&Seen]) -> Vec<Violation> {
    let mut violations = repeated(entries);
    violations.extend(going_back(entries));
    violations
}

/// Fences that two acquisitions have which are not of one thread of work.
fn repeated(entries: &[&Seen]) -> Vec<Violation> {
    let mut granted: Vec<(u64, &Seen)> =
        entries.iter().filter_map(|seen| Some((seen.grant?.0, *seen))).collect();
    granted.sort_by_key(|(fence, _)| *fence);
    let same = granted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    same.filter(|pair| !pair[0].1.is_sibling(pair[1].1))
        .map(|pair| violation(pair[1].1, "has the fence of", pair[0].1))
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End,
    Asked,
    Granted,
}

/// The latest grants among those that have ended.
#[derive(Clone, Copy, Default)]
struct Ended<'a> {
    any: Option<(u64, &'a Seen)>,
    exclusive: Option<(u64, &'a Seen)>,
}

/// Grants whose fence is smaller than that of a grant that was over before.
///
/// If one of the two is exclusive, they cannot have held together at the store, so being over
/// before the other was *known* is enough. Two shared claims can: one that was granted first may
/// learn of it last. For them, one must be over before the other was *asked*.
fn going_back(entries: &[&Seen]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut ended = Ended::default();
    let mut at_ask = vec![None; entries.len()];
    for (_, event, index) in events(entries) {
        let seen = entries[index];
        let Some((fence, _)) = seen.grant else {
            continue;
        };
        match event {
            Event::End => ended.add(fence, seen),
            Event::Asked => at_ask[index] = ended.any,
            Event::Granted => {
                let known = if seen.wish.is_exclusive() { ended.any } else { ended.exclusive };
                let before = [known, at_ask[index]].into_iter().flatten();
                let latest = before.max_by_key(|(fence, _)| *fence);
                violations.extend(latest.and_then(|before| regression(seen, fence, before)));
            }
        }
    }
    violations
}

fn regression(seen: &Seen, fence: u64, (before, other): (u64, &Seen)) -> Option<Violation> {
    let wrong = before > fence || (before == fence && !seen.is_sibling(other));
    wrong.then(|| violation(seen, "came after", other))
}

impl<'a> Ended<'a> {
    fn add(&mut self, fence: u64, seen: &'a Seen) {
        raise(&mut self.any, fence, seen);
        // A lowered claim may have ended beside others, so it counts as shared.
        if seen.wish.is_exclusive() && seen.weights.is_empty() {
            raise(&mut self.exclusive, fence, seen);
        }
    }
}

fn raise<'a>(latest: &mut Option<(u64, &'a Seen)>, fence: u64, seen: &'a Seen) {
    if latest.is_none_or(|(before, _)| before < fence) {
        *latest = Some((fence, seen));
    }
}

fn events(entries: &[&Seen]) -> Vec<(Stamp, Event, usize)> {
    let mut events = Vec::new();
    for (index, seen) in entries.iter().enumerate() {
        let Some((_, granted)) = seen.grant else {
            continue;
        };
        events.push((seen.asked, Event::Asked, index));
        events.push((granted, Event::Granted, index));
        events.extend(seen.until().map(|until| (until, Event::End, index)));
    }
    // Equal moments go by the sequence of the record: a zero-length hold is before the next one.
    events.sort_unstable();
    events
}

fn violation(seen: &Seen, what: &str, other: &Seen) -> Violation {
    Violation::new(Rule::Fence, seen, format!("{seen} {what} {other}"))
}
