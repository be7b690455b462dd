//! `distlock renew`: extend a lease of one's own.

use std::time::Duration;

use serde_json::json;

use crate::args::Store;
use crate::exit::Failure;
use crate::report::millis;
use crate::token::Which;
use crate::{cmd, journal, out, span};

/// What `renew` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) which: Which,

    /// How long the lease lasts from now
    #[arg(short, long, value_name = "DUR", value_parser = span::parse, default_value = "30s")]
    pub(crate) ttl: Duration,

    /// Print the lease as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Extends a lease. One that is over is not brought back: exit code 79.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let mut lease = args.which.lease()?;
    let remaining = cmd::block_on(async {
        let locks = journal::connect(&args.store.backend)?;
        let leases = locks.lease(lease.key())?.configure(|options| options.ttl(args.ttl))?;
        let extended = leases.extend(&mut lease).await;
        journal::settle(&locks).await;
        extended?;
        Ok(leases.remaining(&lease))
    })?;
    if args.json {
        out::print(json!({
            "key": lease.key().as_str(),
            "fence": lease.fence(),
            "ttlMs": millis(args.ttl),
            "remainingMs": millis(remaining),
            "renewAfterMs": millis(args.ttl / 3),
        }));
    }
    Ok(0)
}
