//! The one background task: does what the table says is due, and tells it what came back.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use distlock_core::{
    Claim, Fault, Moment, Push, ReleaseOptions, Renewal, Standing, Streaming, Target,
};
use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Id;
use tracing::Instrument;
use tracing::field::Empty;

use super::plan::{Batch, Effect, Effects, KeeperPlan, RenewalKind, Sender};
use super::{Keeper, RELEASE_MAX};
use crate::engine::{located, silence};
use distlock_core::sync::lock;

/// How many waiting claims go into one call, and all others that wait at the last of their keys: a
/// driver sends one heartbeat per key for them all.
const HEARTBEATS_MAX: usize = 10_000;

/// How many answers the table is told of at a time: few enough to be still at hand when it looks at
/// them the second time.
const ANSWERS_AT_ONCE: usize = 64;

type SentBatches = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Looks after the claims until there are none, or until another task has taken over.
pub(super) async fn run(
    keeper: Arc<Keeper>,
    generation: u64,
    mut pushes: Streaming<'static, Push>,
    mut successor: TaskSuccessor,
) {
    let mut calls = SentBatches::new();
    let mut listening = true;
    let writing = keeper.observer.journal_writer.run(&*keeper.clock);
    tokio::pin!(writing);
    while let Some(plan) = next_plan(&keeper, generation, calls.is_empty()) {
        let now = keeper.clock.now();
        let wake_at = plan.wake_at;
        carry_out(&keeper, plan, &calls);
        tokio::select! {
            push = pushes.next(), if listening => match push {
                Some(push) => pushed(&keeper, push),
                None => listening = false,
            },
            Some(()) = calls.next(), if !calls.is_empty() => {}
            () = keeper.wake.notified() => {}
            () = &mut writing => {}
            () = tokio::time::sleep(wake_at.since(now)) => {}
        }
    }
    successor.generation = NO_TASK;
}

/// No task has this number.
const NO_TASK: u64 = 0;

/// Sees to it that the claims are looked after if the task's runtime ends under it, even before
/// the task has run for the first time.
pub(super) struct TaskSuccessor {
    pub(super) keeper: Arc<Keeper>,
    pub(super) generation: u64,
    pub(super) home: Id,
}

impl Drop for TaskSuccessor {
    fn drop(&mut self) {
        if self.generation != NO_TASK {
            self.keeper.move_from(self.home, self.generation);
        }
    }
}

/// What is due now; none if the task shall end.
fn next_plan(keeper: &Keeper, generation: u64, no_calls: bool) -> Option<KeeperPlan> {
    // The task's own lock comes first, as in `start`: either that sees us running, or we see what
    // it is about to do.
    let mut task = lock(&keeper.task);
    if task.generation != generation {
        return None;
    }
    let asking = keeper.asking.load(Ordering::SeqCst) > 0;
    let busy = !no_calls || asking || keeper.observer.journal_writer.is_busy();
    let plan = keeper.table().plan(keeper.clock.now(), keeper.clock.nap(), busy);
    if plan.stop {
        task.handle = None;
        return None;
    }
    Some(plan)
}

/// Starts the calls of a plan. They run side by side, so a slow one delays no other.
fn carry_out(keeper: &Arc<Keeper>, plan: KeeperPlan, calls: &SentBatches) {
    keeper.announce(plan.effects);
    let call = |batch, asked| renew(Arc::clone(keeper), batch, asked, plan.made_at);
    for batch in plan.renewals {
        calls.push(Box::pin(call(batch, RenewalKind::Ttl)));
    }
    let mut heartbeats = plan.heartbeats;
    heartbeats.sort_unstable_by(|(a, _), (b, _)| a.claim.cmp(&b.claim));
    for batch in chunks_by_key(heartbeats, HEARTBEATS_MAX) {
        calls.push(Box::pin(call(batch, RenewalKind::Place)));
    }
    for (claim, target, how) in plan.releases {
        calls.push(Box::pin(release(Arc::clone(keeper), claim, target, how)));
    }
}

