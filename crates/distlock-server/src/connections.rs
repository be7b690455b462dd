//! Which connections are open, and which of them gives way when there are too many.
//!
//! A connection is unknown until a request on it has shown a token (or any request where there are
//! no tokens). Unknown connections are closed when they are idle, are few per address range, and
//! give way to newer ones; a quarter of all room is kept for known ones. So idle connections
//! without a token keep no client with a token out.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::auth_throttle::Range;
use crate::sync::lock;

/// How long an unknown connection may be idle, and how long its first request may take to arrive.
pub(crate) const UNKNOWN_IDLE_MAX: Duration = Duration::from_secs(5);

/// An unknown connection that has been idle for less gives way to no other: its first request may
/// be on its way.
const GRACE: Duration = Duration::from_secs(2);

/// After this time an unknown connection gives way even if it is not idle.
const UNKNOWN_AGE_MAX: Duration = Duration::from_secs(30);

/// How many unknown connections one address range has before its idle ones give way.
const UNKNOWN_PER_RANGE: usize = 64;

/// How many connections of a range are looked at to find one that gives way.
const EXAMINED_MAX: usize = 64;

/// One connection.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    number: u64,
    /// None where all clients share an address: behind a proxy, or on a Unix socket.
    range: Option<Range>,
    opened: Instant,
    known: AtomicBool,
    busy: AtomicBool,
    /// When it was last active, in milliseconds since it was opened.
    active_ms: AtomicU64,
    evicted: CancellationToken,
}

impl TrackedConnection {
    /// Completes when the connection has to give way to another.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// A request has arrived.
    pub(crate) fn begin(&self) {
        self.busy.store(true, Ordering::Relaxed);
    }

    /// A request was answered.
    pub(crate) fn end(&self) {
        self.busy.store(false, Ordering::Relaxed);
        self.wrote(Instant::now());
    }

    /// Something was written, so the client reads.
    pub(crate) fn wrote(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_millis();
        self.active_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When it is closed for being idle, as far as that is known now; none for a known one.
    pub(crate) fn idle_until(&self, now: Instant) -> Option<Instant> {
        if self.known.load(Ordering::Relaxed) {
            return None;
        }
        let since = if self.busy.load(Ordering::Relaxed) { now } else { self.active() };
        Some(since + UNKNOWN_IDLE_MAX)
    }

    fn active(&self) -> Instant {
        self.opened + Duration::from_millis(self.active_ms.load(Ordering::Relaxed))
    }

    fn gives_way(&self, now: Instant) -> bool {
        let idle = !self.busy.load(Ordering::Relaxed)
            && now.saturating_duration_since(self.active()) >= GRACE;
        idle || now.saturating_duration_since(self.opened) >= UNKNOWN_AGE_MAX
    }
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Mutex<ConnectionTable>,
    /// Notified when a connection ends or becomes known.
    changed: Notify,
}

#[derive(Debug)]
struct ConnectionTable {
    max: usize,
    opened: u64,
    total: usize,
    unknown_total: usize,
    /// By range, oldest first.
    unknown: HashMap<Option<Range>, BTreeMap<u64, Arc<TrackedConnection>>>,
}

/// Whether one more connection may be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// Not before a connection ends.
    Full,
    /// Not before a connection ends, or has been idle for this time.
    FullFor(Duration),
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.max(1);
        let table =
            ConnectionTable { max, opened: 0, total: 0, unknown_total: 0, unknown: HashMap::new() };
        Self { table: Mutex::new(table), changed: Notify::new() }
    }

    /// Waits until one more connection may be accepted.
    pub(crate) async fn room(&self) {
        loop {
            let changed = self.changed.notified();
            let room = lock(&self.table).make_room(Instant::now());
            match room {
                Room::Free => return,
                Room::Full => changed.await,
                Room::FullFor(span) => {
                    let _ = tokio::time::timeout(span, changed).await;
                }
            }
        }
    }

    /// Counts a connection that was accepted, until [`close`](Self::close).
    pub(crate) fn open(&self, range: Option<Range>) -> Arc<TrackedConnection> {
        lock(&self.table).open(range, Instant::now())
    }

    /// A request on this connection may do something: it stays.
    pub(crate) fn authenticated(&self, connection: &TrackedConnection) {
        if !connection.known.swap(true, Ordering::Relaxed) {
            lock(&self.table).forget_unknown(connection);
            self.changed.notify_one();
        }
    }

    /// A connection has ended.
    pub(crate) fn close(&self, connection: &TrackedConnection) {
        let mut table = lock(&self.table);
        table.forget_unknown(connection);
        table.total -= 1;
        drop(table);
        self.changed.notify_one();
    }
}

