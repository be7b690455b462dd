//! Many who wait at one key: what a store tells of all at a glance must be true of each.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_core::law::Record;
use distlock_core::{
    Answer, Ask, Claim, ClaimId, QueuePosition, ReleaseOptions, Renewal, Standing, Target, Ticket,
};
use futures_util::StreamExt;

use super::DifferReport;
use super::compare::{self, Numbers};
use super::episode::{Episode, client_id, undated};

/// A store may count those ahead only for so few.
const AHEAD_COUNTED_MAX: usize = 16;

/// One key, and what the clients believe of it: each claim, who keeps it, and under which ticket as
/// the model and as the store count.
struct CrowdRun {
    record: Record,
    numbers: Numbers,
    waiting: BTreeMap<ClaimId, (usize, Ask, (Ticket, Ticket))>,
    /// Left, held or broken, as far as their clients were told.
    others: Vec<(usize, Ask, (Ticket, Ticket))>,
}

impl Episode<'_> {
    /// The first ask takes the key and most others wait for it. Then things happen, of which their
    /// clients hear or not, and there are heartbeats for all that each client believes in.
    pub(super) async fn crowd(
        &mut self,
        asks: Vec<(usize, Ask)>,
        lifetime: Duration,
        pass: &mut impl AsyncFnMut(Duration),
        report: &mut DifferReport,
    ) {
        let mut crowd = CrowdRun {
            record: Record::new(0),
            numbers: Numbers::default(),
            waiting: BTreeMap::new(),
            others: Vec::new(),
        };
        let Some((first, ask)) = asks.first() else { return };
        self.notice_ends(*first, ask.claim.id, report).await;
        for (client, ask) in &asks {
            self.join(*client, ask, &mut crowd, report).await;
        }
        for _ in 0..6 {
            match self.planner.rng.below(12) {
                0..4 => self.somebody_leaves(&asks, &mut crowd, report).await,
                4 => self.somebody_moves(&mut crowd, report).await,
                5 => crowd.forget_one(),
                6 => crowd.remember_one(),
                7 => {
                    let (client, ask) = &asks[self.planner.rng.below(4) as usize];
                    self.join(*client, ask, &mut crowd, report).await;
                }
                8 if self.planner.rng.chance(0.3) => {
                    self.pass(lifetime, pass).await;
                    self.keep_away(pass).await;
                    self.notice_ends(*first, ask.claim.id, report).await;
                }
                _ => {}
            }
            for client in 0..self.clients.len() {
                self.beat_all(client, &mut crowd, report).await;
            }
        }
        for (client, ask) in &asks {
            self.leave(*client, &ask.claim, &mut crowd, report).await;
        }
    }

    async fn join(
        &mut self,
        client: usize,
        ask: &Ask,
        crowd: &mut CrowdRun,
        report: &mut DifferReport,
    ) {
        let now = self.tick();
        let (model, _) = crowd.record.acquire(ask, client_id(client), now);
        let answer = self.clients[client].acquire(ask).await;
        let store = self.sound(answer);
        self.note(format!("  {client} asks, law {model:?}\n  store {store:?}"));
        report.add(&compare::kind(&model));
        let seen = crowd.record.inspect(&ask.claim.key, now.at);
        self.judge(compare::answers(&mut crowd.numbers, &model, &store, &seen));
        if let (Answer::Busy(model), Answer::Busy(store)) = (model, store)
            && let (Some(model), Some(store)) = (model.ticket, store.ticket)
        {
            crowd.waiting.insert(ask.claim.id, (client, ask.clone(), (model, store)));
        }
    }

    /// Any claim, held or waiting; mostly its own client learns of it.
    async fn somebody_leaves(
        &mut self,
        asks: &[(usize, Ask)],
        crowd: &mut CrowdRun,
        report: &mut DifferReport,
    ) {
        let most = if self.planner.rng.chance(0.5) { 3 } else { asks.len() as u64 };
        let (client, ask) = &asks[self.planner.rng.below(most) as usize];
        self.leave(*client, &ask.claim, crowd, report).await;
        if self.planner.rng.chance(0.7) {
            crowd.forget(ask.claim.id);
        }
    }

    async fn leave(
        &mut self,
        client: usize,
        claim: &Claim,
        crowd: &mut CrowdRun,
        report: &mut DifferReport,
    ) {
        let (now, how) = (self.tick(), ReleaseOptions::default());
        let target = Target::Claim(claim.clone());
        let (model, _) = crowd.record.release(&target, how, now);
        let outcome = self.clients[client].release(&target, how).await;
        let store = self.sound(outcome);
        self.note(format!("  {client} releases {:?}, law {model:?}, store {store:?}", claim.id));
        report.add(&compare::kind(&model));
        if model != store {
            self.fail(&format!("the law says {model:?}, the store says {store:?}"));
        }
    }

    /// Another client keeps a claim alive from now on; the one before may not know.
    async fn somebody_moves(&mut self, crowd: &mut CrowdRun, report: &mut DifferReport) {
        let Some((id, (client, ask, tickets))) = crowd.waiting.pop_last() else { return };
        let to = (client + 1) % self.clients.len();
        self.renew_of(to, &[(ask.clone(), tickets)], crowd, report).await;
        let keeps = if self.planner.rng.chance(0.7) { to } else { client };
        crowd.waiting.insert(id, (keeps, ask, tickets));
    }

    async fn beat_all(&mut self, client: usize, crowd: &mut CrowdRun, report: &mut DifferReport) {
        let mine = crowd.waiting.values().filter(|(keeps, ..)| *keeps == client);
        let mine: Vec<_> = mine.map(|(_, ask, tickets)| (ask.clone(), *tickets)).collect();
        if !mine.is_empty() {
            self.renew_of(client, &mine, crowd, report).await;
        }
    }

    /// One heartbeat; a claim that waits no longer is removed from the plan.
    async fn renew_of(
        &mut self,
        client: usize,
        beats: &[(Ask, (Ticket, Ticket))],
        crowd: &mut CrowdRun,
        report: &mut DifferReport,
    ) {
        let (now, clients) = (self.tick(), self.clients);
        let renewal = |(ask, (_, store)): &(Ask, (Ticket, Ticket))| {
            let place = ask.wait.map_or(ask.ttl, |wait| wait.place);
            Renewal::place(ask.claim.clone(), place, *store)
        };
        let batch: Vec<_> = beats.iter().map(renewal).collect();
        let mut answers = vec![None; batch.len()];
        let mut stream = clients[client].renew(&batch);
        while let Some((index, standing)) = stream.next().await {
            answers[index] = Some(self.sound(standing));
        }
        self.note(format!("  {client} beats for {}", batch.len()));
        for ((renewal, (ask, (ticket, _))), answer) in batch.iter().zip(beats).zip(answers) {
            let for_model = Renewal { ticket: Some(*ticket), ..renewal.clone() };
            let (model, _) = crowd.record.renew(&for_model, client_id(client), now);
            let Some(store) = answer else { self.fail("a heartbeat was not answered") };
            report.add(&compare::kind(&model));
            let uncounted = batch.len() > AHEAD_COUNTED_MAX;
            let [model, store] =
                [model, store].map(undated).map(|s| if uncounted { uncount(s) } else { s });
            self.note(format!("  {:?} law {model:?}, store {store:?}", ask.claim.id));
            self.judge(compare::standings(&mut crowd.numbers, &model, &store));
            match (model, store) {
                (Standing::Waiting(model), Standing::Waiting(store)) => {
                    if let Some(known) = crowd.waiting.get_mut(&ask.claim.id) {
                        known.2 = (model.ticket, store.ticket);
                    }
                }
                _ => crowd.forget(ask.claim.id),
            }
        }
    }
}

impl CrowdRun {
    fn forget(&mut self, id: ClaimId) {
        self.others.extend(self.waiting.remove(&id));
    }

    /// A client forgets a place that it has.
    fn forget_one(&mut self) {
        self.others.extend(self.waiting.pop_first().map(|(_, known)| known));
    }

    /// A client believes in a place that it has forgotten or lost.
    fn remember_one(&mut self) {
        if let Some((client, ask, tickets)) = self.others.pop() {
            self.waiting.insert(ask.claim.id, (client, ask, tickets));
        }
    }
}

/// All that counts is whether anybody is ahead.
fn uncount(standing: Standing) -> Standing {
    match standing {
        Standing::Waiting(waiting) => {
            Standing::Waiting(QueuePosition { ahead: waiting.ahead.min(1), ..waiting })
        }
        other => other,
    }
}
