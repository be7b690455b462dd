//! Reading the journal as it grows, for what a summary says about the past.

use std::collections::{HashMap, VecDeque};

use distlock::{EntryId, JOURNAL_PAGE_MAX, JournalEntry, Key, Note, NoteEvent, Snapshot};

use crate::open_holds::OpenHolds;
use crate::state::App;
use crate::wire::{SummaryBody, millis};

/// How many pages are read at a time. Whatever is left is read the next time.
const READER_PAGES_MAX: usize = 12;

/// How many losses and waits are remembered.
const READER_REMEMBERED_MAX: usize = 20_000;

const HOUR_MS: u64 = 60 * 60 * 1_000;

/// A reader that remembers where it was, so that every entry is read once.
#[derive(Debug, Default)]
pub(crate) struct JournalReader {
    after: Option<EntryId>,
    /// The first reading is about the past, not about what happens.
    caught_up: bool,
    /// The holds that were lost.
    lost: HashMap<(Key, u64), Lost>,
    open: OpenHolds,
    /// When locks were granted, and how long that took.
    waits: VecDeque<(u64, u64)>,
    /// Grants counted by the locks of this service, where there is no journal.
    grants: u64,
}

/// A hold that was lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    at_ms: u64,
    /// No note says so: a note about its release may still come.
    assumed: bool,
}

impl JournalReader {
    /// A look at the store begins, which is shown key by key and ended by [`read`](Self::read).
    pub(crate) fn begin_look(&mut self) {
        self.open.begin_look();
    }

    /// The store shows this key.
    pub(crate) fn see(&mut self, seen: &Snapshot) {
        self.open.see(seen);
    }

    /// Reads on, fills in what the journal knows, and returns how many grants came to light.
    /// `complete` says that the store showed every key.
    pub(crate) async fn read(
        &mut self,
        app: &App,
        summary: &mut SummaryBody,
        complete: bool,
    ) -> u64 {
        let own = app.locks.stats().grants;
        let grants_here = own.saturating_sub(std::mem::replace(&mut self.grants, own));
        let Some(grants) = self.read_on(app).await else { return grants_here };
        if self.caught_up {
            for hold in self.open.end_look(complete) {
                let lost = Lost { at_ms: hold.at_ms.unwrap_or(summary.at_ms), assumed: true };
                self.lost.entry((hold.key, hold.fence)).or_insert(lost);
            }
        }
        self.forget(summary.at_ms);
        summary.lost_24h = Some(self.lost.len() as u64);
        summary.wait_p95_ms = p95(self.waits.iter().map(|(_, waited)| *waited).collect());
        grants
    }

    /// None if there is no journal, or it cannot be read.
    async fn read_on(&mut self, app: &App) -> Option<u64> {
        let mut grants = 0;
        for _ in 0..READER_PAGES_MAX {
            let page = app.locks.journal_page(self.after.as_ref(), JOURNAL_PAGE_MAX).await.ok()?;
            let read = page.entries.len();
            for entry in page.entries {
                grants += u64::from(self.learn(&entry) && self.caught_up);
                self.after = Some(entry.id);
            }
            if read < JOURNAL_PAGE_MAX {
                self.caught_up = true;
                break;
            }
        }
        Some(grants)
    }

    /// True for a grant.
    fn learn(&mut self, entry: &JournalEntry) -> bool {
        let (note, at_ms) = (&entry.note, entry.at_ms);
        if let NoteEvent::Granted { waited } = &note.what {
            self.waits.push_back((at_ms, millis(*waited)));
        }
        if let Some(fence) = note.fence {
            self.follow(note, fence, at_ms);
        }
        matches!(note.what, NoteEvent::Granted { .. })
    }

    /// Follows a hold to its end.
    fn follow(&mut self, note: &Note, fence: u64, at_ms: u64) {
        let name = || (note.key.clone(), fence);
        match note.what {
            NoteEvent::Granted { .. } => self.open.granted(&note.key, fence, note.mode, at_ms),
            NoteEvent::Lost { .. } => {
                self.open.ended(&note.key, fence);
                self.lost.insert(name(), Lost { at_ms, assumed: false });
            }
            NoteEvent::Released { .. } | NoteEvent::Broken { .. } => {
                self.open.ended(&note.key, fence);
                if self.lost.get(&name()).is_some_and(|lost| lost.assumed) {
                    self.lost.remove(&name());
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, now_ms: u64) {
        let (hour_ago, day_ago) =
            (now_ms.saturating_sub(HOUR_MS), now_ms.saturating_sub(24 * HOUR_MS));
        self.lost.retain(|_, lost| lost.at_ms >= day_ago);
        if self.lost.len() > READER_REMEMBERED_MAX {
            let mut times: Vec<_> = self.lost.values().map(|lost| lost.at_ms).collect();
            let oldest = times.len() - READER_REMEMBERED_MAX;
            let (_, since, _) = times.select_nth_unstable(oldest);
            let since = *since;
            self.lost.retain(|_, lost| lost.at_ms > since);
        }
        while self.waits.len() > READER_REMEMBERED_MAX
            || self.waits.front().is_some_and(|(at, _)| *at < hour_ago)
        {
            self.waits.pop_front();
        }
    }
}

/// Of twenty, one is larger than this.
fn p95(mut waits: Vec<u64>) -> Option<u64> {
    if waits.is_empty() {
        return None;
    }
    let at = (waits.len() * 95).div_ceil(100) - 1;
    Some(*waits.select_nth_unstable(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_twenty_is_larger() {
        assert_eq!(p95(vec![]), None);
        assert_eq!(p95(vec![7]), Some(7));
        assert_eq!(p95((1..=20).rev().collect()), Some(19));
        assert_eq!(p95((1..=100).collect()), Some(95));
    }
}
