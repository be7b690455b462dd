//! One run from the first try to the report.

use std::time::Duration;

use distlock::clock::BootClock;
use distlock::{Clock, Event, Locks};
use serde_json::json;

use crate::cmd::run::IfDown;
use crate::exit::{self, Failure};
use crate::launch::Launcher;
use crate::plan::RunPlan;
use crate::progress::{ProgressEvents, ProgressStyle};
use crate::report::{RunOutcome, RunReport, RunSummary, millis};
use crate::signals::Signals;
use crate::supervise::{CommandResult, Run};
use crate::take::{self, NotAcquired};
use crate::{child, out, progress, span};

/// Gets the lock, runs the command under it, releases it; and writes the report, however it ends.
pub(crate) async fn run(plan: &RunPlan, locks: Result<Locks, Failure>) -> Result<u8, Failure> {
    let mut report = RunReport::open(plan.report.as_deref())?;
    let mut signals = Signals::listen()?;
    let mut summary = RunSummary::new(plan);
    let ended = attempt(plan, locks, &mut signals, &mut summary).await;
    let (outcome, code) = match &ended {
        Ok(done) => (done.outcome, done.code),
        Err(refused) => (refused.outcome(), refused.code()),
    };
    summary.outcome = outcome;
    summary.exit_code = code;
    report.write(&summary);
    ended.map(|done| done.code).map_err(NotAcquired::into_failure)
}

/// One attempt: waits, holds, runs. What becomes known on the way goes into the summary.
pub(crate) async fn attempt(
    plan: &RunPlan,
    locks: Result<Locks, Failure>,
    signals: &mut Signals,
    summary: &mut RunSummary<'_>,
) -> Result<CommandResult, NotAcquired> {
    wait_at_random(plan.jitter, signals).await?;
    let locks = locks?;
    let done = attempt_on(&locks, plan, signals, summary).await;
    let max = match &done {
        Ok(done) if done.outcome == RunOutcome::Lost => take::LEAVE_AT_ONCE_MAX,
        Ok(_) => take::LEAVE_MAX,
        Err(refused) => refused.leave_max(),
    };
    // What is to be noted down of these locks, or is on its way, has to be now.
    take::leave(&locks, max).await;
    done
}

async fn attempt_on(
    locks: &Locks,
    plan: &RunPlan,
    signals: &mut Signals,
    summary: &mut RunSummary<'_>,
) -> Result<CommandResult, NotAcquired> {
    let (style, started) = (ProgressStyle::new(&plan.spec.talking), BootClock.now());
    let told = ProgressEvents { spec: &plan.spec, style };
    warn_of_risk(locks, told);
    // The store has its work before the launcher is started, so both go on at once.
    let (taken, launcher) = tokio::join!(
        biased;
        take::take(&plan.spec, locks, signals, style),
        async { Launcher::stand_by(&plan.command, !child::on_terminal()) },
    );
    summary.waited_ms = millis(BootClock.now().since(started));
    let held = match taken {
        Ok(held) => Some(held),
        Err(refused) if refused.code() == exit::UNREACHABLE && plan.if_down == IfDown::Run => {
            let why = refused.into_failure();
            let why = why.message().unwrap_or("the backend is out of reach");
            let words = format!("WARNING: running WITHOUT the lock {}: {why}", plan.spec.name());
            told.banner("unlocked", &words, json!({}));
            None
        }
        Err(refused) => return Err(refused),
    };
    if let Some(held) = &held {
        summary.fence = held.fence();
        let fences = held.fences();
        let waited = span::show(held.waited());
        let words = match held.fence() {
            Some(fence) => format!("acquired {}, fence {fence}, waited {waited}", plan.spec.name()),
            None => {
                let each = fences.iter().map(|(key, fence)| format!("{key} (fence {fence})"));
                format!("acquired {}, waited {waited}", each.collect::<Vec<_>>().join(", "))
            }
        };
        if held.fence().is_none() {
            summary.fences = fences.iter().map(|(key, fence)| (key.to_string(), *fence)).collect();
        }
        let members = match held.fence() {
            Some(fence) => json!({ "fence": fence, "waitedMs": summary.waited_ms }),
            None => json!({ "fences": summary.fences, "waitedMs": summary.waited_ms }),
        };
        told.note("acquired", &words, members);
    }
    let done = Run::start(plan, told, launcher, held, signals).await?.finish().await?;
    summary.signal = done.signal;
    summary.held_ms = millis(done.held);
    summary.renewals = locks.stats().renewals;
    let how = match done.outcome {
        RunOutcome::Lost => "lost",
        RunOutcome::Unlocked => "ran without",
        _ => "released",
    };
    let words = format!("{how} {} after {}", plan.spec.name(), span::show(done.held));
    told.note("ended", &words, json!({ "outcome": done.outcome, "heldMs": summary.held_ms }));
    Ok(done)
}

/// Says when a renewal fails: there is still time to repair the store.
fn warn_of_risk(locks: &Locks, told: ProgressEvents<'_>) {
    let style = if told.spec.talking.quiet { ProgressStyle::Silent } else { told.style };
    locks.on_event(move |event| {
        if let Event::AtRisk { key, remaining, fault, .. } = event {
            let left = span::show(*remaining);
            match style {
                ProgressStyle::Silent => {}
                ProgressStyle::Json => progress::event(
                    "atRisk",
                    &json!({
                        "key": key.as_str(),
                        "remainingMs": millis(*remaining),
                        "error": fault.to_string(),
                    }),
                ),
                _ => out::say(format_args!("{fault}; {left} of the lease are left")),
            }
        }
    });
}

/// A random delay, so that a fleet with one crontab does not come all at once.
async fn wait_at_random(most: Duration, signals: &mut Signals) -> Result<(), NotAcquired> {
    if most.is_zero() {
        return Ok(());
    }
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(exit::INTERNAL, format!("could not draw lots: {error}")))?;
    let pause = most.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX));
    tokio::select! {
        biased;
        signal = signals.stop() => Err(NotAcquired::Interrupted(signal)),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}
