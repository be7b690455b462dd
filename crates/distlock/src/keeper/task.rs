//! The one background task: does what the table says is due, and tells it what came back.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::{Claim, Fault, How, Push, Renewal, Standing, Streaming, Target};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Id;
use tracing::Instrument;
use tracing::field::Empty;

use super::plan::{Asked, Plan};
use super::{Keeper, RELEASE_MAX};
use crate::observe::Event;
use crate::sync::lock;

/// How many held claims go into one call. A store that runs it as one script is blocked for it.
const RENEWALS_MAX: usize = 100;

/// How many waiting claims go into one call. A driver sends one heartbeat per key for them all.
const HEARTBEATS_MAX: usize = 10_000;

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
    for batch in chunks(plan.renewals, RENEWALS_MAX) {
        calls.push(Box::pin(renew(Arc::clone(keeper), batch, Asked::Ttl)));
    }
    let mut heartbeats = plan.heartbeats;
    heartbeats.sort_unstable_by(|(a, _), (b, _)| a.claim.cmp(&b.claim));
    for batch in chunks(heartbeats, HEARTBEATS_MAX) {
        calls.push(Box::pin(renew(Arc::clone(keeper), batch, Asked::Place)));
    }
    for (claim, how) in plan.releases {
        calls.push(Box::pin(release(Arc::clone(keeper), claim, how)));
    }
}

fn chunks<T: Clone>(all: Vec<T>, most: usize) -> Vec<Vec<T>> {
    if all.len() <= most {
        return if all.is_empty() { Vec::new() } else { vec![all] };
    }
    all.chunks(most).map(<[T]>::to_vec).collect()
}

/// Renews a batch and reports each answer as it comes. Whoever is not answered in its own time is
/// reported as a fault; an answer that comes later still counts.
async fn renew(keeper: Arc<Keeper>, batch: Vec<(Renewal, Duration)>, asked: Asked) {
    let sent_at = keeper.clock.now();
    let (renewals, patience): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let mut unanswered: BTreeSet<_> = patience.iter().copied().zip(0..).collect();
    let report = |index: usize, answer: Result<Standing, Fault>| {
        let Some(renewal) = renewals.get(index) else { return };
        let now = keeper.clock.now();
        if let (Asked::Place, Ok(Standing::Waiting(waiting))) = (asked, &answer) {
            let (key, ahead) = (&renewal.claim.key, waiting.ahead);
            keeper.observer.emit(|| Event::Waiting { key: key.clone(), ahead });
        }
        let effects = keeper.table().answered(renewal.claim.id, asked, sent_at, now, answer);
        keeper.announce(effects);
        // The rest of the batch may take a while, and something may be due before that.
        keeper.wake.notify_one();
    };
    let mut answers = keeper.backend.renew(&renewals);
    loop {
        // With nobody left to be impatient, late answers are still waited for: they count from when
        // they were asked for, and a driver that gives up by itself knows why.
        let soonest = unanswered.first().map_or(LATE_ANSWER_MAX, |&(patience, _)| patience);
        let left = soonest.saturating_sub(keeper.clock.now().since(sent_at));
        match (tokio::time::timeout(left, answers.next()).await, unanswered.is_empty()) {
            (Ok(Some((index, answer))), _) => {
                unanswered.remove(&(patience.get(index).copied().unwrap_or_default(), index));
                report(index, answer);
            }
            (Ok(None), _) | (Err(_), true) => break,
            (Err(_), false) => {
                let (_, index) = unanswered.pop_first().unwrap_or_default();
                report(index, Err(Fault::transient("renew in time", "no answer")));
            }
        }
    }
    for (_, index) in unanswered {
        report(index, Err(Fault::transient("renew", "the backend did not answer for this claim")));
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

fn pushed(keeper: &Keeper, push: Push) {
    match push {
        Push::Granted { id, ticket, fence } => keeper.table().granted(id, ticket, fence),
        Push::Broken { id } => {
            let effects = keeper.table().broken(id);
            keeper.announce(effects);
        }
        Push::Interrupted => keeper.table().hurry(keeper.clock.now()),
        // Messages of a later version are hints that we do not know how to use.
        _ => {}
    }
}
