//! One key, from its first claim until nothing is left of it.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::law::{Now, Record};
use distlock_core::{
    Answer, Ask, Backend, ClientId, FENCE_MAX, Fault, Key, Moment, Push, QueuePosition,
    ReleaseOptions, Renewal, Standing, Streaming, Target,
};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::compare::{self, Numbers};
use super::inbox::Expected;
use super::plan::{self, FLOOR_STEP, KnownClaim, Op, Planner};
use super::{Differ, DifferReport, StoreClock};

/// How far an operation stays away from the end of anything.
const AWAY: Duration = Duration::from_millis(50);

/// How many operations a failure shows.
const SHOWN: usize = 20;

pub(super) struct Episode<'a> {
    pub(super) differ: &'a Differ,
    pub(super) clients: &'a [Arc<dyn Backend>],
    pub(super) planner: Planner,
    record: Record,
    now: Moment,
    /// Until when the running clock of the store has been accounted for.
    counted: Instant,
    /// When anything may end.
    ends: BTreeSet<Moment>,
    pub(super) known: Vec<KnownClaim>,
    pub(super) numbers: Numbers,
    pub(super) streams: Vec<Streaming<'static, Push>>,
    pub(super) pushes: Vec<Expected>,
    log: VecDeque<String>,
}

impl<'a> Episode<'a> {
    pub(super) fn new(
        differ: &'a Differ,
        clients: &'a [Arc<dyn Backend>],
        rng: crate::Rng,
        number: u64,
    ) -> Self {
        // Keys are new in every run: a store may remember those of an earlier one.
        let run = ClientId::random().expect("random bytes").reveal();
        let key = format!("differ/{:x}/{number}/{}", differ.seed, &run[..8]);
        let key = Key::new(key).expect("a short key");
        let capabilities = clients[0].capabilities();
        let streams = clients.iter().map(|client| client.pushes()).collect();
        Self {
            differ,
            clients,
            planner: Planner::new(rng, key, differ.order, capabilities, clients.len()),
            record: Record::new(0),
            now: Moment::from_micros(1_000_000_000),
            counted: Instant::now(),
            ends: BTreeSet::new(),
            known: Vec::new(),
            numbers: Numbers::default(),
            streams,
            pushes: Vec::new(),
            log: VecDeque::new(),
        }
    }

    /// Makes one operation on both sides and compares.
    pub(super) async fn step(
        &mut self,
        pass: &mut impl AsyncFnMut(Duration),
        report: &mut DifferReport,
    ) {
        let op = self.planner.next(&self.known);
        self.keep_away(pass).await;
        self.note(format!("{:?} {op:?}", self.now));
        match op {
            Op::New { client, ask, raise } => {
                let (model, store) = self.numbers.last();
                let floor = raise.then_some((model + FLOOR_STEP, store + FLOOR_STEP));
                self.known.push(KnownClaim { ask: *ask, client, floor, ticket: None });
                self.acquire(client, self.known.len() - 1, report).await;
            }
            Op::Again { client, claim, attempt } => {
                self.known[claim].ask.attempt = attempt;
                self.acquire(client, claim, report).await;
            }
            Op::Renew { client, batch, span, weight, raise, beats } => {
                let floor = raise.then(|| self.numbers.last());
                let of = |side: fn((u64, u64)) -> u64| {
                    let floor = floor.map(|last| side(last) + FLOOR_STEP);
                    let each = batch.iter().map(|claim| {
                        let known = &self.known[*claim];
                        let ticket = known.ticket.filter(|_| beats).map(side);
                        plan::renewal(known, span, weight, floor, ticket)
                    });
                    each.collect::<Vec<Renewal>>()
                };
                let (model, store) = (of(|pair| pair.0), of(|pair| pair.1));
                self.renew(client, &model, &store, report).await;
            }
            Op::Burst { clients, asks } => self.burst(clients, asks, report).await,
            Op::Crowd { asks, lifetime } => self.crowd(asks, lifetime, pass, report).await,
            Op::Swap { asks, swaps } => self.swap(asks, swaps, report).await,
            Op::Release { client, claim, attempt, how } => {
                let claim = self.known[claim].ask.claim.clone();
                let target = match attempt {
                    Some(attempt) => Target::Attempt { claim, attempt },
                    None => Target::Claim(claim),
                };
                self.release(client, &target, &target, how, report).await;
            }
            Op::Break { client, nth, how } => self.break_hold(client, nth, how, report).await,
            Op::Inspect { client } => self.inspect(client).await,
            Op::Pass(while_) => self.pass(while_, pass).await,
        }
        self.watch_pushes(report).await;
    }

