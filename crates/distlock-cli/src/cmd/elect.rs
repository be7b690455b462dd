//! `distlock elect`: stand by, run a command as the leader, stand again when leadership goes.

use std::time::Duration;

use crate::args::{LeaseArgs, ProgressArgs, StoreArgs};
use crate::cmd::run::{CommandArgs, GuardArgs};
use crate::exit::{self, Failure};
use crate::plan::RunPlan;
use crate::progress::{ProgressEvents, ProgressStyle};
use crate::report::{RunOutcome, RunSummary};
use crate::signals::Signals;
use crate::take::NotAcquired;
use crate::{cmd, held, help, launch, out, session};

/// Run a command on the elected leader; rejoin the election when leadership is lost
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::ELECT, override_usage = help::ELECT_USAGE)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) leasing: LeaseArgs,
    #[command(flatten)]
    pub(crate) guarding: GuardArgs,
    #[command(flatten)]
    pub(crate) talking: ProgressArgs,
    #[command(flatten)]
    pub(crate) work: CommandArgs,
}

/// The longest pause before a backend that was out of reach is asked again.
const ELECT_PAUSE_MAX: Duration = Duration::from_secs(15);

/// Leads whenever it can, until the command ends by itself or a signal arrives.
pub(crate) fn run(args: ElectArgs) -> Result<u8, Failure> {
    args.work.check()?;
    let plan = RunPlan::for_elect(args)?;
    held::check(&plan)?;
    launch::find(&plan.command[0])?;
    cmd::block_on(stand(&plan))
}

async fn stand(plan: &RunPlan) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut pause = Duration::from_secs(1);
    loop {
        let mut summary = RunSummary::new(plan);
        match session::attempt(plan, plan.spec.locks(), &mut signals, &mut summary).await {
            Ok(done) if done.outcome == RunOutcome::Lost => {
                let told = ProgressEvents {
                    spec: &plan.spec,
                    style: ProgressStyle::new(&plan.spec.talking),
                };
                told.note("standing", "leadership is gone; standing again", serde_json::json!({}));
                pause = Duration::from_secs(1);
            }
            Ok(done) => return Ok(done.code),
            Err(NotAcquired::Failed(failure)) if failure.code() == exit::UNREACHABLE => {
                out::complain(failure.message().unwrap_or("the backend is out of reach"));
                tokio::select! {
                    signal = signals.stop() => {
                        return Err(NotAcquired::Interrupted(signal).into_failure());
                    }
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(ELECT_PAUSE_MAX),
                }
            }
            Err(refused) => return Err(refused.into_failure()),
        }
    }
}