/// Batches of what is sorted by key, but nothing of one key is cut in two.
fn chunks_by_key(all: Vec<(Renewal, Sender)>, most: usize) -> impl Iterator<Item = Batch> {
    let mut rest = all.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut batch = Batch::default();
        batch.extend(rest.by_ref().take(most));
        let last = batch.renewals.last().map(|renewal| renewal.claim.key.clone())?;
        while let Some(more) = rest.next_if(|(renewal, _)| renewal.claim.key == last) {
            batch.extend([more]);
        }
        Some(batch)
    })
}

/// Renews a batch and reports the answers as they come. A claim that is not answered in its own
/// time is reported as slow; an answer that comes later still counts, for as long as it is worth
/// anything.
async fn renew(keeper: Arc<Keeper>, batch: Batch, asked: RenewalKind, sent_at: Moment) {
    let mut silent = Unanswered::new(&batch);
    let call = SentBatch { keeper: &keeper, batch: &batch, asked, sent_at };
    let mut answers = keeper.backend.renew(&batch.renewals).fuse();
    let mut told = Vec::with_capacity(batch.renewals.len().min(ANSWERS_AT_ONCE));
    while let Some(soonest) = silent.next() {
        let left = soonest.saturating_sub(keeper.clock.now().since(sent_at));
        match tokio::time::timeout(left, some_of(&mut answers, &mut told)).await {
            Ok(true) => {
                told.retain(|(index, _)| silent.answered(*index));
                call.report(&mut told);
            }
            Ok(false) => break,
            Err(_) => {
                let passed = keeper.clock.now().since(sent_at).max(soonest);
                call.report_slow(&silent.until(passed));
            }
        }
    }
    let fault = Fault::transient("renew", "the backend did not answer for this claim");
    told.extend(silent.unanswered().map(|index| (index, Err(fault.clone()))));
    call.report(&mut told);
}

type RenewalAnswer = (usize, Result<Standing, Fault>);

/// Waits for an answer and takes others that are there with it. False after the last.
async fn some_of(
    answers: &mut (impl Stream<Item = RenewalAnswer> + Unpin),
    told: &mut Vec<RenewalAnswer>,
) -> bool {
    poll_fn(|context| {
        while told.len() < ANSWERS_AT_ONCE {
            match answers.poll_next_unpin(context) {
                Poll::Ready(Some(answer)) => told.push(answer),
                Poll::Ready(None) => break,
                Poll::Pending if told.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(!told.is_empty())
    })
    .await
}

/// A batch that was sent, later than `sent_at`.
struct SentBatch<'a> {
    keeper: &'a Keeper,
    batch: &'a Batch,
    asked: RenewalKind,
    sent_at: Moment,
}

impl SentBatch<'_> {
    /// Tells the table, and forgets the answers.
    fn report(&self, answers: &mut Vec<RenewalAnswer>) {
        let (keeper, now) = (self.keeper, self.keeper.clock.now());
        let listened = keeper.observer.is_listened_to();
        let quiet = !listened && !cfg!(feature = "metrics");
        let mut effects = Effects { quiet, ..Effects::default() };
        let Batch { renewals, senders } = self.batch;
        let known = |(index, answer): (usize, _)| {
            Some((renewals.get(index)?, senders.get(index)?.slot, answer))
        };
        let mut table = keeper.table();
        table.look_at(answers.iter().filter_map(|(index, _)| Some(senders.get(*index)?.slot)));
        for (renewal, slot, answer) in answers.drain(..).filter_map(known) {
            if listened
                && self.asked == RenewalKind::Place
                && let Ok(Standing::Waiting(waiting)) = &answer
            {
                effects.push(Effect::Waits(renewal.claim.key.clone(), waiting.ahead));
            }
            let whose = (&renewal.claim, slot);
            let located = |fault| located(&*keeper.backend, &renewal.claim.key, fault);
            let answer = answer.map_err(located);
            table.answered(whose, self.asked, self.sent_at, now, answer, &mut effects);
        }
        // The rest of the batch may take a while.
        if table.is_pressing() {
            keeper.wake.notify_one();
        }
        drop(table);
        keeper.announce(effects);
    }

    /// Tells the table which claims have waited long enough for their answer.
    fn report_slow(&self, indexes: &[usize]) {
        let (keeper, now) = (self.keeper, self.keeper.clock.now());
        let mut effects = Effects::default();
        let Batch { renewals, senders } = self.batch;
        let mut table = keeper.table();
        for &index in indexes {
            if let (Some(renewal), Some(sender)) = (renewals.get(index), senders.get(index)) {
                let whose = (&renewal.claim, sender.slot);
                let fault = silence("renew", sender.slow_after);
                let fault = located(&*keeper.backend, &renewal.claim.key, fault);
                table.is_slow(whose, self.sent_at, now, &fault, &mut effects);
            }
        }
        drop(table);
        keeper.announce(effects);
    }
}

