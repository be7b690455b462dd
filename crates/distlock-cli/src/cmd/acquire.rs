//! `distlock acquire`: a lease for a script that renews and releases it itself.

use std::path::PathBuf;
use std::time::Duration;

use distlock::Lease;
use serde_json::{Value, json};

use crate::args::{Asking, Leasing, Store, Talking};
use crate::exit::Failure;
use crate::progress::Voice;
use crate::report::millis;
use crate::signals::Signals;
use crate::take::{self, Refused};
use crate::token::{LEASE, TokenFile};
use crate::want::{Kind, Want};
use crate::{cmd, journal, out, shell};

/// What `acquire` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) asking: Asking,
    #[command(flatten)]
    pub(crate) leasing: Leasing,
    #[command(flatten)]
    pub(crate) talking: Talking,
    #[command(flatten)]
    pub(crate) form: Form,

    /// Write the lease to FILE, readable by you alone, and print only the fence
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// The name of what must not be done twice at once
    pub(crate) key: String,
}

/// How the lease is printed; without either, the bare lease id.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Form {
    /// Print the lease as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the lease as variables for eval: DISTLOCK_KEY, DISTLOCK_LEASE, DISTLOCK_FENCE
    #[arg(long)]
    pub(crate) shell: bool,
}

/// Acquires a lease and hands it out. A shell that evaluates what it gets must fail if there is no
/// lease: the code of a command inside `eval "$(...)"` is lost.
pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    let for_shell = args.form.shell;
    acquire(args).inspect_err(|failure| {
        if for_shell {
            out::print(shell::failing(failure.code()));
        }
    })
}

fn acquire(args: Args) -> Result<u8, Failure> {
    let Args { store, asking, leasing, talking, form, token_file, key } = args;
    let want = Want::new(store, &key, Some(&asking), &leasing, talking)?;
    let mut file = token_file.as_deref().map(TokenFile::create).transpose()?;
    let granted = cmd::block_on(async {
        let mut signals = Signals::listen()?;
        let locks = want.locks()?;
        let voice = Voice::new(&want.talking);
        let held = take::take(&want, &locks, &mut signals, voice).await;
        if let Err(refused) = &held {
            take::leave(&locks, refused.leave_max()).await;
        }
        let held = held.map_err(Refused::into_failure)?;
        let (waited, remaining) = (held.waited(), held.remaining());
        let lease = held.into_lease();
        journal::settle(&locks).await;
        if let Some(file) = &mut file
            && let Err(failure) = file.write(&lease)
        {
            // A lease that nobody knows of would block everybody until it ends.
            let _ = locks.lease(&want.key)?.release(&lease).await;
            return Err(failure);
        }
        Ok(Granted { lease, waited, remaining })
    })?;
    out::print(granted.show(&want, &form, file.is_some()));
    Ok(0)
}

struct Granted {
    lease: Lease,
    waited: Duration,
    remaining: Duration,
}

impl Granted {
    fn show(&self, want: &Want, form: &Form, in_file: bool) -> String {
        let (id, fence) = (self.lease.id().reveal(), self.lease.fence());
        // What is in the file for its owner's eyes need not be on the terminal for everybody's.
        let id = (!in_file).then_some(id);
        if form.json {
            return self.json(want, id).to_string();
        }
        if form.shell {
            let key = want.key.as_str();
            let mut variables = vec![("DISTLOCK_KEY", key.to_owned())];
            variables.extend(id.map(|id| (LEASE, id)));
            variables.push(("DISTLOCK_FENCE", fence.to_string()));
            return shell::exports(&variables);
        }
        id.unwrap_or_else(|| fence.to_string())
    }

    fn json(&self, want: &Want, id: Option<String>) -> Value {
        let ttl = self.lease.ttl();
        let mode = match want.kind {
            Kind::Shared => "shared",
            Kind::OneOf(_) => "permits",
            Kind::Exclusive => "exclusive",
        };
        let mut lease = json!({
            "key": want.key.as_str(),
            "owner": want.owner,
            "mode": mode,
            "fence": self.lease.fence(),
            "ttlMs": millis(ttl),
            "remainingMs": millis(self.remaining),
            "renewAfterMs": millis(ttl / 3),
            "waitedMs": millis(self.waited),
        });
        if let Kind::OneOf(limit) = want.kind {
            lease["permits"] = json!(1);
            lease["limit"] = json!(limit);
        }
        if let Some(id) = id {
            lease["leaseId"] = json!(id);
        }
        lease
    }
}
