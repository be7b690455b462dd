#![doc = include_str!("../README.md")]
#![cfg(any(target_os = "linux", target_os = "android"))]

mod boot;
mod cells;
mod config;
mod database;
mod faults;
mod file;
mod job;
mod journal;
mod load;
mod save;
mod session;
mod store;
mod wake;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::law::{Record, Step, acquire_all};
use distlock_core::rows::VerbSubject;
use distlock_core::{
    AcquireMany, Answer, Ask, Backend, Capabilities, Clock, Cursor, Extensions, Fault, Health,
    Invalid, Key, ManyAnswer, Page, Pending, Push, Reconnecting, ReleaseOptions, ReleaseOutcome,
    Renewal, SNAPSHOT_MAX, Snapshot, Standing, Streaming, Target,
};
use futures_util::stream::{self, StreamExt};
use tokio::sync::broadcast;

use self::boot::Boot;
use self::config::SqliteConfig;
use self::job::Access;
use self::session::StoreSession;
use self::store::SqliteStore;

/// How long a call may take where a test has the clock.
const PATIENT: Duration = Duration::from_secs(20);

/// A file of this machine that carries locks for all its processes. No server is needed.
///
/// One value is one client of the file, with a thread of its own that is started with the first
/// call. The file is a SQLite database that people can read, too: `select * from locks`. It must be
/// on a disk of this machine; a restart of the machine clears all holds, and fences go on growing.
///
/// ```
/// use std::sync::Arc;
/// use distlock::{Locks, backends::Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("distlock-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let url = format!("sqlite:{}/locks.db", folder.display());
/// let locks = Locks::new(Arc::new(Sqlite::open(&url)?));  // such as sqlite:/var/lib/app/locks.db
/// let guard = locks.mutex("nightly")?.lock().await?;
/// guard.release().await?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Sqlite {
    store: Arc<SqliteStore>,
}

impl Sqlite {
    /// A client of the file that the URL names: `sqlite:PATH`, or `sqlite:` for the user's own
    /// file in the state directory. Opens nothing yet.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the URL cannot be used, or has an option that does not exist.
    pub fn open(url: &str) -> Result<Self, Invalid> {
        Self::of(SqliteConfig::parse(url)?, None)
    }

    /// A client of a file on a clock of one's own, for tests: `boot` names the start of the machine
    /// that the clock counts from. Another one is another start, which clears all holds. Calls may
    /// take 20 s, so that no answer depends on how busy the machine is.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the system has no random bytes to give.
    pub fn with_clock(file: &Path, boot: &str, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        let config = SqliteConfig { response_timeout: PATIENT, ..SqliteConfig::of(file) };
        Self::of(config, Some(Boot::new(boot.to_owned(), clock)))
    }

    fn of(config: SqliteConfig, boot: Option<Boot>) -> Result<Self, Invalid> {
        let store = SqliteStore::new(config, boot)
            .map_err(|fault| Invalid::new("client id", fault, "needs random bytes"))?;
        Ok(Self { store: Arc::new(store) })
    }
}

impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.durability = false;
        capabilities.push = self.store.can_push();
        capabilities.push_breaks = capabilities.push;
        capabilities.witness = false;
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        if ask.witness.is_some() {
            return Box::pin(async { Err(Fault::unsupported("witnesses")) });
        }
        let (client, ask) = (self.store.client(), ask.clone());
        Box::pin(self.store.run_short("acquire", move |session| {
            let about = VerbSubject::claim_in(ask.claim.id, ask.attempt);
            session.decide(&ask.claim.key, client, about, |record, now| {
                record.acquire(&ask, client, now)
            })
        }))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let standings = async move {
            let (client, renewals) = (self.store.client(), batch.to_vec());
            let work = move |session: &mut StoreSession<'_>| renew_all(session, client, &renewals);
            match self.store.run("renew", Access::Write, work).await {
                Ok(standings) => standings.into_iter().map(|(at, one)| (at, Ok(one))).collect(),
                Err(fault) => (0..batch.len()).map(|at| (at, Err(fault.clone()))).collect(),
            }
        };
        Box::pin(stream::once(standings).flat_map(|all: Vec<_>| stream::iter(all)))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        let (client, target) = (self.store.client(), target.clone());
        Box::pin(self.store.run_short("release", move |session| {
            session.decide(target.key(), client, VerbSubject::target(&target), |record, now| {
                record.release(&target, how, now)
            })
        }))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        let key = key.clone();
        Box::pin(self.store.run("inspect", Access::Read, move |session| session.inspect(&key)))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        let (prefix, after) = (prefix.to_owned(), cursor.map(|cursor| cursor.0.clone()));
        Box::pin(
            self.store
                .run("list", Access::Read, move |session| page(session, &prefix, after.as_deref())),
        )
    }

    fn probe(&self) -> Pending<'_, Health> {
        Box::pin(async move {
            let meta = self.store.run("probe", Access::Read, |session| Ok(session.meta().clone()));
            let meta = meta.await?;
            let identity = format!("sqlite:{}:{}", meta.name, self.store.inode());
            let mut health = Health::new(identity, format!("{}:{}", meta.name, meta.boot));
            health.persistent = true;
            health.warnings = file::warnings(&self.store.config().file);
            if !self.store.can_push() {
                let warning = "there can be no sockets beside the file, so waiters look once per \
                               heartbeat: name a file on another disk, and see that the folder \
                               FILE-sockets is no link, is yours and has mode 700";
                health.warnings.push(warning.to_owned());
            }
            Ok(health)
        })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        Box::pin(stream::unfold(self.store.listen(), |mut receiver| async move {
            match receiver.recv().await {
                Ok(push) => Some((push, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Push::Interrupted, receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            reconnecting: Some(self),
            many: Some(self),
            ..Extensions::at(self.store.config().location())
        }
    }
}

impl Reconnecting for Sqlite {
    /// A file that was put in the place of another is another store.
    fn epoch(&self) -> u64 {
        self.store.inode()
    }
}

impl AcquireMany for Sqlite {
    fn acquire_all<'a>(&'a self, asks: &'a [Ask]) -> Pending<'a, ManyAnswer> {
        let (client, asks) = (self.store.client(), asks.to_vec());
        Box::pin(self.store.run_short("acquire", move |session| {
            acquire_all(&asks, |step| match step {
                Step::Acquire(ask) => {
                    let about = VerbSubject::claim_in(ask.claim.id, ask.attempt);
                    let take = |record: &mut Record, now| record.acquire(ask, client, now);
                    session.decide(&ask.claim.key, client, about, take).map(Some)
                }
                Step::Release(claim) => {
                    let target = Target::Claim(claim.clone());
                    let give = |record: &mut Record, now| {
                        record.release(&target, ReleaseOptions::default(), now)
                    };
                    session
                        .decide(&claim.key, client, VerbSubject::Claim(claim.id), give)
                        .map(|_| None)
                }
            })
        }))
    }
}

/// Renews a batch: key by key, so that every record is read once.
fn renew_all(
    session: &mut StoreSession<'_>,
    client: distlock_core::ClientId,
    renewals: &[Renewal],
) -> rusqlite::Result<Vec<(usize, Standing)>> {
    let mut by_key: BTreeMap<&Key, Vec<(usize, &Renewal)>> = BTreeMap::new();
    for (at, renewal) in renewals.iter().enumerate() {
        by_key.entry(&renewal.claim.key).or_default().push((at, renewal));
    }
    let mut standings = Vec::with_capacity(renewals.len());
    for (key, renewals) in by_key {
        if let [(at, one)] = renewals[..] {
            let standing =
                session.decide(key, client, VerbSubject::Claim(one.claim.id), |record, now| {
                    record.renew(one, client, now)
                })?;
            standings.push((at, standing));
            continue;
        }
        let all = session.decide_whole(key, None, |record, now| {
            let (mut all, mut notices) = (Vec::with_capacity(renewals.len()), Vec::new());
            for (at, renewal) in &renewals {
                let (standing, more) = record.renew(renewal, client, now);
                all.push((*at, standing));
                notices.extend(more);
            }
            (all, notices)
        })?;
        standings.extend(all);
    }
    Ok(standings)
}

/// The keys after one that begin with a prefix and are held or waited for.
fn page(session: &StoreSession<'_>, prefix: &str, after: Option<&str>) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    // The next key after one is that one with the smallest of all characters behind it.
    let mut from = after.map_or_else(|| prefix.to_owned(), |after| format!("{after}\0"));
    loop {
        let keys = session.keys_from(&from, SNAPSHOT_MAX + 1)?;
        let is_last = keys.len() <= SNAPSHOT_MAX;
        for name in keys {
            if !name.starts_with(prefix) {
                return Ok(page);
            }
            from = format!("{name}\0");
            let Ok(key) = Key::new(name) else { continue };
            let seen = match session.inspect(&key) {
                // A row that another program wrote is the fault of its key alone.
                Err(error) if faults::is_foreign(&error) => {
                    tracing::warn!(%key, %error, "a key is left out of the list");
                    continue;
                }
                seen => seen?,
            };
            if seen.is_free() {
                continue;
            }
            if page.locks.len() == SNAPSHOT_MAX {
                page.next = page.locks.last().map(|lock| Cursor(lock.key.to_string()));
                return Ok(page);
            }
            page.locks.push(seen);
        }
        if is_last {
            return Ok(page);
        }
    }
}
