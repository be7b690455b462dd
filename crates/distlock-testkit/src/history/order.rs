//! No claim overtakes another: queued claims in ticket order, and no grant past those who are
//! ahead.

use std::collections::BTreeMap;

use distlock_core::{Order, Ticket};

use super::{Rule, SeenAcquisition, Stamp, Violation};

/// An acquisition as the queue sees it. Claims of one thread that share a fence are one.
struct QueueTurn<'a> {
    seen: &'a SeenAcquisition,
    fence: u64,
    ticket: Option<Ticket>,
}

pub(super) fn check(entries: &[&SeenAcquisition]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for order in [Order::Fifo, Order::PreferWriters, Order::PreferReaders] {
        let of_order: Vec<&SeenAcquisition> =
            entries.iter().copied().filter(|seen| seen.wish.order == order).collect();
        let turns = turns(&of_order);
        violations.extend(out_of_turn(order, &turns));
        violations.extend(overtaken(order, &of_order, &turns));
    }
    violations
}

fn turns<'a>(entries: &[&'a SeenAcquisition]) -> Vec<QueueTurn<'a>> {
    let mut turns: BTreeMap<(u64, Option<u64>), QueueTurn<'a>> = BTreeMap::new();
    for seen in entries {
        let Some((fence, _)) = seen.grant else {
            continue;
        };
        let turn = QueueTurn { seen, fence, ticket: seen.ticket };
        // The fence was minted for the first in the queue; the others went in with it.
        let known = turns.entry((fence, seen.wish.thread)).or_insert(QueueTurn { seen, ..turn });
        if seen.ticket.is_some_and(|ticket| known.ticket.is_none_or(|known| ticket < known)) {
            *known = QueueTurn { seen, fence, ticket: seen.ticket };
        }
    }
    turns.into_values().collect()
}

/// Queued claims of one class whose fences are not in the sequence of their tickets.
fn out_of_turn(order: Order, turns: &[QueueTurn<'_>]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for exclusive in [true, false] {
        let class = |turn: &&QueueTurn<'_>| match order {
            Order::Fifo => exclusive,
            _ => turn.seen.wish.is_exclusive() == exclusive,
        };
        let mut queued: Vec<_> = turns.iter().filter(|turn| turn.ticket.is_some()).collect();
        queued.retain(class);
        queued.sort_by_key(|turn| turn.ticket);
        let wrong = queued.windows(2).filter(|pair| pair[0].fence >= pair[1].fence);
        violations.extend(wrong.map(|pair| overtook(pair[1].seen, pair[0].seen)));
    }
    violations
}

/// Grants past a client who waited all the while and whom the order puts ahead.
fn overtaken(
    order: Order,
    entries: &[&SeenAcquisition],
    turns: &[QueueTurn<'_>],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (waiter, newcomer) in [(true, true), (true, false), (false, true), (false, false)] {
        let Some(who) = bound(order, waiter, newcomer) else {
            continue;
        };
        let candidates: Vec<&QueueTurn<'_>> = turns
            .iter()
            .filter(|turn| turn.seen.wish.is_exclusive() == newcomer)
            .filter(|turn| who == Bound::All || turn.ticket.is_none())
            .collect();
        let waiters: Vec<&SeenAcquisition> =
            entries.iter().copied().filter(|seen| seen.wish.is_exclusive() == waiter).collect();
        violations.extend(by_numbers(&waiters, &candidates));
        violations.extend(by_time(&waiters, &candidates));
    }
    violations
}

/// Which newcomers the waiters of a class bind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Also those that queued before them.
    All,
    /// Those that never queued; the tickets decide among the others.
    Unqueued,
}

fn bound(order: Order, waiter_exclusive: bool, newcomer_exclusive: bool) -> Option<Bound> {
    match (order, waiter_exclusive, newcomer_exclusive) {
        (Order::PreferWriters, true, false) | (Order::PreferReaders, false, true) => {
            Some(Bound::All)
        }
        (Order::PreferWriters, false, true) | (Order::PreferReaders, true, false) => None,
        _ => Some(Bound::Unqueued),
    }
}

/// By the one counter of fences and tickets: a waiter was there from its ticket to its fence.
fn by_numbers(waiters: &[&SeenAcquisition], candidates: &[&QueueTurn<'_>]) -> Vec<Violation> {
    let waits = waiters.iter().filter_map(|&seen| Some((seen.ticket?, seen.grant?.0, seen)));
    let grants = candidates.iter().map(|turn| (turn.fence, turn.fence, turn.seen));
    inside(waits.collect(), grants.collect())
}

/// By the clock, for waiters that were never granted: a place was certainly there from its first
/// acknowledgement to its last but one, for the last answer was given after that.
fn by_time(waiters: &[&SeenAcquisition], candidates: &[&QueueTurn<'_>]) -> Vec<Violation> {
    let ungranted = waiters.iter().filter(|seen| seen.grant.is_none());
    let waits = ungranted.filter_map(|&seen| seen.acks.map(|[from, to, _]| (from, to, seen)));
    let grants = candidates.iter().filter_map(|turn| {
        let seen = turn.seen;
        // Claims of one thread go past the queue.
        let alone = seen.wish.thread.is_none();
        let not_before: Stamp = seen.acks.map_or(seen.asked, |[_, last_but_one, _]| last_but_one);
        let (_, known) = seen.grant.filter(|_| alone)?;
        Some((not_before, known, seen))
    });
    inside(waits.collect(), grants.collect())
}

/// The spans of grants that lie strictly inside the span of a wait.
fn inside<T: Ord + Copy>(
    mut waits: Vec<(T, T, &SeenAcquisition)>,
    mut grants: Vec<(T, T, &SeenAcquisition)>,
) -> Vec<Violation> {
    waits.sort_by_key(|(from, ..)| *from);
    grants.sort_by_key(|(from, ..)| *from);
    let mut waits = waits.into_iter().peekable();
    let mut longest: Option<(T, &SeenAcquisition)> = None;
    let mut violations = Vec::new();
    for (from, to, seen) in grants {
        while let Some((_, until, waiter)) = waits.next_if(|(start, ..)| *start < from) {
            if longest.is_none_or(|(known, _)| known < until) {
                longest = Some((until, waiter));
            }
        }
        violations.extend(
            longest.filter(|(until, _)| to < *until).map(|(_, waiter)| overtook(seen, waiter)),
        );
    }
    violations
}

fn overtook(seen: &SeenAcquisition, waiter: &SeenAcquisition) -> Violation {
    Violation::new(Rule::Order, seen, format!("{seen} overtook {waiter}"))
}
