//! `distlock acquire`: a lease for a script that renews and releases it itself.

use std::path::PathBuf;
use std::time::Duration;

use distlock::Lease;
use serde_json::{Value, json};

use crate::args::{LeaseArgs, ProgressArgs, StoreArgs, WaitArgs};
use crate::exit::{self, Failure};
use crate::lock_spec::{LockKind, LockSpec};
use crate::progress::ProgressStyle;
use crate::report::millis;
use crate::signals::Signals;
use crate::take::{self, NotAcquired};
use crate::token::{LEASE_VAR, TokenFile};
use crate::{cmd, help, journal, out, shell};

/// Acquire a lease for a script, which renews and releases it itself
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::ACQUIRE)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) asking: WaitArgs,
    #[command(flatten)]
    pub(crate) leasing: LeaseArgs,
    #[command(flatten)]
    pub(crate) talking: ProgressArgs,
    #[command(flatten)]
    pub(crate) form: Form,

    /// Write the lease to FILE, readable by you alone, and print only the fence
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// The key to lock
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
pub(crate) fn run(args: AcquireArgs) -> Result<u8, Failure> {
    let for_shell = args.form.shell;
    acquire(args).inspect_err(|failure| {
        if for_shell {
            out::print(shell::failing(failure.code()));
        }
    })
}

fn acquire(args: AcquireArgs) -> Result<u8, Failure> {
    let AcquireArgs { store, asking, leasing, talking, form, token_file, key } = args;
    let spec = LockSpec::new(store, &key, Some(&asking), &leasing, talking)?;
    let mut file = token_file.as_deref().map(TokenFile::create).transpose()?;
    let granted = cmd::block_on(async {
        let mut signals = Signals::listen()?;
        let locks = spec.locks()?;
        let style = ProgressStyle::new(&spec.talking);
        let held = take::take(&spec, &locks, &mut signals, style).await;
        if let Err(refused) = &held {
            take::leave(&locks, refused.leave_max()).await;
        }
        let held = held.map_err(NotAcquired::into_failure)?;
        let (waited, remaining) = (held.waited(), held.remaining());
        let Some(lease) = held.into_leases().pop() else {
            return Err(Failure::new(exit::INTERNAL, "the lock has no lease"));
        };
        journal::settle(&locks).await;
        if let Some(file) = &mut file
            && let Err(failure) = file.write(&lease)
        {
            // A lease whose id is lost would block all clients until it ends.
            let _ = locks.lease(&spec.key)?.release(&lease).await;
            return Err(failure);
        }
        Ok(PrintedLease { lease, waited, remaining })
    })?;
    out::print(granted.show(&spec, &form, file.is_some()));
    Ok(0)
}

struct PrintedLease {
    lease: Lease,
    waited: Duration,
    remaining: Duration,
}

impl PrintedLease {
    fn show(&self, spec: &LockSpec, form: &Form, in_file: bool) -> String {
        let (id, fence) = (self.lease.id().reveal(), self.lease.fence());
        // What is in the file for its owner's eyes need not be on the terminal for everybody's.
        let id = (!in_file).then_some(id);
        if form.json {
            return self.json(spec, id).to_string();
        }
        if form.shell {
            let key = spec.key.as_str();
            let mut variables = vec![("DISTLOCK_KEY", key.to_owned())];
            variables.extend(id.map(|id| (LEASE_VAR, id)));
            variables.push(("DISTLOCK_FENCE", fence.to_string()));
            return shell::exports(&variables);
        }
        id.unwrap_or_else(|| fence.to_string())
    }

    fn json(&self, spec: &LockSpec, id: Option<String>) -> Value {
        let ttl = self.lease.ttl();
        let mode = match spec.kind {
            LockKind::Shared => "shared",
            LockKind::OneOf(_) => "permits",
            LockKind::Exclusive => "exclusive",
        };
        let mut lease = json!({
            "key": spec.key.as_str(),
            "owner": spec.owner,
            "mode": mode,
            "fence": self.lease.fence(),
            "ttlMs": millis(ttl),
            "remainingMs": millis(self.remaining),
            "renewAfterMs": millis(ttl / 3),
            "waitedMs": millis(self.waited),
        });
        if let LockKind::OneOf(limit) = spec.kind {
            lease["permits"] = json!(1);
            lease["limit"] = json!(limit);
        }
        if let Some(id) = id {
            lease["leaseId"] = json!(id);
        }
        lease
    }
}
