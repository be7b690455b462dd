//! Which operation comes next, drawn from a seed.

use std::time::Duration;

use distlock_core::{
    Ask, AttemptId, CAPACITY_MAX, Capabilities, Claim, ClaimId, Key, Label, Order, ReentryId,
    ReleaseOptions, Renewal, TTL_MAX, Wait,
};

use crate::Rng;

/// Fences and tickets are raised to this far above the last one seen.
pub(super) const FLOOR_STEP: u64 = 1_000_000_000;

/// Far longer than a burst takes, so that nothing ends in the middle of it.
const BURST_SPAN: Duration = Duration::from_secs(600);

/// Longer than a crowd takes, unless time is let pass.
const CROWD_SPAN: Duration = Duration::from_secs(60);

/// A claim that was asked for, and by which client.
#[derive(Clone, Debug)]
pub(super) struct KnownClaim {
    pub(super) ask: Ask,
    pub(super) client: usize,
    /// The least fence that was asked for, as the model and as the store count.
    pub(super) floor: Option<(u64, u64)>,
    /// The ticket it was last known to wait under, as the model and as the store count.
    pub(super) ticket: Option<(u64, u64)>,
}

/// One operation. Claims are indexes into those known.
#[derive(Clone, Debug)]
pub(super) enum Op {
    New {
        client: usize,
        ask: Box<Ask>,
        raise: bool,
    },
    Again {
        client: usize,
        claim: usize,
        attempt: Option<AttemptId>,
    },
    Renew {
        client: usize,
        batch: Vec<usize>,
        span: Duration,
        weight: Option<u32>,
        raise: bool,
        /// A claim that is believed to wait says so.
        beats: bool,
    },
    Release {
        client: usize,
        claim: usize,
        /// Only this attempt for the claim.
        attempt: Option<AttemptId>,
        how: ReleaseOptions,
    },
    /// Breaks the hold of this index among those that hold, or one that does not exist.
    Break {
        client: usize,
        nth: Option<u64>,
        how: ReleaseOptions,
    },
    Inspect {
        client: usize,
    },
    /// Two clients deal with many keys, each time with all of them in one instant.
    Burst {
        clients: [usize; 2],
        asks: Vec<[Ask; 2]>,
    },
    /// Many wait at a key of their own, for which they are asked for one by one by these clients.
    Crowd {
        asks: Vec<(usize, Ask)>,
        lifetime: Duration,
    },
    /// At a key of their own, some ask one by one; then one releases while another asks, at the
    /// same moment, time and again: who leaves and who comes.
    Swap {
        asks: Vec<(usize, Ask)>,
        swaps: Vec<(usize, usize)>,
    },
    Pass(Duration),
}

/// Draws operations for one key.
#[derive(Debug)]
pub(super) struct Planner {
    pub(super) rng: Rng,
    pub(super) key: Key,
    pub(super) order: Order,
    pub(super) capabilities: Capabilities,
    pub(super) clients: usize,
    made: u128,
}

impl Planner {
    pub(super) fn new(
        mut rng: Rng,
        key: Key,
        order: Order,
        capabilities: Capabilities,
        clients: usize,
    ) -> Self {
        let made = u128::from(rng.next_u64()) << 64;
        Self { rng, key, order, capabilities, clients, made }
    }

    pub(super) fn next(&mut self, known: &[KnownClaim]) -> Op {
        let client = self.index(self.clients);
        if known.is_empty() {
            return self.new_claim(client);
        }
        match self.rng.below(100) {
            0..32 => self.new_claim(client),
            32..40 => {
                let claim = self.recent(known);
                let attempt = known[claim].ask.attempt.map(|first| self.attempt(first));
                Op::Again { client: self.usual_client(known, claim), claim, attempt }
            }
            40..62 => self.renewal(known),
            62..80 => {
                let claim = self.recent(known);
                let attempt = known[claim].ask.attempt.map(|first| self.attempt(first));
                let attempt = attempt.filter(|_| self.rng.chance(0.8));
                let client = self.usual_client(known, claim);
                Op::Release { client, claim, attempt, how: self.how() }
            }
            80..84 => {
                let nth = self.rng.chance(0.8).then(|| self.rng.next_u64());
                Op::Break { client, nth, how: self.how() }
            }
            84..88 => Op::Inspect { client },
            88 => self.burst(client),
            // As long as sixty others, so one in three hundred is enough.
            89 if self.capabilities.queue && self.rng.chance(0.33) => self.crowd(client),
            90 if self.capabilities.queue => self.swap(client),
            _ => Op::Pass(self.gap()),
        }
    }

    fn new_claim(&mut self, client: usize) -> Op {
        let ask = Box::new(self.possible_ask());
        let raise = self.capabilities.fencing && self.rng.chance(0.05);
        Op::New { client, ask, raise }
    }

