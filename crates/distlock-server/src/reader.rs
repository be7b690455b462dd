//! Reading the journal as it grows, for what a summary says about the past.

use std::collections::VecDeque;

use distlock::{Entry, EntryId, JOURNAL_PAGE_MAX, What};

use crate::state::App;
use crate::wire::{Summary, millis};

/// How many pages are read at a time. Whatever is left is read the next time.
const PAGES_MAX: usize = 12;

/// How many losses and waits are remembered.
const REMEMBERED_MAX: usize = 20_000;

const HOUR_MS: u64 = 60 * 60 * 1_000;

/// A reader that remembers where it was, so that every entry is read once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    after: Option<EntryId>,
    /// The first reading is about the past, not about what happens.
    caught_up: bool,
    /// When holds were lost.
    lost: VecDeque<u64>,
    /// When locks were granted, and how long that took.
    waits: VecDeque<(u64, u64)>,
    /// Grants counted by the locks of this service, where there is no journal.
    grants: u64,
}

impl Reader {
    /// Reads on, fills in what the journal knows, and returns how many grants came to light.
    pub(crate) async fn read(&mut self, app: &App, summary: &mut Summary) -> u64 {
        let own = app.locks.stats().grants;
        let grants_here = own.saturating_sub(std::mem::replace(&mut self.grants, own));
        let Some(grants) = self.read_on(app).await else { return grants_here };
        self.forget(summary.at_ms);
        summary.lost_24h = Some(self.lost.len() as u64);
        summary.wait_p95_ms = p95(self.waits.iter().map(|(_, waited)| *waited).collect());
        grants
    }

    /// None if there is no journal, or it cannot be read.
    async fn read_on(&mut self, app: &App) -> Option<u64> {
        let mut grants = 0;
        for _ in 0..PAGES_MAX {
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
    fn learn(&mut self, entry: &Entry) -> bool {
        match &entry.note.what {
            What::Lost { .. } => self.lost.push_back(entry.at_ms),
            What::Granted { waited } => self.waits.push_back((entry.at_ms, millis(*waited))),
            _ => {}
        }
        matches!(entry.note.what, What::Granted { .. })
    }

    fn forget(&mut self, now_ms: u64) {
        let (hour_ago, day_ago) =
            (now_ms.saturating_sub(HOUR_MS), now_ms.saturating_sub(24 * HOUR_MS));
        while self.lost.len() > REMEMBERED_MAX || self.lost.front().is_some_and(|at| *at < day_ago)
        {
            self.lost.pop_front();
        }
        while self.waits.len() > REMEMBERED_MAX
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
