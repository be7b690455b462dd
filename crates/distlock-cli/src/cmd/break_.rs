//! `distlock break`: an operator's release of another client's hold.

use crate::args::StoreArgs;
use crate::exit::{Failure, NOT_ACQUIRED};
use crate::{cmd, help, journal, out};

/// Release the hold of another client, if its fence is still the one given
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::BREAK)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The fence of the holder, as status shows it; a newer holder is not affected
    #[arg(long, value_name = "N")]
    pub(crate) fence: u64,

    /// The reason, written to the journal
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,

    /// The key to free
    pub(crate) key: String,
}

/// Breaks a hold if its fence is still the one that was seen.
pub(crate) fn run(args: &BreakArgs) -> Result<u8, Failure> {
    let (key, fence) = (&args.key, args.fence);
    let reason = distlock::Label::new("reason", &args.reason).map_err(distlock::Error::from)?;
    let broken = cmd::block_on(async {
        let locks = journal::connect(&args.store.backend)?;
        let locks = locks.configure(|options| options.reason(&args.reason))?;
        match locks.break_hold(key, fence).await {
            Ok(()) => Ok(true),
            Err(distlock::Error::NotHeld { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    })?;
    if !broken {
        let message = format!("no client holds {key:?} under the fence {fence} any more");
        return Err(Failure::new(NOT_ACQUIRED, message));
    }
    out::say(format_args!("broke the hold of {key:?} with the fence {fence}: {reason}"));
    Ok(0)
}
