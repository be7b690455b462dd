//! `distlock release`: give a lease of one's own back.

use distlock::HoldEnd;

use crate::args::StoreArgs;
use crate::exit::{Failure, LOST};
use crate::token::Which;
use crate::{cmd, help, journal};

/// Release a lease that `acquire` printed
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::RELEASE)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Releases a lease; exit code 79 if it had been lost before.
pub(crate) fn run(args: &ReleaseArgs) -> Result<u8, Failure> {
    let lease = args.which.lease()?;
    let end = cmd::block_on(async {
        let locks = journal::connect(&args.store.backend)?;
        let end = locks.lease(lease.key())?.release(&lease).await?;
        journal::settle(&locks).await;
        Ok(end)
    })?;
    match end {
        HoldEnd::Lost(_) => {
            let message = format!("{:?} was lost before it was released", lease.key());
            Err(Failure::new(LOST, message))
        }
        _ => Ok(0),
    }
}
