//! Many keys in one instant: what a store does in one go must come out as if done one by one.

use distlock_core::law::Record;
use distlock_core::{Ask, Claim, ClaimId, ReleaseOptions, Renewal, Target, Ticket};
use futures_util::StreamExt;
use futures_util::future::join_all;

use super::DifferReport;
use super::compare::{self, Numbers};
use super::episode::{Episode, client_id, undated};

/// One of the keys, and what the second client believes to wait under.
struct Lane {
    record: Record,
    numbers: Numbers,
    ticket: Option<Ticket>,
}

impl Episode<'_> {
    /// Two clients ask for all keys, the first releases them, the second says that it is still
    /// there, and releases, too.
    pub(super) async fn burst(
        &mut self,
        [first, second]: [usize; 2],
        asks: Vec<[Ask; 2]>,
        report: &mut DifferReport,
    ) {
        let Some([ask, _]) = asks.first() else { return };
        self.notice_ends(first, ask.claim.id, report).await;
        let lane = |_| Lane { record: Record::new(0), numbers: Numbers::default(), ticket: None };
        let mut lanes: Vec<_> = asks.iter().map(lane).collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = asks.into_iter().map(|[a, b]| (a, b)).unzip();
        self.ask_for_all(first, &ours, &mut lanes, report).await;
        self.ask_for_all(second, &theirs, &mut lanes, report).await;
        self.release_all(first, &ours, &mut lanes, report).await;
        self.renew_all(second, &theirs, &mut lanes, report).await;
        self.release_all(second, &theirs, &mut lanes, report).await;
    }

    /// A store may tidy up other keys meanwhile, so whatever has ended here is noticed first.
    pub(super) async fn notice_ends(
        &mut self,
        client: usize,
        id: ClaimId,
        report: &mut DifferReport,
    ) {
        let unknown = Target::Claim(Claim::new(self.planner.key.clone(), id));
        self.release(client, &unknown, &unknown, ReleaseOptions::default(), report).await;
    }

    async fn ask_for_all(
        &mut self,
        client: usize,
        asks: &[Ask],
        lanes: &mut [Lane],
        report: &mut DifferReport,
    ) {
        let (now, clients) = (self.tick(), self.clients);
        let answers = join_all(asks.iter().map(|ask| clients[client].acquire(ask))).await;
        for ((ask, answer), lane) in asks.iter().zip(answers).zip(lanes) {
            let (model, _) = lane.record.acquire(ask, client_id(client), now);
            let store = self.sound(answer);
            self.note(format!("  {} law {model:?}\n  store {store:?}", ask.claim.key));
            report.add(&compare::kind(&model));
            let seen = lane.record.inspect(&ask.claim.key, now.at);
            self.judge(compare::answers(&mut lane.numbers, &model, &store, &seen));
            lane.ticket = match store {
                distlock_core::Answer::Busy(busy) => busy.ticket,
                _ => None,
            };
        }
    }

    async fn release_all(
        &mut self,
        client: usize,
        asks: &[Ask],
        lanes: &mut [Lane],
        report: &mut DifferReport,
    ) {
        let (now, clients) = (self.tick(), self.clients);
        let targets: Vec<_> = asks.iter().map(|ask| Target::Claim(ask.claim.clone())).collect();
        let how = ReleaseOptions::default();
        let releasing = targets.iter().map(|target| clients[client].release(target, how));
        let outcomes = join_all(releasing).await;
        for ((target, outcome), lane) in targets.iter().zip(outcomes).zip(lanes) {
            let (model, _) = lane.record.release(target, how, now);
            let store = self.sound(outcome);
            report.add(&compare::kind(&model));
            if model != store {
                let key = target.key();
                self.fail(&format!("{key}: the law says {model:?}, the store says {store:?}"));
            }
        }
    }

    async fn renew_all(
        &mut self,
        client: usize,
        asks: &[Ask],
        lanes: &mut [Lane],
        report: &mut DifferReport,
    ) {
        let (now, clients) = (self.tick(), self.clients);
        let renewal = |(ask, lane): (&Ask, &Lane)| Renewal {
            ticket: lane.ticket,
            ..Renewal::hold(ask.claim.clone(), ask.ttl)
        };
        let batch: Vec<_> = asks.iter().zip(lanes.iter()).map(renewal).collect();
        let mut answers = clients[client].renew(&batch);
        let mut answered = 0;
        while let Some((index, standing)) = answers.next().await {
            let (renewal, lane) = (&batch[index], &mut lanes[index]);
            let (model, _) = lane.record.renew(renewal, client_id(client), now);
            let [model, store] = [model, self.sound(standing)].map(undated);
            self.note(format!("  {} law {model:?}\n  store {store:?}", renewal.claim.key));
            report.add(&compare::kind(&model));
            self.judge(compare::standings(&mut lane.numbers, &model, &store));
            answered += 1;
        }
        if answered != batch.len() {
            self.fail(&format!("{answered} of {} renewals were answered", batch.len()));
        }
    }
}
