//! `distlock renew`: extend a lease of one's own.

use std::time::Duration;

use distlock::{Error, Holder, Lease, Locks};
use serde_json::json;

use crate::args::StoreArgs;
use crate::exit::Failure;
use crate::report::millis;
use crate::token::Which;
use crate::{cmd, help, journal, out, span};

/// Extend a lease that `acquire` printed
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::RENEW)]
pub(crate) struct RenewArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) which: Which,

    /// How long the lease lasts from now [default: the ttl that it was acquired with]
    #[arg(short, long, value_name = "DUR", value_parser = span::parse)]
    pub(crate) ttl: Option<Duration>,

    /// Print the lease as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Extends a lease. One that is over is not brought back: exit code 79.
pub(crate) fn run(args: &RenewArgs) -> Result<u8, Failure> {
    let mut lease = args.which.lease()?;
    let remaining = cmd::block_on(async {
        let locks = journal::connect(&args.store.backend)?;
        let ttl = match args.ttl {
            Some(ttl) => ttl,
            None => own_ttl(&locks, &lease).await?,
        };
        let leases = locks.lease(lease.key())?.configure(|options| options.ttl(ttl))?;
        let extended = leases.extend(&mut lease).await;
        journal::settle(&locks).await;
        extended?;
        Ok(leases.remaining(&lease))
    })?;
    if args.json {
        out::print(json!({
            "key": lease.key().as_str(),
            "fence": lease.fence(),
            "ttlMs": millis(lease.ttl()),
            "remainingMs": millis(remaining),
            "renewAfterMs": millis(lease.ttl() / 3),
        }));
    }
    Ok(0)
}

/// The ttl that a lease was acquired with. A token file has it; of a lease that is known by its id
/// alone the store shows how long it has been held and what is left of it.
async fn own_ttl(locks: &Locks, lease: &Lease) -> Result<Duration, Error> {
    if !lease.ttl().is_zero() {
        return Ok(lease.ttl());
    }
    let lost = || Error::NotHeld { key: lease.key().clone() };
    let found = locks.lease(lease.key())?.find(lease.id()).await?.ok_or_else(lost)?;
    let seen = locks.inspect(lease.key()).await?;
    let holder = seen.holders.iter().find(|holder| holder.fence == found.fence());
    Ok(holder.and_then(Holder::ttl_estimate).unwrap_or(found.ttl()))
}