    /// Lets everything end and looks whether anything is left.
    pub(super) async fn finish(
        &mut self,
        pass: &mut impl AsyncFnMut(Duration),
        report: &mut DifferReport,
    ) {
        let last = self.ends.last().copied().unwrap_or(self.now);
        self.pass(last.since(self.now) + 2 * AWAY, pass).await;
        for client in 0..self.clients.len() {
            self.inspect(client).await;
        }
        self.watch_pushes(report).await;
    }

    async fn acquire(&mut self, client: usize, claim: usize, report: &mut DifferReport) {
        let KnownClaim { ask, floor, .. } = self.known[claim].clone();
        self.ends_in(ask.ttl);
        self.ends_in(ask.wait.map_or(ask.ttl, |wait| wait.place));
        let for_model = Ask { fence_floor: floor.map(|(model, _)| model), ..ask.clone() };
        let for_store = Ask { fence_floor: floor.map(|(_, store)| store), ..ask };
        let now = self.tick();
        let (model, notices) = self.record.acquire(&for_model, client_id(client), now);
        self.verify();
        let answer = self.clients[client].acquire(&for_store).await;
        let store = self.sound(answer);
        self.note(format!("  law {model:?}\n  store {store:?}"));
        self.expect_pushes(&notices);
        let seen = self.record.inspect(&for_model.claim.key, now.at);
        report.add(&compare::kind(&model));
        let verdict = compare::answers(&mut self.numbers, &model, &store, &seen);
        self.judge(verdict);
        if let (Answer::Busy(model), Answer::Busy(store)) = (model, store)
            && let (Some(model), Some(store)) = (model.ticket, store.ticket)
        {
            self.known[claim].ticket = Some((model, store));
        }
    }

    async fn renew(
        &mut self,
        client: usize,
        for_model: &[Renewal],
        for_store: &[Renewal],
        report: &mut DifferReport,
    ) {
        let now = self.tick();
        let mut answers = vec![None; for_store.len()];
        let clients = self.clients;
        let mut stream = clients[client].renew(for_store);
        while let Some((index, standing)) = stream.next().await {
            let standing = self.sound(standing);
            match answers.get_mut(index) {
                Some(answer @ None) => *answer = Some(standing),
                _ => self.fail(&format!("index {index} was answered twice or not asked")),
            }
        }
        for (renewal, answer) in for_model.iter().zip(answers) {
            self.ends_in(renewal.span);
            let (model, notices) = self.record.renew(renewal, client_id(client), now);
            self.note(format!("  law {model:?}\n  store {answer:?}"));
            self.expect_pushes(&notices);
            report.add(&compare::kind(&model));
            let Some(store) = answer else { self.fail("a renewal was not answered") };
            // A store may serve a batch in any sequence, and who looks before another has renewed
            // sees a lease end sooner.
            let several = for_model.len() > 1;
            let [model, store] = [model, store].map(|s| if several { undated(s) } else { s });
            let verdict = compare::standings(&mut self.numbers, &model, &store);
            self.judge(verdict);
        }
    }

    pub(super) async fn release(
        &mut self,
        client: usize,
        for_model: &Target,
        for_store: &Target,
        how: ReleaseOptions,
        report: &mut DifferReport,
    ) {
        self.ends_in(how.keep);
        self.ends_in(how.bury);
        let now = self.tick();
        let (model, notices) = self.record.release(for_model, how, now);
        self.verify();
        let outcome = self.clients[client].release(for_store, how).await;
        let store = self.sound(outcome);
        self.note(format!("  law {model:?}\n  store {store:?}"));
        self.expect_pushes(&notices);
        report.add(&compare::kind(&model));
        if model != store {
            self.fail(&format!("the law says {model:?}, the store says {store:?}"));
        }
    }