    fn possible_ask(&mut self) -> Ask {
        loop {
            let ask = self.ask();
            ask.check().expect("the planner draws valid asks");
            if self.capabilities.missing_for(&ask).is_none() {
                return ask;
            }
        }
    }

    fn ask(&mut self) -> Ask {
        self.made += 1;
        let claim = Claim::new(self.key.clone(), ClaimId::from_bytes(self.made.to_be_bytes()));
        // The owner tells claims apart in what the store shows of them.
        let owner = label("owner", &format!("c{}", self.made & 0xffff_ffff));
        let ttl = self.span();
        let mut ask = Ask::new(claim, owner, ttl);
        ask.order = self.order;
        if self.rng.chance(0.03) {
            ask.order = *self.rng.pick(&[Order::Fifo, Order::PreferWriters, Order::PreferReaders]);
        }
        if self.rng.chance(0.2) {
            ask.reason = Some(label("reason", "because"));
        }
        if self.rng.chance(0.3) {
            ask.attempt = Some(AttemptId::from_bytes([0xa0; 16]));
        }
        self.shape(&mut ask);
        if self.rng.chance(0.7) {
            let waiters_max = if self.rng.chance(0.15) { 2 } else { 1_000 };
            ask.wait = Some(Wait { place: self.span(), waiters_max });
        }
        ask
    }

    /// The attempt that was made first, or one of more than a claim remembers.
    fn attempt(&mut self, first: AttemptId) -> AttemptId {
        let other = u8::try_from(self.rng.below(10)).unwrap_or(0);
        if self.rng.chance(0.3) { first } else { AttemptId::from_bytes([0xa0 + other; 16]) }
    }

    /// Draws the kind of lock. An order of readers and writers mostly gets such.
    fn shape(&mut self, ask: &mut Ask) {
        let sharing = if self.order == Order::Fifo { 5 } else { 8 };
        let kind = self.rng.below(10);
        if kind < sharing {
            ask.capacity = CAPACITY_MAX;
            ask.weight = if self.rng.chance(0.35) { CAPACITY_MAX } else { 1 };
            let grouped = ask.weight == 1 && self.rng.chance(0.3);
            ask.group = grouped.then(|| label("group", self.rng.pick::<&str>(&["red", "blue"])));
        } else if kind == 9 || sharing == 8 {
            let thread = *self.rng.pick(&[1u8, 2]);
            ask.reentry = self.rng.chance(0.7).then(|| ReentryId::from_bytes([thread; 16]));
        } else {
            ask.capacity = *self.rng.pick(&[2, 3, 5]);
            ask.weight = 1 + u32::try_from(self.rng.below(u64::from(ask.capacity))).unwrap_or(0);
        }
    }

    fn renewal(&mut self, known: &[KnownClaim]) -> Op {
        let claim = self.recent(known);
        let client = self.usual_client(known, claim);
        let span = self.span();
        let one = |weight, raise| Op::Renew {
            client,
            batch: vec![claim],
            span,
            weight,
            raise,
            beats: false,
        };
        if self.capabilities.downgrade && self.rng.chance(0.2) {
            return one(Some(1 + u32::from(self.rng.chance(0.3))), false);
        }
        if self.capabilities.fencing && self.rng.chance(0.05) {
            return one(None, true);
        }
        if self.rng.chance(0.4) {
            return self.heartbeat(known, client, span);
        }
        // The claims of a batch may be executed in any sequence, so they are plain renewals.
        let mut batch = vec![claim];
        for _ in 0..self.rng.below(4) {
            let other = self.recent(known);
            if !batch.contains(&other) {
                batch.push(other);
            }
        }
        Op::Renew { client, batch, span, weight: None, raise: false, beats: false }
    }

    /// One heartbeat for most of what a client has in the queue, as far as it knows.
    fn heartbeat(&mut self, known: &[KnownClaim], client: usize, span: Duration) -> Op {
        let mut batch = Vec::new();
        for (claim, known) in known.iter().enumerate().rev().take(60) {
            let mine = known.client == client || self.rng.chance(0.05);
            if known.ticket.is_some() && mine && batch.len() < 12 && self.rng.chance(0.8) {
                batch.push(claim);
            }
        }
        if batch.is_empty() {
            batch.push(self.recent(known));
        }
        Op::Renew { client, batch, span, weight: None, raise: false, beats: true }
    }

    /// Asks of two clients for the same keys, which no other test uses.
    fn burst(&mut self, client: usize) -> Op {
        let clients = [client, self.index(self.clients)];
        let (number, count) = (self.rng.next_u64(), 2 + self.rng.below(11));
        let mut asks = Vec::new();
        for at in 0..count {
            let key = Key::new(format!("{}/{number:x}/{at}", self.key)).expect("a short key");
            asks.push([0, 1].map(|_| {
                let mut ask = self.possible_ask();
                (ask.claim.key, ask.order) = (key.clone(), self.order);
                ask.ttl = BURST_SPAN;
                ask.wait = ask.wait.map(|wait| Wait { place: BURST_SPAN, ..wait });
                ask
            }));
        }
        Op::Burst { clients, asks }
    }

