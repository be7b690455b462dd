//! The law a second time, written from its rules: two lists and a counter, scanned from end to
//! end. It is slow and has no index that could be wrong.

use distlock_core::law::{Notice, Now};
use distlock_core::{Answer, Ask, Busy, ClaimId, ClientId, How, Moment, Order, Outcome};
use distlock_core::{Push, Renewal, Standing, Target, Ticket, Waiting};

use super::world::{Op, Reply};

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) ask: Ask,
    pub(crate) client: ClientId,
    pub(crate) fence: u64,
    pub(crate) since: Moment,
    pub(crate) until: Moment,
    pub(crate) kept: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) ticket: Ticket,
    pub(crate) ask: Ask,
    pub(crate) client: ClientId,
    pub(crate) since: Moment,
    pub(crate) until: Moment,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) order: Order,
    pub(crate) holds: Vec<Hold>,
    pub(crate) places: Vec<Place>,
    pub(crate) graves: Vec<(ClaimId, Moment)>,
    pub(crate) counter: u64,
    pub(crate) notices: Vec<Notice>,
}

impl Oracle {
    pub(crate) fn apply(&mut self, op: &Op, now: Now) -> (Reply, Vec<Notice>) {
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
        if self.graves.iter().any(|grave| grave.0 == id) {
            return Answer::Dead;
        }
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.ask.claim.id == id) {
            if hold.kept {
                return Answer::Dead;
            }
            hold.until = hold.until.max(now.at.after(ask.ttl));
            return Answer::Granted { fence: hold.fence };
        }
        if let Some(ticket) = self.ticket_of(id) {
            if let Some(wait) = ask.wait {
                self.heartbeat(ticket, client, now.at.after(wait.place));
            }
            return Answer::Busy(self.busy(ask, Some(ticket), now.at));
        }
        let free = self.holds.is_empty() && self.places.is_empty();
        if !free && self.order != ask.order {
            return Answer::Conflict;
        }
        self.order = ask.order;
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
        let place = Place { ticket, ask: ask.clone(), client, since: now.at, until: now.at };
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
            return Standing::Waiting(Waiting { ticket, ahead, retry_after });
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

    fn release(&mut self, target: &Target, how: How, now: Now) -> Outcome {
        self.settle(now);
        let outcome = match target {
            Target::Claim(claim) => self.give_up(claim.id, how, now.at),
            Target::Fence { fence, .. } => self.break_holds(*fence, how, now.at),
            _ => panic!("a target the rules do not know"),
        };
        self.settle(now);
        outcome
    }

    fn give_up(&mut self, id: ClaimId, how: How, now: Moment) -> Outcome {
        if !how.bury.is_zero() {
            self.bury(id, now.after(how.bury));
        }
        if self.ticket_of(id).is_some() {
            self.places.retain(|place| place.ask.claim.id != id);
            return Outcome::WasWaiting;
        }
        let mine = |hold: &Hold| hold.ask.claim.id == id && !hold.kept;
        let Some(at) = self.holds.iter().position(mine) else {
            return Outcome::Gone;
        };
        if how.keep.is_zero() {
            self.holds.remove(at);
        } else {
            self.holds[at].kept = true;
            self.holds[at].until = now.after(how.keep);
        }
        Outcome::WasHeld
    }

    fn break_holds(&mut self, fence: u64, how: How, now: Moment) -> Outcome {
        let hit = |hold: &Hold| hold.fence == fence;
        let mut broken: Vec<Hold> = self.holds.iter().filter(|hold| hit(hold)).cloned().collect();
        broken.sort_by_key(|hold| hold.ask.claim.id);
        self.holds.retain(|hold| !hit(hold));
        for hold in &broken {
            let id = hold.ask.claim.id;
            self.bury(id, hold.until.max(now.after(how.bury)));
            self.notices.push(Notice { to: hold.client, push: Push::Broken { id } });
        }
        if broken.is_empty() { Outcome::Gone } else { Outcome::WasHeld }
    }

    /// Forgets whoever is past its time and lets in whoever is next.
    fn settle(&mut self, now: Now) {
        self.holds.retain(|hold| hold.until > now.at);
        self.places.retain(|place| place.until > now.at);
        self.graves.retain(|grave| grave.1 > now.at);
        while let Some(next) = self.places.iter().min_by_key(|place| self.rank(place)).cloned()
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
        self.hold(&place.ask, place.client, fence, now, place.until);
        let push = Push::Granted { id: place.ask.claim.id, ticket: place.ticket, fence };
        self.notices.push(Notice { to: place.client, push });
    }

    fn hold(
        &mut self,
        ask: &Ask,
        client: ClientId,
        fence: u64,
        since: Moment,
        until: Moment,
    ) -> Answer {
        self.holds.push(Hold { ask: ask.clone(), client, fence, since, until, kept: false });
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
    pub(crate) fn rank(&self, place: &Place) -> (bool, Ticket) {
        (self.goes_later(&place.ask), place.ticket)
    }

    fn goes_later(&self, ask: &Ask) -> bool {
        match self.order {
            Order::PreferWriters => !ask.is_exclusive(),
            Order::PreferReaders => ask.is_exclusive(),
            _ => false,
        }
    }

    fn ahead(&self, ask: &Ask, ticket: Option<Ticket>) -> usize {
        let mine = (self.goes_later(ask), ticket.unwrap_or(Ticket::MAX));
        self.places.iter().filter(|place| self.rank(place) < mine).count()
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

    /// A client that is heard of at one place is alive at all of its places. One that it takes over
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
        self.graves.push((id, until));
    }

    fn mint(&mut self, at_least: u64) -> u64 {
        self.counter = at_least.max(self.counter + 1);
        self.counter
    }
}
