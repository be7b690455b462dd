//! All locks at a glance, made at most once a second however many look, and bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use distlock::{Locks, NoQuorum, NodeHealth, NodeState, Snapshot};

use crate::auth::Caller;
use crate::journal_reader::JournalReader;
use crate::problem::Problem;
use crate::state::App;
use crate::sync::lock;
use crate::wire::{self, BackendState, NodeStanding, PointBody, Refusals, SummaryBody, millis};

/// A summary that is younger than this is good enough.
const SUMMARY_FRESH: Duration = Duration::from_secs(1);

/// A store that does not answer within this time is down.
const SUMMARY_PROBE_MAX: Duration = Duration::from_secs(3);

/// How many pages of keys are counted; a page has up to 100.
const SUMMARY_PAGES_MAX: usize = 50;

/// How many points of the past are kept, and how far apart they are at least.
const POINTS_MAX: usize = 150;
const POINT_EVERY: Duration = Duration::from_secs(2);

/// How many leases are remembered by their length.
const SPANS_MAX: usize = 20_000;

/// What was seen of the locks so far. Nothing is decided by it.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// One at a time looks; the others wait for what it finds.
    last: tokio::sync::Mutex<Option<(Instant, SummaryBody)>>,
    reader: tokio::sync::Mutex<JournalReader>,
    past: Mutex<PastPoints>,
    /// The longest that was left of each lease, by key and fence.
    spans: Mutex<HashMap<(String, u64), u64>>,
}

/// What is known of the past.
#[derive(Debug, Default)]
struct PastPoints {
    points: VecDeque<PointBody>,
    last: Option<Instant>,
    /// Grants since the last point.
    grants: u64,
    down_since_ms: Option<u64>,
    redlock_down_since_ms: Option<u64>,
}

impl Watcher {
    /// A key as it stands, with how long its leases are when they are fresh. Stores do not keep
    /// that: it is what was left of the lease when most was left.
    pub(crate) fn view(&self, seen: Snapshot) -> wire::LockBody {
        let mut view = wire::LockBody::from(seen);
        let mut spans = lock(&self.spans);
        if spans.len() + view.holders.len() > SPANS_MAX {
            spans.clear();
        }
        for holder in &mut view.holders {
            let Some(left) = holder.remaining_ms else { continue };
            let most = span_seen(holder.held_ms, left);
            let span = spans.entry((view.key.clone(), holder.fence)).or_insert(most);
            *span = (*span).max(left);
            holder.ttl_ms = Some(*span);
        }
        view
    }
}

/// How long a lease is that is seen for the first time, as far as can be told. One that was hardly
/// used has not been renewed, since that happens at a third: then this is exact. Otherwise it is
/// what is left, until more is left after a renewal.
fn span_seen(held_ms: u64, left_ms: u64) -> u64 {
    if held_ms <= left_ms / 4 { left_ms + held_ms } else { left_ms }
}

/// All locks at a glance.
#[utoipa::path(get, path = crate::paths::SUMMARY_PATH, tag = "locks",
    responses(
        (status = 200, description = "at a glance", body = SummaryBody),
        Refusals))]
