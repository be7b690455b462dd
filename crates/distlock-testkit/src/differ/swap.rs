//! One releases and another asks, at the same moment: it must come out as if one had been first.

use distlock_core::law::{Now, Record};
use distlock_core::{Answer, Ask, ReleaseOptions, ReleaseOutcome, Target};
use futures_util::future::join;

use super::DifferReport;
use super::compare::{self, Numbers};
use super::episode::{Episode, client_id};

/// One key, as the model sees it.
#[derive(Clone)]
struct Swapped {
    record: Record,
    numbers: Numbers,
}

/// Which of the two the model does first.
#[derive(Clone, Copy)]
enum First {
    Release,
    Ask,
}

impl Episode<'_> {
    /// Some ask for a key one by one. Then time and again one of them releases while the next one
    /// asks, or one who has asked before.
    pub(super) async fn swap(
        &mut self,
        asks: Vec<(usize, Ask)>,
        swaps: Vec<(usize, usize)>,
        report: &mut DifferReport,
    ) {
        let Some((first, ask)) = asks.first() else { return };
        self.notice_ends(*first, ask.claim.id, report).await;
        let mut key = Swapped { record: Record::new(0), numbers: Numbers::default() };
        if self.planner.rng.chance(0.2) {
            // A claim that is dead before it is asked for: a store has to look out for it.
            let (client, ask) = &asks[asks.len() - 1];
            let (target, how) = (
                Target::Claim(ask.claim.clone()),
                ReleaseOptions { bury: ask.ttl, ..ReleaseOptions::default() },
            );
            let now = self.tick();
            let outcome = self.clients[*client].release(&target, how).await;
            let outcome = self.sound(outcome);
            self.judge(key.release(&target, how, outcome, now));
        }
        for (client, ask) in &asks[..asks.len() / 2] {
            let now = self.tick();
            let answer = self.clients[*client].acquire(ask).await;
            let store = self.sound(answer);
            self.judge(key.acquire(*client, ask, &store, now));
        }
        for (leaves, comes) in swaps {
            let (released, (client, ask)) = (&asks[leaves], &asks[comes]);
            let target = Target::Claim(released.1.claim.clone());
            let now = self.tick();
            let (acquire, release) = (
                self.clients[*client].acquire(ask),
                self.clients[released.0].release(&target, ReleaseOptions::default()),
            );
            let (answer, outcome) = join(acquire, release).await;
            let (answer, outcome) = (self.sound(answer), self.sound(outcome));
            self.note(format!("  {leaves} leaves: {outcome:?}, {comes} asks: {answer:?}"));
            let candidates = [First::Release, First::Ask].map(|first| {
                let mut key = key.clone();
                let verdict = key.both((*client, ask, &answer), (&target, outcome), first, now);
                verdict.map(|()| key)
            });
            report.add("swap");
            key = match candidates {
                [Ok(_), Ok(_)] if outcome != ReleaseOutcome::Gone => break,
                [Ok(key), _] | [_, Ok(key)] => key,
                [Err(one), Err(other)] => {
                    self.fail(&format!("neither order will do: {one}; {other}"));
                }
            };
        }
        for (client, ask) in &asks {
            let target = Target::Claim(ask.claim.clone());
            let outcome = self.clients[*client].release(&target, ReleaseOptions::default()).await;
            self.sound(outcome);
        }
    }
}

impl Swapped {
    fn acquire(
        &mut self,
        client: usize,
        ask: &Ask,
        store: &Answer,
        now: Now,
    ) -> Result<(), String> {
        let (model, _) = self.record.acquire(ask, client_id(client), now);
        let seen = self.record.inspect(&ask.claim.key, now.at);
        compare::answers(&mut self.numbers, &model, store, &seen)
    }

    fn release(
        &mut self,
        target: &Target,
        how: ReleaseOptions,
        store: ReleaseOutcome,
        now: Now,
    ) -> Result<(), String> {
        let (model, _) = self.record.release(target, how, now);
        if model == store {
            return Ok(());
        }
        Err(format!("the law says {model:?}, the store says {store:?}"))
    }

    fn both(
        &mut self,
        (client, ask, answer): (usize, &Ask, &Answer),
        (target, outcome): (&Target, ReleaseOutcome),
        first: First,
        now: Now,
    ) -> Result<(), String> {
        if let First::Release = first {
            self.release(target, ReleaseOptions::default(), outcome, now)?;
        }
        self.acquire(client, ask, answer, now)?;
        if let First::Ask = first {
            self.release(target, ReleaseOptions::default(), outcome, now)?;
        }
        Ok(())
    }
}
