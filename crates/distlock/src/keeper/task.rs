//! The one background task: does what the table says is due, and tells it what came back.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use distlock_core::{Claim, Ear, Fault, How, Moment, Push, Renewal, Standing, Streaming, Target};
use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Id;
use tracing::Instrument;
use tracing::field::Empty;

use super::plan::{Asked, Batch, Effect, Effects, Plan, Sender};
use super::{Keeper, RELEASE_MAX};
use crate::sync::lock;

/// How many waiting claims go into one call, and whoever else waits at the last of their keys: a
/// driver sends one heartbeat per key for them all.
const HEARTBEATS_MAX: usize = 10_000;

/// How many answers the table is told of at a time: few enough to be still at hand when it looks at
/// them the second time.
const TOLD_AT_ONCE: usize = 64;

/// How long an answer that nobody waits for any more is listened for.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(10);

type Calls = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Looks after the claims until there are none, or until another task has taken over.
pub(super) async fn run(
    keeper: Arc<Keeper>,
    generation: u64,
    mut pushes: Streaming<'static, Push>,
    mut heir: Heir,
) {
    let mut calls = Calls::new();
    let mut listening = true;
    let writing = keeper.observer.scribe.run(&*keeper.clock);
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
    heir.generation = NOBODY;
}

/// No task has this number.
const NOBODY: u64 = 0;

/// Sees to it that the claims are looked after if the task's runtime ends under it, even before
/// the task has run for the first time.
pub(super) struct Heir {
    pub(super) keeper: Arc<Keeper>,
    pub(super) generation: u64,
    pub(super) home: Id,
}

impl Drop for Heir {
    fn drop(&mut self) {
        if self.generation != NOBODY {
            self.keeper.move_from(self.home, self.generation);
        }
    }
}

/// What is due now; none if the task shall end.
fn next_plan(keeper: &Keeper, generation: u64, no_calls: bool) -> Option<Plan> {
    // The task's own lock comes first, as in `start`: either that sees us running, or we see what
    // it is about to do.
    let mut task = lock(&keeper.task);
    if task.generation != generation {
        return None;
    }
    let asking = keeper.asking.load(Ordering::SeqCst) > 0;
    let busy = !no_calls || asking || keeper.observer.scribe.is_busy();
    let plan = keeper.table().plan(keeper.clock.now(), keeper.clock.nap(), busy);
    if plan.stop {
        task.handle = None;
        return None;
    }
    Some(plan)
}