pub(crate) async fn summary(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<SummaryBody>, Problem> {
    caller.may_read()?;
    let mut last = app.watcher.last.lock().await;
    if let Some((at, summary)) = &*last
        && at.elapsed() < SUMMARY_FRESH
    {
        return Ok(Json(summary.clone()));
    }
    let summary = look(&app, last.as_ref().map(|(_, summary)| summary)).await;
    *last = Some((Instant::now(), summary.clone()));
    Ok(Json(summary))
}

/// Looks at everything once. What cannot be had is left as it was seen last.
async fn look(app: &App, before: Option<&SummaryBody>) -> SummaryBody {
    let at_ms = now_ms();
    let mut reader = app.watcher.reader.lock().await;
    let (backend, redlock) = tokio::join!(standing(&app.locks), redlock(app));
    reader.begin_look();
    let counted = if backend.ok { Some(count(app, &mut reader).await) } else { None };
    let complete = matches!(&counted, Some(Ok(seen)) if seen.listing && !seen.truncated);
    let mut summary = match counted {
        Some(Ok(counted)) => SummaryBody { at_ms, backend, ..counted },
        failed => {
            if let Some(Err(error)) = failed {
                tracing::warn!(%error, "could not look at the locks");
            }
            let backend = BackendState { ok: false, ..backend };
            SummaryBody { at_ms, backend, ..before.cloned().unwrap_or_default() }
        }
    };
    summary.redlock = redlock;
    let grants = reader.read(app, &mut summary, complete).await;
    let mut past = lock(&app.watcher.past);
    past.down_since_ms = match summary.backend.ok {
        true => None,
        false => past.down_since_ms.or(Some(at_ms)),
    };
    summary.backend.down_since_ms = past.down_since_ms;
    past.redlock_down_since_ms = match &summary.redlock {
        Some(redlock) if !redlock.ok => past.redlock_down_since_ms.or(Some(at_ms)),
        _ => None,
    };
    if let Some(redlock) = &mut summary.redlock {
        redlock.down_since_ms = past.redlock_down_since_ms;
    }
    past.add(&summary, grants);
    summary.points = past.points.iter().copied().collect();
    summary
}

impl PastPoints {
    fn add(&mut self, summary: &SummaryBody, grants: u64) {
        self.grants += grants;
        let since = self.last.map(|at| at.elapsed());
        if !summary.backend.ok || since.is_some_and(|since| since < POINT_EVERY) {
            return;
        }
        // How many grants came before the first point is unknown.
        let acquires_per_second =
            since.map_or(0.0, |since| self.grants as f64 / since.as_secs_f64());
        (self.last, self.grants) = (Some(Instant::now()), 0);
        let SummaryBody { at_ms, held, waiting, .. } = *summary;
        self.points.push_back(PointBody { at_ms, held, waiting, acquires_per_second });
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
    }
}

async fn count(app: &App, reader: &mut JournalReader) -> Result<SummaryBody, distlock::Error> {
    let mut summary =
        SummaryBody { listing: app.locks.capabilities().listing, ..SummaryBody::default() };
    if !summary.listing {
        return Ok(summary);
    }
    let mut cursor = None;
    for page in 0.. {
        if page == SUMMARY_PAGES_MAX {
            summary.truncated = true;
            break;
        }
        let found = app.locks.list("", cursor.as_ref()).await?;
        for seen in &found.locks {
            add(&mut summary, seen);
            reader.see(seen);
        }
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(summary)
}

fn add(summary: &mut SummaryBody, seen: &Snapshot) {
    summary.held += u64::from(seen.holders_total > 0);
    summary.contended += u64::from(seen.waiters_total > 0);
    summary.waiting += seen.waiters_total;
    let longest = seen.waiters.iter().map(|waiter| millis(waiter.waited)).max();
    summary.oldest_wait_ms = summary.oldest_wait_ms.max(longest);
}

/// How the quorum of the pattern `redlock` is, if it is another store than that of the locks.
pub(crate) async fn redlock(app: &App) -> Option<BackendState> {
    match &app.redlock {
        Some(redlock) => Some(standing(redlock).await),
        None => None,
    }
}

/// How a store is now.
pub(crate) async fn standing(locks: &Locks) -> BackendState {
    let state = match tokio::time::timeout(SUMMARY_PROBE_MAX, locks.probe()).await {
        Ok(Ok(health)) => {
            let nodes = health.nodes.iter().map(wire::NodeBody::from).collect();
            BackendState { ok: true, warnings: health.warnings, nodes, ..BackendState::default() }
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store is out of reach");
            BackendState { nodes: nodes_of(&error), ..BackendState::default() }
        }
        Err(_) => {
            tracing::warn!("the store does not answer in time");
            BackendState::default()
        }
    };
    let up = state.nodes.iter().filter(|node| node.state != NodeStanding::Down).count();
    let nodes_up = (!state.nodes.is_empty()).then_some(up as u64);
    BackendState { nodes_up, ..state }
}

/// The nodes of a quorum that could not decide.
fn nodes_of(error: &distlock::Error) -> Vec<wire::NodeBody> {
    let distlock::Error::Backend(fault) = error else { return Vec::new() };
    let Some(missing) = NoQuorum::of(fault) else { return Vec::new() };
    let down = missing.faults.iter().map(|(name, _)| (name, NodeState::Down));
    let up = missing.others.iter().map(|name| (name, NodeState::Up));
    let mut nodes: Vec<_> = down.chain(up).map(|(n, s)| NodeHealth::new(n, s)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes.iter().map(wire::NodeBody::from).collect()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_taken_for_longer_than_it_is() {
        let (ttl, renew_every) = (30_000, 10_000);
        for held in (0..90_000).step_by(100) {
            let left = ttl - held % renew_every;
            let span = span_seen(held, left);
            assert!(span <= ttl, "{span} after {held}");
            assert!(span == ttl || held > 5_000, "{span} after {held}");
        }
    }
}
