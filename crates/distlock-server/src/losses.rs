//! Leases that ended without a release: found out by asking the store, and counted as lost.
//!
//! The replica that granted a lease looks after its end. Another replica may have renewed or
//! released it, so the store and the journal decide.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::{EntryId, JOURNAL_PAGE_MAX, Key, LossReason, NoteEvent};

use crate::lease_quota::{LeaseQuota, OverdueLease};
use crate::state::App;

/// How often ended leases are looked for.
const LOSSES_EVERY: Duration = Duration::from_secs(1);

/// How long one look may take. What is left is looked at the next time.
const LOSSES_PASS_MAX: Duration = Duration::from_secs(10);

/// How often a lease must be found gone: the note about its release may be on its way.
const LOOKS: u8 = 2;

/// How many pages of the journal are read at a time, and how many ends are remembered.
const LOSSES_PAGES_MAX: usize = 40;
const ENDS_MAX: usize = 50_000;

/// Counts lost leases until the service stops.
pub(crate) async fn count(app: Arc<App>) {
    let mut tick = tokio::time::interval(LOSSES_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ends = Ends::default();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = app.stop.cancelled() => return,
        }
        for quota in app.limits.accounts() {
            let mut overdue = quota.overdue().into_iter();
            let looked = async {
                if overdue.len() > 0 {
                    ends.read_on(&app).await;
                }
                for lease in overdue.by_ref() {
                    look(&ends, &quota, lease).await;
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(LOSSES_PASS_MAX, looked) => {}
                () = app.stop.cancelled() => return,
            }
            overdue.for_each(|lease| quota.ask_again(lease));
        }
    }
}

async fn look(ends: &Ends, quota: &LeaseQuota, overdue: OverdueLease) {
    let (lease, leases) = (&overdue.lease, &overdue.leases);
    match leases.find(lease.id()).await {
        Ok(Some(_)) => quota.lives(overdue),
        Ok(None) if ends.0.contains(&(lease.key().clone(), lease.fence())) => {}
        Ok(None) if overdue.looks + 1 < LOOKS => {
            quota.ask_again(OverdueLease { looks: overdue.looks + 1, ..overdue });
        }
        Ok(None) => leases.count_lost(lease, LossReason::Expired),
        Err(_) => quota.ask_again(overdue),
    }
}

/// The holds whose end the journal tells, and how far it was read. Without a journal there are
/// none, and a release through another replica looks like a loss.
#[derive(Debug, Default)]
struct Ends(HashSet<(Key, u64)>, Option<EntryId>);

impl Ends {
    /// Reads what came since the last time.
    async fn read_on(&mut self, app: &App) {
        if !app.journal {
            return;
        }
        for _ in 0..LOSSES_PAGES_MAX {
            let page = app.locks.journal_page(self.1.as_ref(), JOURNAL_PAGE_MAX).await;
            let Ok(page) = page else { return };
            let read = page.entries.len();
            for entry in page.entries {
                let (note, id) = (entry.note, entry.id);
                let ended = matches!(
                    note.what,
                    NoteEvent::Released { .. } | NoteEvent::Lost { .. } | NoteEvent::Broken { .. }
                );
                if let Some(fence) = note.fence.filter(|_| ended) {
                    self.0.insert((note.key, fence));
                }
                self.1 = Some(id);
            }
            if read < JOURNAL_PAGE_MAX {
                break;
            }
        }
        if self.0.len() > ENDS_MAX {
            self.0.clear();
        }
    }
}