/// Starts the calls of a plan. They run side by side, so a slow one delays no other.
fn carry_out(keeper: &Arc<Keeper>, plan: Plan, calls: &Calls) {
    keeper.announce(plan.effects);
    let call = |batch, asked| renew(Arc::clone(keeper), batch, asked, plan.made_at);
    for batch in plan.renewals {
        calls.push(Box::pin(call(batch, Asked::Ttl)));
    }
    let mut heartbeats = plan.heartbeats;
    heartbeats.sort_unstable_by(|(a, _), (b, _)| a.claim.cmp(&b.claim));
    for batch in chunks_by_key(heartbeats, HEARTBEATS_MAX) {
        calls.push(Box::pin(call(batch, Asked::Place)));
    }
    for (claim, how) in plan.releases {
        calls.push(Box::pin(release(Arc::clone(keeper), claim, how)));
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

/// Renews a batch and reports the answers as they come. Whoever is not answered in its own time is
/// reported as a fault; an answer that comes later still counts.
async fn renew(keeper: Arc<Keeper>, batch: Batch, asked: Asked, sent_at: Moment) {
    let mut silent = Silent::new(&batch.senders);
    let call = Call { keeper: &keeper, batch: &batch, asked, sent_at };
    let mut answers = keeper.backend.renew(&batch.renewals).fuse();
    let mut told = Vec::with_capacity(batch.renewals.len().min(TOLD_AT_ONCE));
    loop {
        // With nobody left to be impatient, late answers are still waited for: they count from when
        // they were asked for, and a driver that gives up by itself knows why.
        let first = silent.first();
        let soonest = first.map_or(LATE_ANSWER_MAX, |(patience, _)| patience);
        let left = soonest.saturating_sub(keeper.clock.now().since(sent_at));
        match (tokio::time::timeout(left, some_of(&mut answers, &mut told)).await, first) {
            (Ok(true), _) => {
                told.iter().for_each(|(index, _)| silent.heard(*index));
                call.report(&mut told);
            }
            (Ok(false), _) | (Err(_), None) => break,
            (Err(_), Some((patience, _))) => {
                let passed = keeper.clock.now().since(sent_at).max(patience);
                let fault = Fault::transient("renew in time", "no answer");
                told.extend(silent.until(passed).map(|index| (index, Err(fault.clone()))));
                call.report(&mut told);
            }
        }
    }
    let fault = Fault::transient("renew", "the backend did not answer for this claim");
    told.extend(silent.until(Duration::MAX).map(|index| (index, Err(fault.clone()))));
    call.report(&mut told);
}

type Told = (usize, Result<Standing, Fault>);

/// Waits for an answer and takes others that are there with it. False after the last.
async fn some_of(answers: &mut (impl Stream<Item = Told> + Unpin), told: &mut Vec<Told>) -> bool {
    poll_fn(|context| {
        while told.len() < TOLD_AT_ONCE {
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
struct Call<'a> {
    keeper: &'a Keeper,
    batch: &'a Batch,
    asked: Asked,
    sent_at: Moment,
}

impl Call<'_> {
    /// Tells the table, and forgets the answers.
    fn report(&self, answers: &mut Vec<Told>) {
        let (keeper, now) = (self.keeper, self.keeper.clock.now());
        let listened = keeper.observer.is_listened_to();
        let quiet = !listened && !cfg!(feature = "metrics");
        let mut effects = Effects { quiet, ..Effects::default() };
        let Batch { renewals, senders } = self.batch;
        let known = |(index, answer): (usize, _)| {
            Some((renewals.get(index)?, senders.get(index)?.0, answer))
        };
        let mut table = keeper.table();
        table.look_at(answers.iter().filter_map(|(index, _)| Some(senders.get(*index)?.0)));
        for (renewal, slot, answer) in answers.drain(..).filter_map(known) {
            if listened
                && self.asked == Asked::Place
                && let Ok(Standing::Waiting(waiting)) = &answer
            {
                effects.push(Effect::Waits(renewal.claim.key.clone(), waiting.ahead));
            }
            let whose = (&renewal.claim.id, slot);
            table.answered(whose, self.asked, self.sent_at, now, answer, &mut effects);
        }
        // The rest of the batch may take a while.
        if table.is_pressing() {
            keeper.wake.notify_one();
        }
        drop(table);
        keeper.announce(effects);
    }
}

/// Who has not been answered yet, the least patient first.
struct Silent {
    order: Vec<(Duration, usize)>,
    heard: Vec<bool>,
    /// All before this one were heard.
    at: usize,
}

impl Silent {
    fn new(senders: &[Sender]) -> Self {
        let mut order: Vec<_> = senders.iter().map(|(_, patience)| *patience).zip(0..).collect();
        order.sort_unstable();
        Self { order, heard: vec![false; senders.len()], at: 0 }
    }

    fn heard(&mut self, index: usize) {
        if let Some(heard) = self.heard.get_mut(index) {
            *heard = true;
        }
    }

    /// Those whose patience is no longer than this. They will not be named again.
    fn until(&mut self, passed: Duration) -> impl Iterator<Item = usize> {
        std::iter::from_fn(move || {
            let (_, index) = self.first().filter(|(patience, _)| *patience <= passed)?;
            self.heard(index);
            Some(index)
        })
    }

    fn first(&mut self) -> Option<(Duration, usize)> {
        while self.order.get(self.at).is_some_and(|(_, index)| self.heard[*index]) {
            self.at += 1;
        }
        self.order.get(self.at).copied()
    }
}

async fn release(keeper: Arc<Keeper>, claim: Claim, how: How) {
    let id = claim.id;
    let target = Target::Claim(claim);
    let span = tracing::debug_span!("lock.release", key = %target.key(), outcome = Empty);
    let call = keeper.backend.release(&target, how).instrument(span.clone());
    let answer = match tokio::time::timeout(RELEASE_MAX, call).await {
        Ok(answer) => answer.map(|_| ()),
        Err(elapsed) => Err(Fault::transient("release in time", elapsed)),
    };
    span.record("outcome", if answer.is_ok() { "released" } else { "failed" });
    if let Err(fault) = &answer {
        tracing::warn!(key = %target.key(), %fault, "release not acknowledged");
    }
    let mut table = keeper.table();
    table.released(id, keeper.clock.now(), &answer);
    keeper.tell_if_drained(&table);
}

impl Ear for Keeper {
    fn hear(&self, push: Push) {
        pushed(self, push);
    }
}

fn pushed(keeper: &Keeper, push: Push) {
    match push {
        Push::Granted { id, ticket, fence } => keeper.table().granted(id, ticket, fence),
        Push::Broken { id } => {
            let effects = keeper.table().broken(id);
            keeper.announce(effects);
        }
        Push::Interrupted => {
            keeper.table().hurry(keeper.clock.now());
            // Heard by an ear, it is not known to the task.
            keeper.wake.notify_one();
        }
        // Messages of a later version are hints that we do not know how to use.
        _ => {}
    }
}
