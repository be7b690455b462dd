//! What one client sees of the store, written down as it happens; and a gate that pauses it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Backend, ClaimId, Clock, Fault, Moment, Pending, Push, ReleaseOptions,
    ReleaseOutcome, Renewal, Standing, Streaming, Target, Ticket,
};
use distlock_testkit::history::{AcquireSpec, History, HistoryEntry, ValidityEnd};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;

/// Lets a client run or not. Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<Passage>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    Closed,
    ClosedForEver,
}

impl Gate {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Passage::Open)))
    }

    /// Opens or closes the gate, unless it is closed for ever.
    pub(crate) fn set(&self, to: Passage) {
        self.0.send_modify(|passage| {
            if *passage != Passage::ClosedForEver {
                *passage = to;
            }
        });
    }

    pub(crate) async fn open(&self) {
        if *self.0.borrow() != Passage::Open {
            // The sender is ours, so it cannot close while we wait.
            let _ = self.0.subscribe().wait_for(|passage| *passage == Passage::Open).await;
        }
    }
}

/// One acquisition of one client, from the ask to the grant.
struct Acquisition {
    wish: AcquireSpec,
    entry: HistoryEntry,
    id: Option<ClaimId>,
    ticket: Option<Ticket>,
    /// When the present claim was asked for first.
    asked: Moment,
    granted: bool,
}

/// The book of one client.
struct Book {
    acquisitions: HashMap<String, Acquisition>,
    owners: HashMap<ClaimId, String>,
    /// What the store pushes to this client, whatever becomes of it on the way.
    pushed: Streaming<'static, Push>,
    from_queue: HashMap<(ClaimId, u64), Ticket>,
}

/// A backend that writes down what its client sees.
#[derive(Clone)]
pub(crate) struct Witness {
    inner: Arc<dyn Backend>,
    history: History,
    clock: Arc<dyn Clock>,
    pub(crate) gate: Gate,
    book: Arc<Mutex<Book>>,
}

