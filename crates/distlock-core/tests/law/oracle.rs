//! The law a second time, written from its rules: two lists and a counter, scanned from end to
//! end. It is slow and has no index that could be wrong.

use distlock_core::law::{AddressedPush, Now};
use distlock_core::{
    Answer, Ask, AttemptId, Busy, ClaimId, ClientId, Moment, Order, ReleaseOptions, ReleaseOutcome,
};
use distlock_core::{Push, QueuePosition, Renewal, Standing, Target, Ticket};

use super::world::{Op, Reply};

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) ask: Ask,
    pub(crate) client: ClientId,
    pub(crate) fence: u64,
    pub(crate) since: Moment,
    pub(crate) until: Moment,
    pub(crate) kept: bool,
    pub(crate) attempts: Vec<AttemptId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) ticket: Ticket,
    pub(crate) ask: Ask,
    pub(crate) client: ClientId,
    pub(crate) since: Moment,
    pub(crate) until: Moment,
    pub(crate) attempts: Vec<AttemptId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) holds: Vec<Hold>,
    pub(crate) places: Vec<Place>,
    pub(crate) tombstones: Vec<(ClaimId, Moment)>,
    pub(crate) counter: u64,
    pub(crate) notices: Vec<AddressedPush>,
}

impl Oracle {
    pub(crate) fn apply(&mut self, op: &Op, now: Now) -> (Reply, Vec<AddressedPush>) {
        self.notices.clear();
        let reply = match op {
            Op::Acquire(ask, client) => Reply::Answer(self.acquire(ask, *client, now)),
            Op::Renew(renewal, client) => Reply::Standing(self.renew(renewal, *client, now)),
            Op::Release(target, how) => Reply::Outcome(self.release(target, *how, now)),
            Op::Pass(_) => Reply::Passed,
        };
        (reply, self.notices.clone())
    }

