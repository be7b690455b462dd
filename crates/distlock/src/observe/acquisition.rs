//! What there is to tell about an acquisition while it lasts, and how it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock_core::{AcquisitionId, Ask, Key, Mode, Moment, NoteEvent, Ticket};
use tracing::Span;
use tracing::field::Empty;

use super::{Event, NoteSubject, WakeCause, word};
use crate::Error;
use crate::engine::Grant;
use crate::keeper::{Keeper, PlaceVerdict};
use crate::options::Settings;

/// The call does not wait yet.
const NOT_WAITING: u64 = 0;

/// The call waits without a place in a queue. No ticket is so large.
const POLLING: u64 = u64::MAX;

/// An acquisition under way. One that is dropped was cancelled.
#[derive(Debug)]
pub(crate) struct Acquisition<'a> {
    keeper: &'a Keeper,
    settings: Arc<Settings>,
    key: Key,
    pub(crate) mode: Mode,
    pub(crate) acquisition: Option<AcquisitionId>,
    started: Moment,
    /// The place that it waits in.
    place: AtomicU64,
    /// The place outlives the call.
    place_kept: AtomicBool,
    over: bool,
    pub(crate) span: Span,
}

impl<'a> Acquisition<'a> {
    pub(crate) fn new(
        keeper: &'a Keeper,
        ask: &Ask,
        settings: &Arc<Settings>,
        started: Moment,
    ) -> Self {
        Self {
            keeper,
            settings: Arc::clone(settings),
            key: ask.claim.key.clone(),
            mode: Mode::of(ask),
            acquisition: settings.journal.and_then(|_| match ask.attempt {
                // The id is the caller's, who may repeat the call.
                Some(_) => Some(AcquisitionId::of(&ask.claim.id)),
                None => AcquisitionId::random(),
            }),
            started,
            place: AtomicU64::new(NOT_WAITING),
            place_kept: AtomicBool::new(false),
            over: false,
            span: tracing::debug_span!(
                "lock.acquire",
                key = %ask.claim.key,
                owner = %ask.owner,
                outcome = Empty,
                position = Empty,
                fence = Empty,
            ),
        }
    }

    /// It has to wait. Told once for each place.
    pub(crate) fn queued(&self, ticket: Option<Ticket>, ahead: u64) {
        let place = ticket.unwrap_or(POLLING);
        let before = self.place.swap(place, Ordering::Relaxed);
        if before == place {
            return;
        }
        if before == NOT_WAITING {
            self.keeper.observer.meter.waiters(&self.key, 1.0);
        }
        self.span.record("position", ahead + 1);
        self.keeper.observer.emit(|| Event::Waiting { key: self.key.clone(), ahead });
        self.note(None, || NoteEvent::Queued { ahead });
    }

    /// It heard what became of its place.
    pub(crate) fn heard(&self, verdict: &PlaceVerdict) {
        if let PlaceVerdict::Granted { by, .. } = verdict {
            self.keeper.observer.meter.woken(*by);
        }
    }

    /// The wait is over, and its place in the queue stays for a call that comes back to it.
    pub(crate) fn place_kept(&self) {
        self.place_kept.store(true, Ordering::Relaxed);
    }

    /// It has ended, one way or the other.
    pub(crate) fn ended(mut self, result: &Result<Grant, Error>) {
        self.over = true;
        if self.place_kept.load(Ordering::Relaxed) {
            return self.count("queued");
        }
        self.count(result.as_ref().map_or_else(why, |_| "granted"));
        match result {
            Ok(Grant { fence, waited, .. }) => {
                let (fence, waited) = (*fence, *waited);
                self.span.record("fence", fence);
                if self.place.load(Ordering::Relaxed) == POLLING {
                    self.keeper.observer.meter.woken(WakeCause::Poll);
                }
                self.keeper.observer.granted(&self.key, fence, waited);
                self.note(Some(fence), || NoteEvent::Granted { waited });
            }
            Err(error) => self.gave_up(why(error)),
        }
    }

    fn count(&self, outcome: &'static str) {
        self.span.record("outcome", outcome);
        let meter = &self.keeper.observer.meter;
        if self.place.load(Ordering::Relaxed) != NOT_WAITING {
            meter.waiters(&self.key, -1.0);
        }
        if cfg!(feature = "metrics") {
            meter.acquired(&self.key, outcome, self.keeper.clock.now().since(self.started));
        }
    }

    /// A call that never waited has not given up, but was refused.
    fn gave_up(&self, why: &'static str) {
        if self.place.load(Ordering::Relaxed) == NOT_WAITING {
            return;
        }
        let waited = self.keeper.clock.now().since(self.started);
        self.keeper.observer.emit(|| Event::GaveUp { key: self.key.clone(), waited });
        self.note(None, || NoteEvent::GaveUp { waited, why: word(why) });
    }

    fn note(&self, fence: Option<u64>, what: impl FnOnce() -> NoteEvent) {
        let Self { keeper, settings, key, mode, acquisition, .. } = self;
        let about = NoteSubject { key, settings, mode: *mode, acquisition: *acquisition, fence };
        keeper.observer.note(about, || keeper.clock.now(), what);
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.count("cancelled");
            self.gave_up("cancelled");
        }
    }
}

/// Why an acquisition failed, in a word.
fn why(error: &Error) -> &'static str {
    match error {
        Error::Held { .. } => "held",
        Error::Timeout { .. } | Error::RetriesExhausted { .. } => "timeout",
        Error::Closed => "closed",
        Error::Cancelled { .. } => "cancelled",
        _ => "failed",
    }
}