impl Witness {
    /// `pushed` is what the store pushes, before anything can go wrong.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        pushed: Streaming<'static, Push>,
        history: History,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let book = Book {
            acquisitions: HashMap::new(),
            owners: HashMap::new(),
            pushed,
            from_queue: HashMap::new(),
        };
        Self { inner, history, clock, gate: Gate::new(), book: Arc::new(Mutex::new(book)) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client is about to ask under this label.
    pub(crate) fn asks(&self, label: &str, wish: AcquireSpec) {
        let asked = self.clock.now();
        let entry = self.history.asks(wish.clone(), asked);
        let (id, ticket, granted) = (None, None, false);
        let acquisition = Acquisition { wish, entry, id, ticket, asked, granted };
        self.book().acquisitions.insert(label.into(), acquisition);
    }

    /// The client has what it asked for.
    pub(crate) fn granted(&self, label: &str, fence: u64) -> Holding {
        let now = self.clock.now();
        let book = &mut *self.book();
        book.listen();
        let acquisition = book.acquisitions.get_mut(label).expect("it was asked for");
        acquisition.granted = true;
        let from_queue = acquisition.id.and_then(|id| book.from_queue.get(&(id, fence)).copied());
        // What was granted past the queue is not the place that was lost before, and the place
        // that was granted may be one that no client was told of.
        if from_queue != acquisition.ticket {
            acquisition.entry = self.history.asks(acquisition.wish.clone(), acquisition.asked);
            if let Some(ticket) = from_queue {
                acquisition.entry.waits(ticket, acquisition.asked);
            }
        }
        let entry = acquisition.entry.clone();
        entry.granted(fence, now);
        let (clock, ended) = (Arc::clone(&self.clock), AtomicBool::new(false));
        Holding(Arc::new(Held { key: acquisition.wish.key.clone(), fence, entry, clock, ended }))
    }

    fn sends(&self, ask: &Ask) {
        let now = self.clock.now();
        let book = &mut *self.book();
        let Some(acquisition) = book.acquisitions.get_mut(ask.owner.as_str()) else { return };
        if acquisition.id.replace(ask.claim.id) != Some(ask.claim.id) {
            book.owners.insert(ask.claim.id, ask.owner.as_str().into());
            acquisition.asked = now;
            if acquisition.ticket.take().is_some() {
                acquisition.entry = self.history.asks(acquisition.wish.clone(), now);
            }
        }
    }

    fn waits(&self, id: ClaimId, ticket: Ticket) {
        let now = self.clock.now();
        let book = &mut *self.book();
        let Some(label) = book.owners.get(&id) else { return };
        let Some(acquisition) = book.acquisitions.get_mut(label) else { return };
        if acquisition.id == Some(id) && !acquisition.granted {
            acquisition.ticket = Some(ticket);
            acquisition.entry.waits(ticket, now);
        }
    }
}

impl Book {
    /// Takes in what the store has pushed so far.
    fn listen(&mut self) {
        while let Some(Some(push)) = self.pushed.next().now_or_never() {
            if let Push::Granted { id, ticket, fence } = push {
                self.from_queue.insert((id, fence), ticket);
            }
        }
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Backend for Witness {
    distlock_testkit::forward_backend!(inner: capabilities, inspect, list, probe, extensions);

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move {
            self.gate.open().await;
            self.sends(ask);
            let answer = self.inner.acquire(ask).await;
            self.gate.open().await;
            if let Ok(Answer::Busy(busy)) = &answer
                && let Some(ticket) = busy.ticket
            {
                self.waits(ask.claim.id, ticket);
            }
            answer
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let sent = async move {
            self.gate.open().await;
            self.inner.renew(batch)
        };
        Box::pin(stream::once(sent).flatten().then(move |(index, answer)| async move {
            self.gate.open().await;
            if let Ok(Standing::Waiting(waiting)) = &answer {
                self.waits(batch[index].claim.id, waiting.ticket);
            }
            (index, answer)
        }))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(async move {
            self.gate.open().await;
            let outcome = self.inner.release(target, how).await;
            self.gate.open().await;
            outcome
        })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let gate = self.gate.clone();
        Box::pin(self.inner.pushes().then(move |push| {
            let gate = gate.clone();
            async move {
                gate.open().await;
                push
            }
        }))
    }
}

/// What a client believes to hold. Ends once; a client that crashes ends it by dropping it.
#[derive(Clone)]
pub(crate) struct Holding(Arc<Held>);

struct Held {
    key: String,
    fence: u64,
    entry: HistoryEntry,
    clock: Arc<dyn Clock>,
    ended: AtomicBool,
}

impl Holding {
    pub(crate) fn is(&self, key: &str, fence: u64) -> bool {
        self.0.key == key && self.0.fence == fence
    }

    pub(crate) fn weak(&self) -> WeakHolding {
        WeakHolding(Arc::downgrade(&self.0))
    }

    pub(crate) fn ended(&self) -> bool {
        self.0.ended.load(Ordering::SeqCst)
    }

    /// The client looks how long it may go on believing.
    pub(crate) fn valid_for(&self, remaining: Duration) {
        if remaining.is_zero() {
            self.end(ValidityEnd::Lost);
        } else if !self.ended() {
            self.0.entry.valid_until(self.0.clock.now().after(remaining));
        }
    }

    pub(crate) fn lowered(&self, weight: u32) {
        self.0.entry.lowered(weight, self.0.clock.now());
    }

    pub(crate) fn end(&self, how: ValidityEnd) {
        self.0.end(how);
    }
}

/// A [`Holding`] that does not keep it from being dropped.
pub(crate) struct WeakHolding(Weak<Held>);

impl WeakHolding {
    pub(crate) fn get(&self) -> Option<Holding> {
        self.0.upgrade().map(Holding)
    }
}

impl Held {
    fn end(&self, how: ValidityEnd) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.entry.ended(how, self.clock.now());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(ValidityEnd::Lost);
    }
}
