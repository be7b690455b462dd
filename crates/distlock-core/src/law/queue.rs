//! Those who wait for a key. Their places live as long as their client is heard of.

use std::collections::{BTreeMap, BTreeSet};

use super::attempts::Attempts;
use super::parts::OmittedRows;
use super::ranked_queue::RankedQueue;
use crate::{Ask, ClaimId, ClientId, Moment, Order, ReentryId, Ticket, Waiter};

/// One waiting claim.
#[derive(Clone, Debug)]
pub struct WaitingClaim {
    /// What it waits for.
    pub ask: Ask,
    /// The client that keeps it alive.
    pub client: ClientId,
    /// Since when it waits.
    pub since: Moment,
    /// The calls that wait for it.
    pub attempts: Attempts,
}

impl WaitingClaim {
    pub(super) fn view(&self, now: Moment) -> Waiter {
        Waiter {
            owner: self.ask.owner.clone(),
            reason: self.ask.reason.clone(),
            weight: self.ask.weight,
            exclusive: self.ask.is_exclusive(),
            group: self.ask.group.clone(),
            waited: now.since(self.since),
        }
    }
}

/// What keeps the places of one client alive.
#[derive(Clone, Debug)]
pub(super) struct Heartbeat {
    pub(super) until: Moment,
    places: BTreeSet<Ticket>,
    /// It has places that are not part of this excerpt.
    has_more: bool,
}