/// The claims of a call that were not answered yet, and what becomes of them when.
struct Unanswered {
    /// After how long which claim is slow, and is forgotten; the soonest first.
    deadlines: Vec<(Duration, usize, Lateness)>,
    /// All before this one have passed.
    at: usize,
    /// By index: answered, or forgotten.
    done: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lateness {
    Slow,
    Forgotten,
}

impl Unanswered {
    fn new(batch: &Batch) -> Self {
        let slow = batch.senders.iter().map(|sender| (sender.slow_after, Lateness::Slow));
        // What was asked for so long ago is over.
        let forgotten = batch.renewals.iter().map(|renewal| (renewal.span, Lateness::Forgotten));
        let numbered = slow.enumerate().chain(forgotten.enumerate());
        let mut deadlines: Vec<_> =
            numbered.map(|(index, (after, overdue))| (after, index, overdue)).collect();
        deadlines.sort_unstable();
        Self { deadlines, at: 0, done: vec![false; batch.renewals.len()] }
    }

    /// Notes an answer. True if it was waited for.
    fn answered(&mut self, index: usize) -> bool {
        self.done.get_mut(index).is_some_and(|done| !std::mem::replace(done, true))
    }

    /// The next deadline of a claim that is not answered; none if there is none.
    fn next(&mut self) -> Option<Duration> {
        while self.deadlines.get(self.at).is_some_and(|(_, index, _)| self.done[*index]) {
            self.at += 1;
        }
        self.deadlines.get(self.at).map(|(deadline, ..)| *deadline)
    }

    /// Those that have become slow by now.
    fn until(&mut self, passed: Duration) -> Vec<usize> {
        let mut slow = Vec::new();
        while self.next().is_some_and(|deadline| deadline <= passed) {
            let (_, index, overdue) = self.deadlines[self.at];
            self.at += 1;
            match overdue {
                Lateness::Slow => slow.push(index),
                Lateness::Forgotten => self.done[index] = true,
            }
        }
        slow
    }

    /// Those that are still waited for.
    fn unanswered(&self) -> impl Iterator<Item = usize> {
        (0..self.done.len()).filter(|index| !self.done[*index])
    }
}

async fn release(keeper: Arc<Keeper>, claim: Claim, target: Target, how: ReleaseOptions) {
    let span = tracing::debug_span!("lock.release", key = %target.key(), outcome = Empty);
    let call = keeper.backend.release(&target, how).instrument(span.clone());
    let answer = match tokio::time::timeout(RELEASE_MAX, call).await {
        Ok(answer) => answer.map(|_| ()),
        Err(_) => Err(silence("release", RELEASE_MAX)),
    };
    span.record("outcome", if answer.is_ok() { "released" } else { "failed" });
    if let Err(fault) = &answer {
        tracing::warn!(key = %target.key(), %fault, "release not acknowledged");
    }
    let mut table = keeper.table();
    table.released(&claim, keeper.clock.now(), &answer);
    keeper.tell_if_drained(&table);
}

fn pushed(keeper: &Keeper, push: Push) {
    match push {
        Push::Granted { id, ticket, fence } => keeper.table().granted(id, ticket, fence),
        Push::Broken { id } => {
            let effects = keeper.table().broken(id, keeper.clock.now());
            keeper.announce(effects);
            // Where it is not clear which hold is meant, the task asks.
            keeper.wake.notify_one();
        }
        Push::Check { id } => {
            keeper.table().check(id, keeper.clock.now());
            keeper.wake.notify_one();
        }
        Push::Interrupted => {
            keeper.table().hurry(keeper.clock.now());
        }
        // Messages of a later version are hints that we do not know how to use.
        _ => {}
    }
}