    /// Asks of one client and a few of others for one key, which no other test uses.
    fn crowd(&mut self, client: usize) -> Op {
        let key = format!("{}/{:x}", self.key, self.rng.next_u64());
        let key = Key::new(key).expect("a short key");
        let plain = self.rng.chance(0.5);
        let mut asks = Vec::new();
        for _ in 0..(12 + self.rng.below(20)) {
            let mut ask = self.possible_ask();
            if plain {
                (ask.capacity, ask.weight, ask.group, ask.reentry) = (1, 1, None, None);
                ask.attempt = None;
            }
            // A store may rely on ids to be random.
            let id = u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64());
            ask.claim = Claim::new(key.clone(), ClaimId::from_bytes(id.to_be_bytes()));
            (ask.order, ask.ttl) = (self.order, CROWD_SPAN);
            ask.wait = Some(Wait { place: CROWD_SPAN, waiters_max: 1_000 });
            let other = self.rng.chance(0.1);
            asks.push((if other { self.index(self.clients) } else { client }, ask));
        }
        Op::Crowd { asks, lifetime: CROWD_SPAN + Duration::from_secs(1) }
    }

    /// Mostly the client that has waited longest leaves, and mostly a new client comes.
    fn swap(&mut self, client: usize) -> Op {
        let key = format!("{}/{:x}", self.key, self.rng.next_u64());
        let key = Key::new(key).expect("a short key");
        let plain = self.rng.chance(0.8);
        let mut asks = Vec::new();
        for _ in 0..(2 + 2 * self.rng.below(4)) {
            let mut ask = self.possible_ask();
            if plain {
                (ask.capacity, ask.weight, ask.group, ask.reentry) = (1, 1, None, None);
                ask.attempt = None;
            }
            (ask.claim.key, ask.order, ask.ttl) = (key.clone(), self.order, BURST_SPAN);
            let waiters_max = if self.rng.chance(0.9) { 1_000 } else { 2 };
            ask.wait = Some(Wait { place: BURST_SPAN, waiters_max });
            let other = self.rng.chance(0.2);
            asks.push((if other { self.index(self.clients) } else { client }, ask));
        }
        let half = asks.len() / 2;
        let swap = |nth| {
            let usual = self.rng.chance(0.9);
            let leaves = if usual { nth } else { self.index(asks.len()) };
            (leaves, if usual { half + nth } else { self.index(asks.len()) })
        };
        let swaps = (0..half).map(swap).collect();
        Op::Swap { asks, swaps }
    }

    fn how(&mut self) -> ReleaseOptions {
        let keep = if self.rng.chance(0.1) { self.span() } else { Duration::ZERO };
        let bury = if self.rng.chance(0.25) { self.span() } else { Duration::ZERO };
        ReleaseOptions { keep, bury }
    }

    /// How long something lives: 1.1, 1.3, … 12.9 s. All operations happen at multiples of 200 ms,
    /// so nothing ends within 100 ms of one.
    fn span(&mut self) -> Duration {
        let span = Duration::from_millis(1_100 + 200 * self.rng.below(60));
        debug_assert!(span < TTL_MAX);
        span
    }

    /// How long to let pass: 0.2 to 3 s, at times long enough to end most of what there is.
    fn gap(&mut self) -> Duration {
        let steps =
            if self.rng.chance(0.1) { 30 + self.rng.below(40) } else { 1 + self.rng.below(15) };
        Duration::from_millis(200 * steps)
    }

    /// Mostly one of the last ten claims, so that most of what is named is alive.
    fn recent(&mut self, known: &[KnownClaim]) -> usize {
        let from = if self.rng.chance(0.9) { known.len().saturating_sub(10) } else { 0 };
        from + self.index(known.len() - from)
    }

    /// Mostly the client that asked; a claim may also be kept by another one.
    fn usual_client(&mut self, known: &[KnownClaim], claim: usize) -> usize {
        if self.rng.chance(0.95) { known[claim].client } else { self.index(self.clients) }
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).expect("an index fits")
    }
}

/// The renewal of a claim as the model or the store shall see it.
pub(super) fn renewal(
    known: &KnownClaim,
    span: Duration,
    weight: Option<u32>,
    fence_floor: Option<u64>,
    ticket: Option<u64>,
) -> Renewal {
    Renewal { ticket, weight, fence_floor, ..Renewal::hold(known.ask.claim.clone(), span) }
}

fn label(what: &'static str, text: &str) -> Label {
    Label::new(what, text).expect("the planner writes valid labels")
}
