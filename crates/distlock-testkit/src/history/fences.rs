//! Fences are unique and grow in real time.

use super::{Rule, SeenAcquisition, Stamp, Violation};

pub(super) fn check(entries: &[&SeenAcquisition]) -> Vec<Violation> {
    let mut violations = repeated(entries);
    violations.extend(going_back(entries));
    violations
}

/// Fences that two acquisitions have which are not of one thread of work.
fn repeated(entries: &[&SeenAcquisition]) -> Vec<Violation> {
    let mut granted: Vec<(u64, &SeenAcquisition)> =
        entries.iter().filter_map(|seen| Some((seen.grant?.0, *seen))).collect();
    granted.sort_by_key(|(fence, _)| *fence);
    let same = granted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    same.filter(|pair| !pair[0].1.is_sibling(pair[1].1))
        .map(|pair| violation(pair[1].1, "has the fence of", pair[0].1))
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FenceEvent {
    End,
    Asked,
    Granted,
}

/// The latest grants among those that have ended.
#[derive(Clone, Copy, Default)]
struct EndedGrants<'a> {
    any: Option<(u64, &'a SeenAcquisition)>,
    exclusive: Option<(u64, &'a SeenAcquisition)>,
}

/// Grants whose fence is smaller than that of a grant that was over before.
///
/// If one of the two is exclusive, they cannot have held together at the store, so being over
/// before the other was *known* is enough. Two shared claims can: one that was granted first may
/// learn of it last. For them, one must be over before the other was *asked*.
fn going_back(entries: &[&SeenAcquisition]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut ended = EndedGrants::default();
    let mut at_ask = vec![None; entries.len()];
    for (_, event, index) in events(entries) {
        let seen = entries[index];
        let Some((fence, _)) = seen.grant else {
            continue;
        };
        match event {
            FenceEvent::End => ended.add(fence, seen),
            FenceEvent::Asked => at_ask[index] = ended.any,
            FenceEvent::Granted => {
                let known = if seen.wish.is_exclusive() { ended.any } else { ended.exclusive };
                let before = [known, at_ask[index]].into_iter().flatten();
                let latest = before.max_by_key(|(fence, _)| *fence);
                violations.extend(latest.and_then(|before| regression(seen, fence, before)));
            }
        }
    }
    violations
}

fn regression(
    seen: &SeenAcquisition,
    fence: u64,
    (before, other): (u64, &SeenAcquisition),
) -> Option<Violation> {
    let wrong = before > fence || (before == fence && !seen.is_sibling(other));
    wrong.then(|| violation(seen, "came after", other))
}

impl<'a> EndedGrants<'a> {
    fn add(&mut self, fence: u64, seen: &'a SeenAcquisition) {
        raise(&mut self.any, fence, seen);
        // A lowered claim may have ended beside others, so it counts as shared.
        if seen.wish.is_exclusive() && seen.weights.is_empty() {
            raise(&mut self.exclusive, fence, seen);
        }
    }
}

fn raise<'a>(
    latest: &mut Option<(u64, &'a SeenAcquisition)>,
    fence: u64,
    seen: &'a SeenAcquisition,
) {
    if latest.is_none_or(|(before, _)| before < fence) {
        *latest = Some((fence, seen));
    }
}

fn events(entries: &[&SeenAcquisition]) -> Vec<(Stamp, FenceEvent, usize)> {
    let mut events = Vec::new();
    for (index, seen) in entries.iter().enumerate() {
        let Some((_, granted)) = seen.grant else {
            continue;
        };
        events.push((seen.asked, FenceEvent::Asked, index));
        events.push((granted, FenceEvent::Granted, index));
        events.extend(seen.until().map(|until| (until, FenceEvent::End, index)));
    }
    // Equal moments go by the sequence of the record: a zero-length hold is before the next one.
    events.sort_unstable();
    events
}

fn violation(seen: &SeenAcquisition, what: &str, other: &SeenAcquisition) -> Violation {
    Violation::new(Rule::Fence, seen, format!("{seen} {what} {other}"))
}