    async fn break_hold(
        &mut self,
        client: usize,
        nth: Option<u64>,
        how: ReleaseOptions,
        report: &mut DifferReport,
    ) {
        let key = self.planner.key.clone();
        let holders = self.record.inspect(&key, self.now).holders;
        let nth = nth.filter(|_| !holders.is_empty()).map(|nth| nth % holders.len() as u64);
        let chosen = nth.and_then(|nth| holders.get(usize::try_from(nth).unwrap_or(0)));
        let pair = match chosen {
            Some(holder) => self.numbers.store(holder.fence).map(|store| (holder.fence, store)),
            // The next number will not do: the break may itself admit a waiter under it.
            None => Some((FENCE_MAX, FENCE_MAX)),
        };
        // A store that pushes nothing may not have told the fence yet.
        let Some((model, store)) = pair else { return };
        let of = |fence| Target::Fence { key: key.clone(), fence };
        self.release(client, &of(model), &of(store), how, report).await;
    }

    async fn inspect(&mut self, client: usize) {
        let now = self.tick();
        let key = self.planner.key.clone();
        let model = self.record.inspect(&key, now.at);
        let seen = self.clients[client].inspect(&key).await;
        let store = self.sound(seen);
        self.note(format!("  law {model:?}\n  store {store:?}"));
        let verdict = compare::snapshots(&mut self.numbers, &model, &store);
        self.judge(verdict);
    }

    /// Moves both clocks on until nothing is about to end or has just ended.
    pub(super) async fn keep_away(&mut self, pass: &mut impl AsyncFnMut(Duration)) {
        loop {
            let now = self.tick().at;
            // What ended long ago ends no more.
            let settled = Moment::from_micros(now.as_micros().saturating_sub(1_000_000));
            self.ends = self.ends.split_off(&settled);
            let near = |end: &Moment| end.since(now) < AWAY && now.since(*end) < AWAY;
            if !self.ends.iter().any(near) {
                return;
            }
            self.pass(2 * AWAY, pass).await;
        }
    }

    pub(super) async fn pass(&mut self, while_: Duration, pass: &mut impl AsyncFnMut(Duration)) {
        self.tick();
        pass(while_).await;
        // A pass that took as long as it let pass was a sleep; any other moved the store's clock,
        // and what it took itself is counted with the next operation.
        if self.differ.clock == StoreClock::Stands || self.counted.elapsed() < while_ {
            self.now = self.now.after(while_);
        }
    }

    /// The present of the model.
    pub(super) fn tick(&mut self) -> Now {
        if self.differ.clock == StoreClock::Runs {
            let now = Instant::now();
            self.now = self.now.after(now - self.counted);
            self.counted = now;
        }
        Now { at: self.now, seed: 1 }
    }

    /// The model keeps its own invariants, too.
    fn verify(&self) {
        let check = AssertUnwindSafe(|| self.record.verify(self.now));
        if catch_unwind(check).is_err() {
            self.fail("the law itself breaks an invariant; see the panic before this one");
        }
    }

    fn ends_in(&mut self, span: Duration) {
        self.ends.insert(self.now.after(span));
    }

    pub(super) fn sound<T>(&self, result: Result<T, Fault>) -> T {
        result.unwrap_or_else(|fault| self.fail(&format!("the store is at fault: {fault}")))
    }

    pub(super) fn judge(&self, verdict: Result<(), String>) {
        if let Err(difference) = verdict {
            self.fail(&difference);
        }
    }

    pub(super) fn note(&mut self, line: String) {
        // An operation has a line of its own and some for what came of it.
        let operations = self.log.iter().filter(|line| !line.starts_with(' ')).count();
        if operations > SHOWN && !line.starts_with(' ') {
            self.log.pop_front();
            while self.log.front().is_some_and(|line| line.starts_with(' ')) {
                self.log.pop_front();
            }
        }
        self.log.push_back(line);
    }

    pub(super) fn fail(&self, difference: &str) -> ! {
        let lines: Vec<&str> = self.log.iter().map(String::as_str).collect();
        let Differ { seed, order, .. } = self.differ;
        panic!(
            "{difference}\nDiffer::new({seed:#x}, Order::{order:?}), key {}, last operations:\n{}",
            self.planner.key,
            lines.join("\n")
        );
    }
}

pub(super) fn undated(standing: Standing) -> Standing {
    match standing {
        Standing::Waiting(waiting) => {
            Standing::Waiting(QueuePosition { retry_after: None, ..waiting })
        }
        other => other,
    }
}

pub(super) fn client_id(index: usize) -> ClientId {
    ClientId::from_bytes((index as u128).to_be_bytes())
}
