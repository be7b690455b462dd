//! A random history: a few clients, about a dozen claims, and whatever they can think of.

use std::time::Duration;

use distlock_core::law::AddressedPush;
use distlock_core::{
    Answer, Ask, AttemptId, CAPACITY_MAX, ClaimId, ClientId, Moment, Order, Push, ReleaseOptions,
};
use distlock_core::{ReentryId, Renewal, Standing, Target, Ticket, Wait};

use super::rng::Rng;
use super::world::{Op, Reply, claim, client, key, label, ms};

/// What kind of locks a history is about. A narrow mix makes queues long and collisions frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    Mutexes,
    ReadersWriters,
    Groups,
    Semaphores,
    Everything,
}

pub(crate) const MIXES: [Mix; 5] =
    [Mix::Mutexes, Mix::ReadersWriters, Mix::Groups, Mix::Semaphores, Mix::Everything];

pub(crate) const ORDERS: [Order; 3] = [Order::Fifo, Order::PreferWriters, Order::PreferReaders];

/// Longer than anything else in a history.
pub(crate) const LONG: Duration = Duration::from_millis(500);

const TTLS: [u64; 5] = [1, 5, 20, 60, 200];
const PLACES: [u64; 4] = [2, 8, 30, 80];
const CLAIMS: usize = 12;
const CLIENTS: u64 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) rng: Rng,
    pub(crate) order: Order,
    pub(crate) mix: Mix,
    /// The claims in play. Older ones are left to their fate.
    asks: Vec<(Ask, ClientId)>,
    fences: Vec<u64>,
    tickets: Vec<Ticket>,
    /// Moments at which some lease or place may end.
    ends: Vec<Moment>,
    names: u64,
}

impl Walk {
    pub(crate) fn new(seed: u64, order: Order) -> Self {
        let mut rng = Rng::new(seed);
        let mix = MIXES[rng.below(5) as usize];
        let (asks, fences, tickets) = (Vec::new(), Vec::new(), Vec::new());
        Self { rng, order, mix, asks, fences, tickets, ends: Vec::new(), names: 0 }
    }

    /// The next thing that happens.
    pub(crate) fn next(&mut self, now: Moment) -> Op {
        match self.rng.below(100) {
            0..25 => {
                let (ask, client) = self.new_ask();
                self.remember_ends(now, ask.ttl, ask.wait.map(|wait| wait.place));
                Op::Acquire(ask, client)
            }
            25..40 => self.ask_again(now),
            40..60 => self.renew(now),
            60..78 => self.release(),
            _ => Op::Pass(self.while_(now)),
        }
    }

    /// Learns what clients learn, so that later operations name real fences and tickets.
    pub(crate) fn hear(&mut self, reply: &Reply, notices: &[AddressedPush]) {
        match reply {
            Reply::Answer(Answer::Granted { fence })
            | Reply::Standing(Standing::Held { fence }) => self.fences.push(*fence),
            Reply::Answer(Answer::Busy(busy)) => self.tickets.extend(busy.ticket),
            _ => {}
        }
        for notice in notices {
            if let Push::Granted { fence, .. } = notice.push {
                self.fences.push(fence);
            }
        }
        // Only the recent ones are likely to mean something still.
        self.fences.drain(..self.fences.len().saturating_sub(6));
        self.tickets.drain(..self.tickets.len().saturating_sub(6));
    }

    fn new_ask(&mut self) -> (Ask, ClientId) {
        self.names += 1;
        // The order of claim ids must not agree with the order in which they were made.
        let id = ClaimId::from_bytes(u128::from(self.rng.next()).to_be_bytes());
        let mut claim = claim(0);
        claim.id = id;
        let owner = label(&format!("claim {}", self.names));
        let mut ask = Ask::new(claim, owner, self.rng.millis(&TTLS));
        ask.order = self.order;
        if self.mix == Mix::Everything && self.rng.one_in(30) {
            ask.order = ORDERS[self.rng.below(3) as usize];
        }
        (ask.weight, ask.capacity) = self.size();
        self.decorate(&mut ask);
        if self.rng.below(4) > 0 {
            let waiters_max = if self.rng.one_in(12) { self.rng.below(4) as u32 } else { 1_000 };
            ask.wait = Some(Wait { place: self.rng.millis(&PLACES), waiters_max });
        }
        let client = client(1 + self.rng.below(CLIENTS) as u8);
        let slot = self.rng.below(CLAIMS as u64) as usize;
        if self.asks.len() < CLAIMS {
            self.asks.push((ask.clone(), client));
        } else {
            self.asks[slot] = (ask.clone(), client);
        }
        (ask, client)
    }

    fn size(&mut self) -> (u32, u32) {
        let kind = match self.mix {
            Mix::Mutexes => 0,
            Mix::ReadersWriters | Mix::Groups => 1 + self.rng.below(4),
            Mix::Semaphores => 5,
            Mix::Everything => self.rng.below(7),
        };
        match kind {
            0 => (1, 1),
            1 => (CAPACITY_MAX, CAPACITY_MAX),
            2..=4 => (1, CAPACITY_MAX),
            // Capacities differ, as they do during a rolling deployment.
            _ => {
                let capacity = 2 + self.rng.below(5);
                (1 + self.rng.below(capacity) as u32, capacity as u32)
            }
        }
    }

