//! One run from the first try to the report.

use std::time::Duration;

use distlock::Clock;
use distlock::clock::BootClock;

use crate::cmd::run::IfDown;
use crate::exit::{self, Failure};
use crate::out;
use crate::plan::Plan;
use crate::report::{Report, Summary, millis};
use crate::signals::Signals;
use crate::supervise::{Done, Run};
use crate::take::{self, Refused};

/// Gets the lock, runs the command under it, releases it; and writes the report, however it ends.
pub(crate) async fn run(plan: &Plan) -> Result<u8, Failure> {
    let mut report = Report::open(plan.report.as_deref())?;
    let mut signals = Signals::listen()?;
    let mut summary = Summary::new(plan);
    let ended = attempt(plan, &mut signals, &mut summary).await;
    let (outcome, code) = match &ended {
        Ok(done) => (done.outcome, done.code),
        Err(refused) => (refused.outcome(), refused.code()),
    };
    summary.outcome = outcome;
    summary.exit_code = code;
    report.write(&summary);
    ended.map(|done| done.code).map_err(Refused::into_failure)
}

/// One attempt: waits, holds, runs. What becomes known on the way goes into the summary.
async fn attempt(
    plan: &Plan,
    signals: &mut Signals,
    summary: &mut Summary<'_>,
) -> Result<Done, Refused> {
    let started = BootClock.now();
    wait_at_random(plan.jitter, signals).await?;
    let locks = plan.locks()?;
    let taken = take::take(plan, &locks, signals).await;
    summary.waited_ms = millis(BootClock.now().since(started));
    let held = match taken {
        Ok(held) => Some(held),
        Err(refused) if refused.code() == exit::UNREACHABLE && plan.if_down == IfDown::Run => {
            let why = refused.into_failure();
            out::say(format_args!("WARNING: {}", why.message().unwrap_or_default()));
            out::say(format_args!("WARNING: running WITHOUT the lock {:?}", plan.key));
            None
        }
        Err(refused) => return Err(refused),
    };
    summary.fence = held.as_ref().map(|held| held.fence());
    let done = Run::start(plan, held, signals).await?.finish().await?;
    summary.signal = done.signal;
    summary.held_ms = millis(done.held);
    summary.renewals = locks.stats().renewals;
    Ok(done)
}

/// A random delay, so that a fleet with one crontab does not come all at once.
async fn wait_at_random(most: Duration, signals: &mut Signals) -> Result<(), Refused> {
    if most.is_zero() {
        return Ok(());
    }
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(exit::INTERNAL, format!("could not draw lots: {error}")))?;
    let pause = most.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX));
    tokio::select! {
        biased;
        signal = signals.stop() => Err(Refused::Interrupted(signal)),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}