impl ConnectionTable {
    /// Unknown connections may have three quarters of all room, or all of it if it is small.
    fn unknown_max(&self) -> usize {
        self.max - self.max / 4
    }

    fn make_room(&mut self, now: Instant) -> Room {
        if self.total < self.max && self.unknown_total < self.unknown_max() {
            return Room::Free;
        }
        if self.unknown_total == 0 {
            return Room::Full;
        }
        // The range with the most unknown connections pays for them.
        let largest = self.unknown.iter().max_by_key(|(_, unknown)| unknown.len());
        let Some(range) = largest.map(|(range, _)| *range) else { return Room::Full };
        self.evict_from(range, now);
        // An evicted connection counts until it has ended, so that file descriptors do not run out.
        match self.total < self.max && self.unknown_total < self.unknown_max() {
            true => Room::Free,
            false => Room::FullFor(GRACE / 4),
        }
    }

    fn open(&mut self, range: Option<Range>, now: Instant) -> Arc<TrackedConnection> {
        let crowded = range.is_some()
            && self.unknown.get(&range).is_some_and(|unknown| unknown.len() >= UNKNOWN_PER_RANGE);
        if crowded {
            self.evict_from(range, now);
        }
        self.opened += 1;
        self.total += 1;
        self.unknown_total += 1;
        let connection = Arc::new(TrackedConnection {
            number: self.opened,
            range,
            opened: now,
            known: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            active_ms: AtomicU64::new(0),
            evicted: CancellationToken::new(),
        });
        let unknown = self.unknown.entry(range).or_default();
        unknown.insert(connection.number, Arc::clone(&connection));
        connection
    }

    /// Ends the oldest connection of a range that may be ended.
    fn evict_from(&mut self, range: Option<Range>, now: Instant) {
        let Some(unknown) = self.unknown.get(&range) else { return };
        let oldest = unknown.values().take(EXAMINED_MAX).find(|each| each.gives_way(now));
        if let Some(connection) = oldest.map(Arc::clone) {
            self.forget_unknown(&connection);
            connection.evicted.cancel();
        }
    }

    fn forget_unknown(&mut self, connection: &TrackedConnection) {
        let Some(unknown) = self.unknown.get_mut(&connection.range) else { return };
        if unknown.remove(&connection.number).is_some() {
            self.unknown_total -= 1;
        }
        if unknown.is_empty() {
            self.unknown.remove(&connection.range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(max: usize) -> ConnectionTable {
        ConnectionTable { max, opened: 0, total: 0, unknown_total: 0, unknown: HashMap::new() }
    }

    fn range(n: u8) -> Option<Range> {
        Some(Range::of([10, 0, n, 1].into()))
    }

    #[test]
    fn the_oldest_idle_connection_of_the_largest_range_gives_way() {
        let (mut table, start) = (table(8), Instant::now());
        let crowd: Vec<_> = (0..5).map(|_| table.open(range(1), start)).collect();
        let lone = table.open(range(2), start);
        assert_eq!(table.make_room(start), Room::FullFor(GRACE / 4), "six of eight are unknown");
        assert!(crowd.iter().all(|each| !each.evicted.is_cancelled()), "all are young");
        crowd[0].begin();
        let later = start + GRACE;
        assert_eq!(table.make_room(later), Room::Free);
        let evicted: Vec<_> = crowd.iter().map(|each| each.evicted.is_cancelled()).collect();
        assert_eq!(evicted, [false, true, false, false, false], "the first has a request");
        assert!(!lone.evicted.is_cancelled());
    }

    #[test]
    fn a_range_beyond_its_share_gives_way_to_itself() {
        let (mut table, start) = (table(10_000), Instant::now());
        let first = table.open(range(1), start);
        for _ in 1..UNKNOWN_PER_RANGE {
            table.open(range(1), start);
        }
        let later = start + GRACE;
        table.open(range(2), later);
        assert!(!first.evicted.is_cancelled(), "another range is another matter");
        table.open(range(1), later);
        assert!(first.evicted.is_cancelled());
        // All clients of a proxy have one address: it has no share.
        let proxied: Vec<_> = (0..200).map(|_| table.open(None, start)).collect();
        table.open(None, later);
        assert!(proxied.iter().all(|each| !each.evicted.is_cancelled()));
    }

    #[test]
    fn a_known_connection_is_neither_idle_nor_in_the_way() {
        let (connections, start) = (Connections::new(1), Instant::now());
        let only = connections.open(range(1));
        assert!(only.idle_until(start).is_some());
        connections.authenticated(&only);
        assert_eq!(only.idle_until(start), None);
        assert_eq!(lock(&connections.table).make_room(start + UNKNOWN_AGE_MAX), Room::Full);
        connections.close(&only);
        assert_eq!(lock(&connections.table).make_room(start), Room::Free);
    }
}