    fn acquire(&mut self, ask: &Ask, client: ClientId, now: Now) -> Answer {
        self.settle(now);
        let id = ask.claim.id;
        let attempt = ask.attempt.map(|attempt| tombstone(id, attempt));
        if self.tombstones.iter().any(|tombstone| tombstone.0 == id || Some(tombstone.0) == attempt)
        {
            return Answer::Dead;
        }
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.ask.claim.id == id) {
            if hold.kept {
                return Answer::Dead;
            }
            hold.until = hold.until.max(now.at.after(ask.ttl));
            join(&mut hold.attempts, ask.attempt);
            return Answer::Granted { fence: hold.fence };
        }
        if let Some(ticket) = self.ticket_of(id) {
            if let Some(wait) = ask.wait {
                self.heartbeat(ticket, client, now.at.after(wait.place));
            }
            let place = self.places.iter_mut().find(|place| place.ticket == ticket);
            join(&mut place.unwrap().attempts, ask.attempt);
            return Answer::Busy(self.busy(ask, Some(ticket), now.at));
        }
        if !ask.is_exclusive() && self.order().is_some_and(|order| order != ask.order) {
            return Answer::Conflict;
        }
        if let Some(fence) = self.fence_inside(ask) {
            return self.hold(ask, client, fence, now.at, now.at.after(ask.ttl));
        }
        if self.ahead(ask, None) == 0 && self.fits(ask) {
            let fence = self.mint(ask.fence_floor.unwrap_or(now.seed));
            return self.hold(ask, client, fence, now.at, now.at.after(ask.ttl));
        }
        let Some(wait) = ask.wait else {
            return Answer::Busy(self.busy(ask, None, now.at));
        };
        if self.places.len() >= wait.waiters_max as usize {
            return Answer::Full;
        }
        let ticket = self.mint(now.seed);
        let (since, attempts) = (now.at, ask.attempt.into_iter().collect());
        let place = Place { ticket, ask: ask.clone(), client, since, until: now.at, attempts };
        self.places.push(place);
        self.heartbeat(ticket, client, now.at.after(wait.place));
        Answer::Busy(self.busy(ask, Some(ticket), now.at))
    }

    fn renew(&mut self, renewal: &Renewal, client: ClientId, now: Now) -> Standing {
        let id = renewal.claim.id;
        // Renewing an exclusive hold touches the holder alone; a downgrade is more than that.
        let alone = self
            .holds
            .iter()
            .any(|hold| hold.ask.claim.id == id && hold.ask.is_exclusive() && hold.until > now.at);
        if !alone || renewal.weight.is_some() {
            self.settle(now);
        }
        let until = now.at.after(renewal.span);
        if let Some(ticket) = self.ticket_of(id) {
            self.heartbeat(ticket, client, until);
            let place = self.places.iter().find(|place| place.ticket == ticket).unwrap();
            let busy = self.busy(&place.ask, Some(ticket), now.at);
            let (ahead, retry_after) = (busy.ahead, busy.retry_after);
            return Standing::Waiting(QueuePosition { ticket, ahead, retry_after });
        }
        let mine = |hold: &&mut Hold| hold.ask.claim.id == id && !hold.kept;
        let Some(hold) = self.holds.iter_mut().find(mine) else {
            return Standing::Gone;
        };
        hold.until = hold.until.max(until);
        hold.ask.weight = hold.ask.weight.min(renewal.weight.unwrap_or(u32::MAX));
        let fence = hold.fence.max(renewal.fence_floor.unwrap_or(0));
        let reentry = hold.ask.reentry;
        for hold in &mut self.holds {
            // A thread of work has one fence.
            let sibling = reentry.is_some() && hold.ask.reentry == reentry;
            if sibling || hold.ask.claim.id == id {
                hold.fence = fence;
            }
        }
        self.counter = self.counter.max(fence);
        if renewal.weight.is_some() {
            self.settle(now);
        }
        Standing::Held { fence }
    }

    fn release(&mut self, target: &Target, how: ReleaseOptions, now: Now) -> ReleaseOutcome {
        self.settle(now);
        let outcome = match target {
            Target::Claim(claim) => self.give_up(claim.id, how, now.at),
            Target::Attempt { claim, attempt } => {
                if !how.bury.is_zero() {
                    self.bury(tombstone(claim.id, *attempt), now.at.after(how.bury));
                }
                let how = ReleaseOptions { bury: Default::default(), ..how };
                match self.is_last(claim.id, *attempt) {
                    true => self.give_up(claim.id, how, now.at),
                    false => ReleaseOutcome::Gone,
                }
            }
            Target::Fence { fence, .. } => self.break_holds(*fence, how, now.at),
            _ => panic!("a target the rules do not know"),
        };
        self.settle(now);
        outcome
    }

    /// Takes an attempt away. True if it was the only one.
    fn is_last(&mut self, id: ClaimId, attempt: AttemptId) -> bool {
        let holds = self.holds.iter_mut().map(|hold| (hold.ask.claim.id, &mut hold.attempts));
        let places = self.places.iter_mut().map(|place| (place.ask.claim.id, &mut place.attempts));
        let Some((_, attempts)) = holds.chain(places).find(|(claim, _)| *claim == id) else {
            return false;
        };
        let known = attempts.contains(&attempt);
        attempts.retain(|other| *other != attempt);
        known && attempts.is_empty()
    }

    fn give_up(&mut self, id: ClaimId, how: ReleaseOptions, now: Moment) -> ReleaseOutcome {
        if !how.bury.is_zero() {
            self.bury(id, now.after(how.bury));
        }
        if self.ticket_of(id).is_some() {
            self.places.retain(|place| place.ask.claim.id != id);
            return ReleaseOutcome::WasWaiting;
        }
        let mine = |hold: &Hold| hold.ask.claim.id == id && !hold.kept;
        let Some(at) = self.holds.iter().position(mine) else {
            return ReleaseOutcome::Gone;
        };
        if how.keep.is_zero() {
            self.holds.remove(at);
        } else {
            self.holds[at].kept = true;
            self.holds[at].until = now.after(how.keep);
        }
        ReleaseOutcome::WasHeld
    }

    fn break_holds(&mut self, fence: u64, how: ReleaseOptions, now: Moment) -> ReleaseOutcome {
        let hit = |hold: &Hold| hold.fence == fence;
        let mut broken: Vec<Hold> = self.holds.iter().filter(|hold| hit(hold)).cloned().collect();
        broken.sort_by_key(|hold| hold.ask.claim.id);
        self.holds.retain(|hold| !hit(hold));
        for hold in &broken {
            let id = hold.ask.claim.id;
            self.bury(id, hold.until.max(now.after(how.bury)));
            self.notices.push(AddressedPush { to: hold.client, push: Push::Broken { id } });
        }
        if broken.is_empty() { ReleaseOutcome::Gone } else { ReleaseOutcome::WasHeld }
    }

    /// Forgets claims that have expired and lets in the next waiter.
    fn settle(&mut self, now: Now) {
        self.holds.retain(|hold| hold.until > now.at);
        self.places.retain(|place| place.until > now.at);
        self.tombstones.retain(|tombstone| tombstone.1 > now.at);
        let order = self.order().unwrap_or_default();
        let rank = |oracle: &Self, place: &Place| oracle.rank(place, order);
        while let Some(next) = self.places.iter().min_by_key(|place| rank(self, place)).cloned()
            && self.fits(&next.ask)
        {
            let fence = self.mint(next.ask.fence_floor.unwrap_or(now.seed));
            self.enter(&next, fence, now.at);
            let together = |place: &&Place| {
                next.ask.reentry.is_some() && place.ask.reentry == next.ask.reentry
            };
            let siblings: Vec<_> = self.places.iter().filter(together).cloned().collect();
            for sibling in siblings {
                self.enter(&sibling, fence, now.at);
            }
        }
    }

    fn enter(&mut self, place: &Place, fence: u64, now: Moment) {
        self.places.retain(|other| other.ticket != place.ticket);
        let until = place.until.min(now.after(place.ask.ttl));
        // Those who share agree on the order of the first of them.
        let shared = self.holds.iter().find(|hold| !hold.ask.is_exclusive());
        let order = shared.map_or(place.ask.order, |hold| hold.ask.order);
        self.hold(&Ask { order, ..place.ask.clone() }, place.client, fence, now, until);
        self.holds.last_mut().unwrap().attempts.clone_from(&place.attempts);
        let push = Push::Granted { id: place.ask.claim.id, ticket: place.ticket, fence };
        self.notices.push(AddressedPush { to: place.client, push });
    }

    fn hold(
        &mut self,
        ask: &Ask,
        client: ClientId,
        fence: u64,
        since: Moment,
        until: Moment,
    ) -> Answer {
        let (ask, attempts) = (ask.clone(), ask.attempt.into_iter().collect());
        self.holds.push(Hold { ask, client, fence, since, until, kept: false, attempts });
        Answer::Granted { fence }
    }

    fn fits(&self, ask: &Ask) -> bool {
        let alone = self.holds.is_empty();
        let shares = !ask.is_exclusive() && self.holds.iter().all(|hold| !hold.ask.is_exclusive());
        let agrees = self.holds.iter().all(|hold| hold.ask.group == ask.group);
        let held: u64 = self.holds.iter().map(|hold| u64::from(hold.ask.weight)).sum();
        alone || shares && agrees && held + u64::from(ask.weight) <= u64::from(ask.capacity)
    }

    /// The fence under which the asking thread of work is inside already. What it has released but
    /// is kept does not count.
    fn fence_inside(&self, ask: &Ask) -> Option<u64> {
        let reentry = ask.reentry?;
        let inside = |hold: &&Hold| hold.ask.reentry == Some(reentry) && !hold.kept;
        self.holds.iter().filter(inside).map(|hold| hold.fence).max()
    }

    /// Lower goes first.
    pub(crate) fn rank(&self, place: &Place, order: Order) -> (bool, Ticket) {
        (self.goes_later(&place.ask, order), place.ticket)
    }

    /// The order of those who share, or else of the first who waits to.
    fn order(&self) -> Option<Order> {
        self.order_at(Moment::ORIGIN)
    }

    /// The same, as a look sees it when some of them have ended and are not purged yet.
    pub(crate) fn order_at(&self, now: Moment) -> Option<Order> {
        let live = self.holds.iter().filter(|hold| hold.until > now).map(|hold| &hold.ask);
        let holds = live.into_iter().find(|ask| !ask.is_exclusive());
        let places = self.places.iter().filter(|place| !place.ask.is_exclusive());
        let first = places.min_by_key(|place| place.ticket).map(|place| &place.ask);
        holds.or(first).map(|ask| ask.order)
    }

    fn goes_later(&self, ask: &Ask, order: Order) -> bool {
        match order {
            Order::PreferWriters => !ask.is_exclusive(),
            Order::PreferReaders => ask.is_exclusive(),
            _ => false,
        }
    }

    fn ahead(&self, ask: &Ask, ticket: Option<Ticket>) -> usize {
        let order = self.order().unwrap_or(ask.order);
        let mine = (self.goes_later(ask, order), ticket.unwrap_or(Ticket::MAX));
        self.places.iter().filter(|place| self.rank(place, order) < mine).count()
    }

    fn busy(&self, ask: &Ask, ticket: Option<Ticket>, now: Moment) -> Busy {
        Busy {
            ticket,
            ahead: self.ahead(ask, ticket) as u64,
            retry_after: self.holds.iter().map(|hold| hold.until.since(now)).min(),
            holder: None,
        }
    }

    fn ticket_of(&self, id: ClaimId) -> Option<Ticket> {
        self.places.iter().find(|place| place.ask.claim.id == id).map(|place| place.ticket)
    }

    /// A claim that is heard of at one place is alive at all of its places. One that it takes over
    /// from another client brings the life it had.
    fn heartbeat(&mut self, ticket: Ticket, client: ClientId, until: Moment) {
        for place in self.places.iter_mut().filter(|place| place.ticket == ticket) {
            place.client = client;
        }
        let mine = |place: &&Place| place.client == client;
        let lives =
            self.places.iter().filter(mine).map(|place| place.until).fold(until, Moment::max);
        for place in self.places.iter_mut().filter(|place| place.client == client) {
            place.until = lives;
        }
    }

    /// A claim may have many graves and is dead until the last of them is forgotten.
    fn bury(&mut self, id: ClaimId, until: Moment) {
        self.tombstones.push((id, until));
    }

    fn mint(&mut self, at_least: u64) -> u64 {
        self.counter = at_least.max(self.counter + 1);
        self.counter
    }
}

/// Under what an attempt is buried.
fn tombstone(id: ClaimId, attempt: AttemptId) -> ClaimId {
    let of = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
    ClaimId::from_bytes((of(id.as_bytes()) ^ of(attempt.as_bytes())).to_be_bytes())
}

/// An ask for a claim that has attempts is one more of them, up to eight.
fn join(attempts: &mut Vec<AttemptId>, attempt: Option<AttemptId>) {
    let Some(attempt) = attempt.filter(|attempt| !attempts.contains(attempt)) else { return };
    match attempts.len() {
        0 => {}
        1..8 => attempts.push(attempt),
        _ => attempts.clear(),
    }
}
