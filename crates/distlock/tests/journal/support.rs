//! Locks that keep a journal, and short ways to read it.

use std::time::Duration;

use distlock::{HoldRecord, JournalEntry, Locks, Note, NoteEvent, Retention};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// These locks with a journal, under this owner's name.
pub(crate) fn writing(locks: &Locks, owner: &str) -> Locks {
    locks.configure(|o| o.owner(owner).journal(Retention::default())).unwrap()
}

/// Everything in the journal.
pub(crate) async fn all(locks: &Locks) -> Vec<JournalEntry> {
    locks.journal_page(None, 1000).await.unwrap().entries
}

/// What happened at a key, in a word each: `owner what`.
pub(crate) async fn story(locks: &Locks, key: &str) -> Vec<String> {
    let entries = all(locks).await.into_iter().filter(|entry| entry.note.key.as_str() == key);
    entries.map(|JournalEntry { note, .. }| words(&note)).collect()
}

pub(crate) fn words(note: &Note) -> String {
    let why = match &note.what {
        NoteEvent::GaveUp { why, .. } | NoteEvent::Lost { why, .. } => format!(" {why}"),
        NoteEvent::Broken { by, why } => format!(" by {by}: {}", why.as_ref().unwrap()),
        _ => String::new(),
    };
    format!("{} {}{why}", note.owner, note.what.name())
}

/// The visits to a key, newest first, in a few words each: `owner state`.
pub(crate) async fn past(locks: &Locks, key: &str) -> Vec<String> {
    let visits = locks.history(key, 100).await.unwrap();
    visits
        .iter()
        .map(|acquisition| format!("{} {}", acquisition.owner, acquisition.state.name()))
        .collect()
}

/// Waits until something is as it should be.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < Duration::from_secs(20), "still not so: {what}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Waits until this many wait at a key.
pub(crate) async fn until_waiting(locks: &Locks, key: &str, count: u64) {
    until("a client waits", async || {
        locks.inspect(key).await.is_ok_and(|seen| seen.waiters_total == count)
    })
    .await;
}

pub(crate) fn of<'a>(visits: &'a [HoldRecord], owner: &str) -> &'a HoldRecord {
    visits.iter().find(|acquisition| acquisition.owner.as_str() == owner).unwrap()
}
