//! `distlock elect`: stand by, run a command as the leader, stand again when leadership goes.

use std::time::Duration;

use crate::args::{Leasing, Store, Talking};
use crate::cmd::run::{Guarding, Work};
use crate::exit::{self, Failure};
use crate::plan::Plan;
use crate::progress::{Told, Voice};
use crate::report::{Outcome, Summary};
use crate::signals::Signals;
use crate::take::Refused;
use crate::{cmd, held, launch, out, session};

/// What `elect` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) leasing: Leasing,
    #[command(flatten)]
    pub(crate) guarding: Guarding,
    #[command(flatten)]
    pub(crate) talking: Talking,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// The longest pause before a backend that was out of reach is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Leads whenever it can, until the command ends by itself or somebody asks us to stop.
pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    args.work.check()?;
    let plan = Plan::for_elect(args)?;
    held::check(&plan)?;
    launch::find(&plan.command[0])?;
    cmd::block_on(stand(&plan))
}

async fn stand(plan: &Plan) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut pause = Duration::from_secs(1);
    loop {
        let mut summary = Summary::new(plan);
        match session::attempt(plan, plan.want.locks(), &mut signals, &mut summary).await {
            Ok(done) if done.outcome == Outcome::Lost => {
                let told = Told { want: &plan.want, voice: Voice::new(&plan.want.talking) };
                told.note("standing", "leadership is gone; standing again", serde_json::json!({}));
                pause = Duration::from_secs(1);
            }
            Ok(done) => return Ok(done.code),
            Err(Refused::Failed(failure)) if failure.code() == exit::UNREACHABLE => {
                out::complain(failure.message().unwrap_or("the backend is out of reach"));
                tokio::select! {
                    signal = signals.stop() => {
                        return Err(Refused::Interrupted(signal).into_failure());
                    }
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                }
            }
            Err(refused) => return Err(refused.into_failure()),
        }
    }
}
