//! `distlock ls`: the keys that are held or waited for.

use std::io::{IsTerminal, stdout};

use distlock::{Error, Locks, Snapshot};

use crate::args::StoreArgs;
use crate::exit::Failure;
use crate::{cmd, help, out, view};

/// How many keys are shown at most.
pub(crate) const KEYS_SHOWN_MAX: usize = 10_000;

/// List the keys that are held or waited for
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::LS)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Print JSON, one object per key and line
    #[arg(long)]
    pub(crate) json: bool,

    /// Show only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

/// Prints a table of the keys.
pub(crate) fn run(args: &LsArgs) -> Result<u8, Failure> {
    let locks = cmd::block_on(async {
        Ok(all(&Locks::connect(&args.store.backend)?, &args.prefix).await?)
    })?;
    if args.json {
        for seen in &locks {
            out::print(view::json(seen));
        }
    } else if locks.is_empty() {
        out::say("nothing is held; try: distlock run demo -- sleep 30");
    } else {
        out::print(view::table(&locks, columns()).join("\n"));
    }
    Ok(0)
}

/// All keys with a prefix, in their order, up to a bound.
pub(crate) async fn all(locks: &Locks, prefix: &str) -> Result<Vec<Snapshot>, Error> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list(prefix, cursor.as_ref()).await?;
        found.extend(page.locks);
        cursor = page.next;
        if cursor.is_none() || found.len() >= KEYS_SHOWN_MAX {
            break;
        }
    }
    found.sort_by(|a, b| a.key.cmp(&b.key));
    // A listing in pages may see a key twice while the store changes under it.
    found.dedup_by(|a, b| a.key == b.key);
    Ok(found)
}

/// How wide a table may be: what a terminal shows, or as wide as it likes.
pub(crate) fn columns() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