    /// One of more attempts than a claim remembers.
    fn attempt(&mut self) -> AttemptId {
        AttemptId::from_bytes([1 + self.rng.below(10) as u8; 16])
    }

    fn decorate(&mut self, ask: &mut Ask) {
        if self.rng.one_in(3) {
            ask.attempt = Some(self.attempt());
        }
        if matches!(self.mix, Mix::Groups | Mix::Everything) && self.rng.one_in(3) {
            ask.group = Some(label(["blue", "green"][self.rng.below(2) as usize]));
        }
        // Only the reentrant mutex sets it, and it asks for 1 of 1.
        if ask.capacity == 1 && self.rng.one_in(4) {
            ask.reentry = Some(ReentryId::from_bytes([self.rng.below(2) as u8; 16]));
        }
        if self.rng.one_in(10) {
            let last = self.fences.last().copied().unwrap_or(0);
            ask.fence_floor = Some((last + self.rng.below(40)).saturating_sub(20));
        }
    }

    fn ask_again(&mut self, now: Moment) -> Op {
        let Some((ask, owner)) = self.rng.pick(&self.asks).cloned() else {
            return Op::Pass(ms(1));
        };
        self.remember_ends(now, ask.ttl, ask.wait.map(|wait| wait.place));
        let client = if self.rng.one_in(10) { client(1) } else { owner };
        let mut ask = ask;
        match self.rng.below(20) {
            0 => ask.attempt = None,
            1 => ask.attempt = Some(self.attempt()),
            // A caller that chose its id repeats itself, each time in another call.
            _ if ask.attempt.is_some() && !self.rng.one_in(3) => ask.attempt = Some(self.attempt()),
            _ => {}
        }
        Op::Acquire(ask, client)
    }

    fn renew(&mut self, now: Moment) -> Op {
        let Some((ask, owner)) = self.rng.pick(&self.asks).cloned() else {
            return Op::Pass(ms(1));
        };
        let holds = self.rng.one_in(2);
        let span = if holds { self.rng.millis(&TTLS) } else { self.rng.millis(&PLACES) };
        let mut renewal = Renewal::hold(ask.claim.clone(), span);
        if self.rng.one_in(15) {
            // No client has asked for this one.
            renewal.claim = claim(self.rng.next());
        }
        renewal.ticket = if holds { None } else { self.rng.pick(&self.tickets).copied() };
        if self.rng.one_in(5) {
            renewal.weight = Some(1 + self.rng.below(u64::from(ask.weight.min(6))) as u32);
        }
        if self.rng.one_in(10) {
            let last = self.fences.last().copied().unwrap_or(0);
            renewal.fence_floor = Some((last + self.rng.below(40)).saturating_sub(20));
        }
        self.remember_ends(now, span, None);
        let client = if self.rng.one_in(15) { client(2) } else { owner };
        Op::Renew(renewal, client)
    }

    fn release(&mut self) -> Op {
        let mut how = ReleaseOptions::default();
        if self.rng.one_in(6) {
            how.bury = self.rng.millis(&[1, 3, 20, 300]);
        }
        if self.rng.one_in(6) {
            let fence = self.rng.pick(&self.fences).copied().unwrap_or(1);
            return Op::Release(Target::Fence { key: key(), fence }, how);
        }
        let Some((ask, _)) = self.rng.pick(&self.asks).cloned() else {
            return Op::Pass(ms(1));
        };
        let target = match ask.attempt {
            Some(first) if !self.rng.one_in(4) => {
                let attempt = if self.rng.one_in(3) { first } else { self.attempt() };
                Target::Attempt { claim: ask.claim, attempt }
            }
            _ => Target::Claim(ask.claim),
        };
        if self.rng.one_in(8) {
            how.keep = self.rng.millis(&[1, 10, 100]);
        }
        Op::Release(target, how)
    }

    /// Mostly a little, sometimes exactly until something ends, at times for ever.
    fn while_(&mut self, now: Moment) -> Duration {
        match self.rng.below(40) {
            0 => ms(1_000),
            1..4 => self.rng.millis(&[10, 50]),
            4..16 => self.until_an_end(now),
            _ => Duration::from_micros(1 + self.rng.below(2_000)),
        }
    }

    fn until_an_end(&mut self, now: Moment) -> Duration {
        self.ends.retain(|end| *end > now);
        // The nearest is the most likely to matter.
        let nearest = self.ends.iter().min().copied();
        let end = if self.rng.one_in(2) { nearest } else { self.rng.pick(&self.ends).copied() };
        end.map_or(ms(1), |end| end.since(now))
    }

    fn remember_ends(&mut self, now: Moment, ttl: Duration, place: Option<Duration>) {
        self.ends.push(now.after(ttl));
        self.ends.extend(place.map(|place| now.after(place)));
        self.ends.drain(..self.ends.len().saturating_sub(16));
    }
}
