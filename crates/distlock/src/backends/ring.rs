//! The journal of the memory store: a ring that forgets its oldest entries.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use distlock_core::{
    EntryId, Fault, Invalid, JOURNAL_PAGE_MAX, JournalEntry, JournalPage, Key, Note, Retention,
};

/// The last entries, numbered from 1 on.
#[derive(Debug, Default)]
pub(super) struct Ring {
    entries: VecDeque<RingEntry>,
    /// How many were dropped; the first entry that is kept has the number after it.
    dropped: u64,
    /// The numbers of the entries of each key, oldest first: the past of a key is read without a
    /// look at the others.
    by_key: HashMap<Key, VecDeque<u64>>,
}

#[derive(Debug)]
struct RingEntry {
    written_ms: u64,
    at_ms: u64,
    note: Note,
}

impl Ring {
    pub(super) fn append(&mut self, notes: &[(Note, Duration)], retention: Retention, now_ms: u64) {
        for (note, age) in notes {
            let at_ms = now_ms.saturating_sub(millis(*age));
            self.entries.push_back(RingEntry { written_ms: now_ms, at_ms, note: note.clone() });
            let number = self.newest();
            self.by_key.entry(note.key.clone()).or_default().push_back(number);
        }
        let too_old = now_ms.saturating_sub(millis(retention.age));
        let kept = usize::try_from(retention.entries).unwrap_or(usize::MAX);
        while self.entries.len() > kept
            || self.entries.front().is_some_and(|line| line.written_ms < too_old)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(line) = self.entries.pop_front() else { return };
        self.dropped += 1;
        if let Some(numbers) = self.by_key.get_mut(&line.note.key) {
            numbers.pop_front();
            if numbers.is_empty() {
                self.by_key.remove(&line.note.key);
            }
        }
    }

    pub(super) fn page(&self, after: Option<&EntryId>, limit: usize) -> Result<JournalPage, Fault> {
        let after = after.map(number).transpose()?;
        let read = after.unwrap_or(0).max(self.dropped);
        let skip = usize::try_from(read - self.dropped).unwrap_or(usize::MAX);
        let lines = self.entries.iter().zip(self.dropped + 1..).skip(skip);
        let entries = lines.take(limit.min(JOURNAL_PAGE_MAX)).map(entry).collect();
        Ok(JournalPage { entries, missed: after.is_some_and(|after| after < self.dropped) })
    }

    pub(super) fn past(&self, key: &Key, limit: usize) -> Vec<JournalEntry> {
        let numbers = self.by_key.get(key).into_iter().flatten().rev().copied();
        let lines = numbers.filter_map(|number| {
            let at = usize::try_from(number - self.dropped - 1).ok()?;
            Some((self.entries.get(at)?, number))
        });
        lines.take(limit.min(JOURNAL_PAGE_MAX)).map(entry).collect()
    }

    pub(super) fn last(&self) -> Option<EntryId> {
        (self.newest() > 0).then(|| id(self.newest()))
    }

    fn newest(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }
}

fn entry((line, number): (&RingEntry, u64)) -> JournalEntry {
    JournalEntry { id: id(number), at_ms: line.at_ms, note: line.note.clone() }
}

fn id(number: u64) -> EntryId {
    EntryId::new(number.to_string()).expect("digits make an id")
}

fn number(id: &EntryId) -> Result<u64, Fault> {
    let refuse = |_| Invalid::new("entry id", id, "must be one that this journal gave out");
    id.as_str().parse().map_err(refuse).map_err(|why| Fault::permanent("read the journal", why))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
