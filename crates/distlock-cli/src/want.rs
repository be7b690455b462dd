//! Which lock is wanted, how, and for how long it is waited for: what the flags amount to.

use std::env;
use std::time::Duration;

use distlock::{Key, Locks, Options};

use crate::args::{Asking, Leasing, Store, Talking};
use crate::exit::{self, Failure};
use crate::journal;

/// A lock that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) url: String,
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    pub(crate) owner: String,
    pub(crate) options: Options,
    /// How long to wait at most; none for ever.
    pub(crate) max_wait: Option<Duration>,
    /// The exit code if it is not acquired.
    pub(crate) conflict_code: u8,
    pub(crate) talking: Talking,
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of it.
    Exclusive,
    /// With others that share.
    Shared,
    /// One of so many.
    OneOf(u32),
}

impl Want {
    /// What these flags ask for. Without any about asking: all of it, however long it takes.
    pub(crate) fn new(
        store: Store,
        key: &str,
        asking: Option<&Asking>,
        leasing: &Leasing,
        talking: Talking,
    ) -> Result<Self, Failure> {
        let max_wait = asking.and_then(Asking::max_wait);
        let owner = leasing.owner.clone().unwrap_or_else(myself);
        let mut options = Options::default()
            .ttl(leasing.ttl)
            .max_wait(max_wait)
            .lock_delay(leasing.lock_delay)
            .owner(&owner)
            .full_ttl();
        if let Some(reason) = &leasing.reason {
            options = options.reason(reason);
        }
        let code = asking.and_then(|asking| asking.conflict_exit_code);
        Ok(Self {
            url: store.backend,
            key: Key::new(key).map_err(distlock::Error::from)?,
            kind: asking.map_or(Kind::Exclusive, kind),
            owner,
            options,
            max_wait,
            conflict_code: code.unwrap_or(exit::NOT_ACQUIRED),
            talking,
        })
    }

    /// Opens the store. Sends nothing yet.
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        let locks = journal::connect(&self.url)?;
        Ok(locks.configure(|given| journal::keep(self.options.clone(), &given))?)
    }
}

fn kind(asking: &Asking) -> Kind {
    match (asking.shared, asking.permits) {
        (true, _) => Kind::Shared,
        (false, 1) => Kind::Exclusive,
        (false, permits) => Kind::OneOf(permits),
    }
}

/// `user@host:pid`.
fn myself() -> String {
    let named = |name| env::var(name).ok().filter(|user| !user.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "unknown".into());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}:{}", std::process::id())
}
