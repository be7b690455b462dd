//! `distlock status`: who holds a key, and who waits for it.

use crate::args::StoreArgs;
use crate::exit::{Failure, NOT_ACQUIRED};
use crate::{cmd, help, out, view};

/// Show who holds a key and who waits for it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Exit with 0 if the key is free and with 75 if it is held
    #[arg(long)]
    pub(crate) exit_code: bool,

    /// The key to show
    pub(crate) key: String,
}

/// Prints what is known about a key.
pub(crate) fn run(args: &StatusArgs) -> Result<u8, Failure> {
    let seen = cmd::block_on(async {
        Ok(distlock::Locks::connect(&args.store.backend)?.inspect(&args.key).await?)
    })?;
    if args.json {
        out::print(view::json(&seen));
    } else {
        out::print(view::page(&seen));
    }
    Ok(if args.exit_code && seen.holders_total > 0 { NOT_ACQUIRED } else { 0 })
}
