//! Which lock is wanted, how, and for how long it is waited for: what the flags amount to.

use std::env;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use distlock::{Key, Locks, Options};
use rustix::process::geteuid;

use crate::args::{LeaseArgs, ProgressArgs, StoreArgs, WaitArgs};
use crate::exit::{self, Failure};
use crate::{journal, place};

/// A lock that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct LockSpec {
    pub(crate) url: String,
    pub(crate) key: Key,
    /// Others that are held together with it.
    pub(crate) more_keys: Vec<Key>,
    pub(crate) kind: LockKind,
    pub(crate) owner: String,
    pub(crate) options: Options,
    /// How long to wait at most; none for ever.
    pub(crate) max_wait: Option<Duration>,
    /// The exit code if it is not acquired.
    pub(crate) conflict_code: u8,
    pub(crate) talking: ProgressArgs,
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// All of it.
    Exclusive,
    /// With others that share.
    Shared,
    /// One of so many.
    OneOf(u32),
}

impl LockSpec {
    /// What these flags ask for. Without any about asking: all of it, however long it takes.
    pub(crate) fn new(
        store: StoreArgs,
        key: &str,
        asking: Option<&WaitArgs>,
        leasing: &LeaseArgs,
        talking: ProgressArgs,
    ) -> Result<Self, Failure> {
        if place::is_private(&store.backend) {
            let message = format!(
                "memory: is private to one process, so no other command sees the lock {key:?}: \
                 use sqlite: for this machine, or redis://HOST for several"
            );
            return Err(Failure::usage(message));
        }
        let max_wait = asking.and_then(WaitArgs::max_wait);
        let owner = leasing.owner.clone().unwrap_or_else(myself);
        let mut options = Options::default()
            .ttl(leasing.ttl)
            .max_wait(max_wait)
            .lock_delay(leasing.lock_delay)
            .owner(&owner)
            .full_ttl();
        if let Some(reason) = leasing.reason.as_ref().filter(|reason| !reason.is_empty()) {
            options = options.reason(reason);
        }
        let code = asking.and_then(|asking| asking.conflict_exit_code);
        Ok(Self {
            url: store.backend,
            key: Key::new(key).map_err(distlock::Error::from)?,
            more_keys: Vec::new(),
            kind: asking.map_or(LockKind::Exclusive, kind),
            owner,
            options,
            max_wait,
            conflict_code: code.unwrap_or(exit::NOT_ACQUIRED),
            talking,
        })
    }

    /// The same for several keys, all of them or none.
    pub(crate) fn with_more_keys(mut self, keys: &[String]) -> Result<Self, Failure> {
        for key in keys {
            let key = Key::new(key).map_err(distlock::Error::from)?;
            if self.keys().all(|known| *known != key) {
                self.more_keys.push(key);
            }
        }
        Ok(self)
    }

    /// All keys, as they were given.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.key).chain(&self.more_keys)
    }

    /// All keys, for messages.
    pub(crate) fn name(&self) -> String {
        self.keys().map(Key::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Opens the store. Sends nothing yet.
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        let locks = journal::connect(&self.url)?;
        Ok(locks.configure(|given| journal::keep(self.options.clone(), &given))?)
    }
}

fn kind(asking: &WaitArgs) -> LockKind {
    match (asking.shared, asking.permits) {
        (true, _) => LockKind::Shared,
        (false, 1) => LockKind::Exclusive,
        (false, permits) => LockKind::OneOf(permits),
    }
}

/// The name of this user in the system's database, or the number where there is no name. The file
/// is read first, since a process takes long to start; id(1) knows accounts from elsewhere. (Rust
/// has no safe function for getpwuid(3).)
fn account() -> String {
    let uid = geteuid().as_raw();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&passwd, uid).or_else(name_by_id).unwrap_or_else(|| uid.to_string())
}

fn name_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

fn name_by_id() -> Option<String> {
    let known = Command::new("id").arg("-un").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let known = known.ok().filter(|known| known.status.success())?;
    let name = String::from_utf8(known.stdout).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// `user@host:pid`.
fn myself() -> String {
    let named = |name| env::var(name).ok().filter(|user| !user.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(account);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# no entry\n\nann:x:1000:1000::/home/ann:\n";
        assert_eq!(name_in(passwd, 0).as_deref(), Some("root"));
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(passwd, 7), None);
        assert_eq!(name_in("", 0), None);
    }
}
