//! What happens to the locks, for those who want to know: counters, a stream, callbacks.

mod acquisition;
mod journal_writer;
#[cfg(feature = "metrics")]
mod measured;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
#[path = "no_meter.rs"]
mod meter;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use distlock_core::{AcquisitionId, Fault, Key, Label, Mode, Moment, Note, NoteEvent, Streaming};
use futures_util::stream;
use tokio::sync::broadcast;

pub(crate) use self::acquisition::Acquisition;
use self::journal_writer::JournalWriter;
#[cfg(feature = "metrics")]
pub(crate) use self::measured::Measured;
pub(crate) use self::meter::Meter;
use crate::LossReason;
use crate::options::Settings;
use distlock_core::sync::lock;

/// How many events a listener may fall behind before it misses some.
const EVENTS_MAX: usize = 1024;

/// Something that happened to a lock of this [`Locks`](crate::Locks).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A call that waited ended without the lock: a timeout, an error, or it was dropped.
    GaveUp {
        /// The key.
        key: Key,
        /// How long it waited.
        waited: Duration,
    },
    /// A lock was acquired.
    Granted {
        /// The key.
        key: Key,
        /// The fencing token.
        fence: u64,
        /// How long it took.
        waited: Duration,
    },
    /// A call waits. Comes again with every heartbeat from a queue.
    Waiting {
        /// The key.
        key: Key,
        /// How many wait ahead.
        ahead: u64,
    },
    /// A renewal was confirmed.
    Renewed {
        /// The key.
        key: Key,
        /// The fencing token.
        fence: u64,
        /// How much of the old lease was left: the early warning if it shrinks.
        margin: Duration,
    },
    /// A renewal failed; it is repeated until the lease ends. Comes once for every attempt that
    /// fails or is not answered in time.
    AtRisk {
        /// The key.
        key: Key,
        /// The fencing token.
        fence: u64,
        /// How much of the lease is left.
        remaining: Duration,
        /// Why it failed.
        fault: Fault,
    },
    /// A lock was lost.
    Lost {
        /// The key.
        key: Key,
        /// The fencing token.
        fence: u64,
        /// Why.
        reason: LossReason,
    },
    /// A guard was released or dropped.
    Released {
        /// The key.
        key: Key,
        /// The fencing token.
        fence: u64,
        /// How long it was held.
        held: Duration,
    },
    /// A hold was broken by [`break_hold`](crate::Locks::break_hold) of these locks. The
    /// holder's own event is [`Lost`](Self::Lost).
    Broken {
        /// The key.
        key: Key,
        /// The fencing token of the hold.
        fence: u64,
    },
    /// A waiter was too slow with its heartbeats and queues again at the end.
    PlaceLost {
        /// The key.
        key: Key,
    },
    /// The listener was too slow and missed this many events.
    Missed(u64),
}

/// What a [`Locks`](crate::Locks) has in hand and what it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Locks held and renewed now.
    pub held: usize,
    /// Calls waiting in a queue now.
    pub waiting: usize,
    /// Releases on their way: dropped guards and abandoned calls.
    pub releasing: usize,
    /// Background tasks: one while anything is in hand, none otherwise.
    pub tasks: usize,
    /// Grants since the beginning.
    pub grants: u64,
    /// Confirmed renewals since the beginning.
    pub renewals: u64,
    /// Losses since the beginning.
    pub losses: u64,
    /// Places in a queue lost since the beginning.
    pub places_lost: u64,
    /// Notes on their way into the journal.
    pub journal_pending: usize,
    /// Notes that never got into the journal, because the store did not keep up or refused.
    pub journal_dropped: u64,
}

type Callback = Box<dyn Fn(&Event) + Send + Sync>;

/// Counts events and passes them on. Costs next to nothing without a listener.
pub(crate) struct Observer {
    /// Made for the first stream: there is room for many events in it, and most have none.
    sender: OnceLock<broadcast::Sender<Event>>,
    /// How many streams there are. The sender knows, too, but locks to tell.
    streams: Arc<AtomicUsize>,
    callbacks: Mutex<Vec<Arc<Callback>>>,
    any_callback: AtomicBool,
    grants: AtomicU64,
    renewals: AtomicU64,
    losses: AtomicU64,
    places_lost: AtomicU64,
    pub(crate) journal_writer: JournalWriter,
    pub(crate) meter: Arc<Meter>,
}

/// How a waiting call learned that it holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeCause {
    /// The store said so.
    Push,
    /// A heartbeat was answered so.
    Heartbeat,
    /// It asked again.
    Poll,
}