/// All waiters of a key, indexed by what the law asks about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) by_ticket: BTreeMap<Ticket, WaitingClaim>,
    by_id: BTreeMap<ClaimId, Ticket>,
    by_reentry: BTreeMap<ReentryId, BTreeSet<Ticket>>,
    exclusive: RankedQueue,
    shared: RankedQueue,
    pub(super) clients: BTreeMap<ClientId, Heartbeat>,
    by_end: BTreeSet<(Moment, ClientId)>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.exclusive.len() + self.shared.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    pub(super) fn ticket(&self, id: &ClaimId) -> Option<Ticket> {
        self.by_id.get(id).copied()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&WaitingClaim> {
        self.by_ticket.get(&ticket)
    }

    /// Changes the attempts of a place, on which nothing else depends.
    pub(super) fn change_attempts(&mut self, ticket: Ticket, change: impl FnOnce(&mut Attempts)) {
        if let Some(place) = self.by_ticket.get_mut(&ticket) {
            change(&mut place.attempts);
        }
    }

    /// Appends a place; its ticket is larger than all before it.
    pub(super) fn push(&mut self, ticket: Ticket, place: WaitingClaim, until: Moment) {
        self.line(place.ask.is_exclusive()).push(ticket);
        self.by_id.insert(place.ask.claim.id, ticket);
        if let Some(reentry) = place.ask.reentry {
            self.by_reentry.entry(reentry).or_default().insert(ticket);
        }
        self.join(place.client, ticket, until);
        self.by_ticket.insert(ticket, place);
    }

    /// Takes a place out, together with the moment until which it would have lived.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<(WaitingClaim, Moment)> {
        let place = self.by_ticket.remove(&ticket)?;
        self.line(place.ask.is_exclusive()).remove(ticket);
        self.by_id.remove(&place.ask.claim.id);
        if let Some(reentry) = place.ask.reentry
            && let Some(tickets) = self.by_reentry.get_mut(&reentry)
        {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.by_reentry.remove(&reentry);
            }
        }
        let until = self.leave(place.client, ticket);
        Some((place, until))
    }

    /// A client was heard of: all its places live at least until then. `ticket` is one of them; if
    /// it belonged to another client, it moves to this one.
    pub(super) fn hear(&mut self, client: ClientId, ticket: Ticket, until: Moment) {
        let Some(place) = self.by_ticket.get_mut(&ticket) else { return };
        let before = std::mem::replace(&mut place.client, client);
        let lives = if before == client { until } else { self.leave(before, ticket) };
        self.join(client, ticket, until.max(lives));
    }

    /// Drops the places of clients that have not been heard of in time.
    pub(super) fn purge(&mut self, now: Moment) {
        while let Some(&(until, client)) = self.by_end.first()
            && until <= now
        {
            let places = self.clients.get(&client).map(|beat| beat.places.clone());
            for ticket in places.unwrap_or_default() {
                self.remove(ticket);
            }
            self.clients.remove(&client);
            self.by_end.remove(&(until, client));
        }
    }

    /// Says of a client until when it lives, and whether it has places beyond this excerpt.
    pub(super) fn note(&mut self, client: ClientId, until: Moment, has_more: bool) {
        self.clients.insert(client, Heartbeat { until, places: BTreeSet::new(), has_more });
        self.by_end.insert((until, client));
    }

    /// Says of each line what is not part of this excerpt.
    pub(super) fn leave_out(&mut self, exclusive: OmittedRows, shared: OmittedRows) {
        self.exclusive.leave_out(exclusive);
        self.shared.leave_out(shared);
    }

    /// True if the first of either line is part of this excerpt.
    pub(super) fn knows_its_head(&self) -> bool {
        self.exclusive.knows_its_head() && self.shared.knows_its_head()
    }

    /// The order that the first shared place asked for.
    pub(super) fn order(&self) -> Option<Order> {
        self.shared.first().and_then(|ticket| self.get(ticket)).map(|place| place.ask.order)
    }

    /// The place that the order serves next.
    pub(super) fn first(&self, order: Order) -> Option<Ticket> {
        let (exclusive, shared) = (self.exclusive.first(), self.shared.first());
        match order {
            Order::Fifo => exclusive.into_iter().chain(shared).min(),
            Order::PreferWriters => exclusive.or(shared),
            Order::PreferReaders => shared.or(exclusive),
        }
    }

    /// How many the order puts before this ticket, or before a newcomer who has none.
    pub(super) fn ahead(&self, order: Order, exclusive: bool, ticket: Option<Ticket>) -> usize {
        let earlier = |line: &RankedQueue| ticket.map_or(line.len(), |ticket| line.before(ticket));
        match (order, exclusive) {
            (Order::Fifo, _) => earlier(&self.exclusive) + earlier(&self.shared),
            (Order::PreferWriters, true) => earlier(&self.exclusive),
            (Order::PreferWriters, false) => self.exclusive.len() + earlier(&self.shared),
            (Order::PreferReaders, true) => self.shared.len() + earlier(&self.exclusive),
            (Order::PreferReaders, false) => earlier(&self.shared),
        }
    }

    /// A place of this thread of work, if any of it waits.
    pub(super) fn of_reentry(&self, reentry: &ReentryId) -> Option<Ticket> {
        self.by_reentry.get(reentry).and_then(|tickets| tickets.first().copied())
    }

    /// The live places in the sequence in which the order serves them, purged or not.
    pub(super) fn live(&self, order: Order, now: Moment) -> impl Iterator<Item = &WaitingClaim> {
        let fifo = (order == Order::Fifo).then(|| self.by_ticket.keys().copied());
        let (first, then) = match order {
            Order::PreferReaders => (&self.shared, &self.exclusive),
            Order::Fifo | Order::PreferWriters => (&self.exclusive, &self.shared),
        };
        let lines = fifo.is_none().then(|| first.iter().chain(then.iter()));
        let tickets = fifo.into_iter().flatten().chain(lines.into_iter().flatten());
        tickets
            .filter_map(|ticket| self.by_ticket.get(&ticket))
            .filter(move |place| self.is_heard(place.client, now))
    }

    /// How many places are live, purged or not.
    pub(super) fn live_len(&self, now: Moment) -> usize {
        let live = self.clients.values().filter(|beat| beat.until > now);
        live.map(|beat| beat.places.len()).sum()
    }

    fn is_heard(&self, client: ClientId, now: Moment) -> bool {
        self.clients.get(&client).is_some_and(|beat| beat.until > now)
    }

    fn line(&mut self, exclusive: bool) -> &mut RankedQueue {
        if exclusive { &mut self.exclusive } else { &mut self.shared }
    }

    fn join(&mut self, client: ClientId, ticket: Ticket, until: Moment) {
        let beat = self.clients.entry(client).or_insert_with(|| Heartbeat {
            until,
            places: BTreeSet::new(),
            has_more: false,
        });
        beat.places.insert(ticket);
        self.by_end.remove(&(beat.until, client));
        beat.until = beat.until.max(until);
        self.by_end.insert((beat.until, client));
    }

    fn leave(&mut self, client: ClientId, ticket: Ticket) -> Moment {
        let Some(beat) = self.clients.get_mut(&client) else { return Moment::ORIGIN };
        beat.places.remove(&ticket);
        let until = beat.until;
        if beat.places.is_empty() && !beat.has_more {
            self.clients.remove(&client);
            self.by_end.remove(&(until, client));
        }
        until
    }

    pub(super) fn verify(&self, now: Moment) {
        assert!(self.by_end.iter().all(|(until, _)| *until > now), "a dead client is left");
        assert_eq!(self.by_end.len(), self.clients.len(), "a client without an end");
        let beating: usize = self.clients.values().map(|beat| beat.places.len()).sum();
        assert_eq!(beating, self.len(), "a place without a heartbeat");
        assert_eq!(self.by_id.len(), self.len(), "a place without a claim");
        assert_eq!(self.exclusive.len() + self.shared.len(), self.len(), "a place in no line");
        let reentrant = self.by_ticket.values().filter(|place| place.ask.reentry.is_some()).count();
        let indexed: usize = self.by_reentry.values().map(BTreeSet::len).sum();
        assert_eq!(reentrant, indexed, "the reentry index is wrong");
    }
}
