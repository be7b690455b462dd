//! What the tests of the file have in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::Sqlite;
use distlock_core::{
    Answer, Ask, Backend, Claim, ClaimId, Key, Label, ReleaseOptions, ReleaseOutcome, Target,
    Ticket, Wait,
};
use distlock_testkit::servers::TempFolder;

/// A lease that outlives every test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A folder with a file of locks in it, which is made by the client that opens it first.
pub(crate) struct Place {
    pub(crate) folder: TempFolder,
    pub(crate) file: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = TempFolder::new();
        let file = folder.path().join("locks.db");
        Self { folder, file }
    }

    pub(crate) fn client(&self) -> Sqlite {
        open(&self.file)
    }

    /// The file as a person with a shell sees it.
    pub(crate) fn shell(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.file).unwrap()
    }

    /// A number that a statement finds in the file.
    pub(crate) fn number(&self, sql: &str) -> u64 {
        let number: i64 = self.shell().query_row(sql, [], |row| row.get(0)).unwrap();
        number.try_into().unwrap()
    }

    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("locks.db-sockets");
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

pub(crate) fn open(file: &Path) -> Sqlite {
    Sqlite::open(&format!("sqlite:{}", file.display())).unwrap()
}

/// A new one-shot claim for all of a key.
pub(crate) fn ask(key: &str) -> Ask {
    let claim = Claim::new(Key::new(key).unwrap(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "tester").unwrap(), LONG)
}

pub(crate) fn queued(key: &str) -> Ask {
    Ask { wait: Some(Wait { place: LONG, waiters_max: 10_000 }), ..ask(key) }
}

pub(crate) async fn granted(client: &dyn Backend, ask: &Ask) -> u64 {
    match client.acquire(ask).await.unwrap() {
        Answer::Granted { fence } => fence,
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub(crate) async fn waits(client: &dyn Backend, ask: &Ask) -> Ticket {
    match client.acquire(ask).await.unwrap() {
        Answer::Busy(busy) => busy.ticket.unwrap(),
        other => panic!("expected to wait, got {other:?}"),
    }
}

pub(crate) async fn release(client: &dyn Backend, ask: &Ask) -> ReleaseOutcome {
    let target = Target::Claim(ask.claim.clone());
    client.release(&target, ReleaseOptions::default()).await.unwrap()
}

/// Waits until something that other threads or processes do has come true.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn shared(client: Sqlite) -> Arc<dyn Backend> {
    Arc::new(client)
}