/// Whose visit to which key it is that something is noted about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoteSubject<'a> {
    pub(crate) key: &'a Key,
    pub(crate) settings: &'a Settings,
    pub(crate) mode: Mode,
    pub(crate) acquisition: Option<AcquisitionId>,
    pub(crate) fence: Option<u64>,
}

/// A word of ours as the journal keeps it.
pub(crate) fn word(text: &'static str) -> Label {
    Label::new("word", text).expect("short and printable")
}

impl Observer {
    pub(crate) fn new() -> Self {
        Self {
            sender: OnceLock::new(),
            streams: Arc::default(),
            callbacks: Mutex::default(),
            any_callback: AtomicBool::new(false),
            grants: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            places_lost: AtomicU64::new(0),
            journal_writer: JournalWriter::new(),
            meter: Arc::new(Meter::new()),
        }
    }

    /// Notes something down, if these settings ask for a journal.
    pub(crate) fn note(
        &self,
        about: NoteSubject<'_>,
        at: impl FnOnce() -> Moment,
        what: impl FnOnce() -> NoteEvent,
    ) {
        let NoteSubject { key, settings, mode, acquisition, fence } = about;
        let Some(retention) = settings.journal else { return };
        let (owner, reason) = (settings.owner.clone(), settings.reason.clone());
        let note = Note { key: key.clone(), owner, reason, mode, fence, acquisition, what: what() };
        self.journal_writer.note(note, at(), retention);
    }

    pub(crate) fn granted(&self, key: &Key, fence: u64, waited: Duration) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        self.emit(|| Event::Granted { key: key.clone(), fence, waited });
    }

    pub(crate) fn renewed(&self, claims: u64) {
        self.renewals.fetch_add(claims, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn place_lost(&self) {
        self.places_lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_into(&self, stats: &mut Stats) {
        stats.grants = self.grants.load(Ordering::Relaxed);
        stats.renewals = self.renewals.load(Ordering::Relaxed);
        stats.losses = self.losses.load(Ordering::Relaxed);
        stats.places_lost = self.places_lost.load(Ordering::Relaxed);
        (stats.journal_pending, stats.journal_dropped) = self.journal_writer.count();
    }

    /// Passes an event on; it is only made if there is a listener.
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if !self.is_listened_to() {
            return;
        }
        let event = event();
        if self.any_callback.load(Ordering::Acquire) {
            let callbacks = lock(&self.callbacks).clone();
            for callback in callbacks {
                // A callback runs in the keeper and in the drop of guards: its panic ends there.
                let called = catch_unwind(AssertUnwindSafe(|| callback(&event)));
                if called.is_err() {
                    tracing::error!(?event, "a callback panicked");
                }
            }
        }
        if let Some(sender) = self.sender.get() {
            // Every listener may have gone since; then nothing is missed.
            let _ = sender.send(event);
        }
    }

    /// True if anybody wants to know of events.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.streams.load(Ordering::Acquire) > 0 || self.any_callback.load(Ordering::Acquire)
    }

    pub(crate) fn call(&self, callback: Callback) {
        let mut callbacks = lock(&self.callbacks);
        callbacks.push(Arc::new(callback));
        self.any_callback.store(true, Ordering::Release);
    }

    pub(crate) fn stream(&self) -> Streaming<'static, Event> {
        let sender = self.sender.get_or_init(|| broadcast::channel(EVENTS_MAX).0);
        let listener = (sender.subscribe(), CountedHold::new(&self.streams));
        Box::pin(stream::unfold(listener, |(mut receiver, counted)| async move {
            match receiver.recv().await {
                Ok(event) => Some((event, (receiver, counted))),
                Err(broadcast::error::RecvError::Lagged(n)) => {
                    Some((Event::Missed(n), (receiver, counted)))
                }
                Err(broadcast::error::RecvError::Closed) => None,
            }
        }))
    }
}

/// Counts a lease in the gauge `distlock_held`: see
/// [`Leases::count_held`](crate::Leases::count_held).
#[cfg(feature = "metrics")]
#[derive(Debug)]
#[must_use = "it counts for as long as it lives"]
pub struct HeldCount {
    meter: Arc<Meter>,
    key: Key,
}

#[cfg(feature = "metrics")]
impl HeldCount {
    pub(crate) fn new(observer: &Observer, key: &Key) -> Self {
        observer.meter.held(key, 1.0);
        Self { meter: Arc::clone(&observer.meter), key: key.clone() }
    }
}

#[cfg(feature = "metrics")]
impl Drop for HeldCount {
    fn drop(&mut self) {
        self.meter.held(&self.key, -1.0);
    }
}

/// One of those who are counted, as long as it lives.
struct CountedHold(Arc<AtomicUsize>);

impl CountedHold {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for CountedHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
