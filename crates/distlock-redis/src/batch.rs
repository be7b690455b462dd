//! Group commit: requests that arrive while others are under way leave together in the next call.
//!
//! As long as few calls are in flight, each request is a call of its own, sent by its caller. From
//! then on requests queue, and a task of the driver sends what has queued, many in one call, until
//! nothing is left. No request depends on the caller of another one: a caller that is dropped, or
//! alive and not polled, delays only itself.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use distlock_core::sync::lock;
use distlock_core::{Fault, ReleaseOptions, ReleaseOutcome, Target};
use redis::Value;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use super::faults::for_all;
use super::library::{LibraryCall, LibraryVerb, Words};
use super::{RedisClient, codec};

/// How many calls of their own are in flight before requests queue. A task for each batch costs
/// more than it saves where fewer are.
const ALONE_MAX: usize = 8;

/// How many batches are in flight at once: the server works on one while others are on their way.
const BATCHES_MAX: usize = 4;

/// How many requests one batch takes. The server does nothing else meanwhile.
const REQUESTS_MAX: usize = 64;

/// How many arguments an acquire has in a batch: without weight, floor, attempt and witness.
const ACQUIRE_ARGS: usize = 4;

/// The answer to a request: none if it has to be sent again by itself.
type BatchAnswer = Result<Option<Value>, Fault>;

/// What is in flight and what waits, for each runtime that calls: a runtime that is blocked or gone
/// delays no other.
#[derive(Debug)]
pub(super) struct Batcher {
    batches: bool,
    lanes: Mutex<Vec<(Id, BatchLane)>>,
}

/// The requests of one runtime.
#[derive(Debug, Default)]
struct BatchLane {
    /// Calls of their own that are in flight.
    alone: usize,
    /// Tasks that send batches.
    batches: usize,
    queue: VecDeque<Request>,
}

#[derive(Debug)]
struct Request {
    call: LibraryCall,
    answer: oneshot::Sender<BatchAnswer>,
}

/// How a request goes out.
enum Way<'a> {
    /// By its caller, as a call of its own.
    Alone(LibraryCall, InFlight<'a>),
    /// In a batch.
    Batched(oneshot::Receiver<BatchAnswer>),
}

impl Batcher {
    /// Without batches every request is a call of its own.
    pub(super) fn new(batches: bool) -> Self {
        Self { batches, lanes: Mutex::default() }
    }

    fn with_lane<T>(&self, runtime: Id, act: impl FnOnce(&mut BatchLane) -> T) -> T {
        let mut lanes = lock(&self.lanes);
        let at = lanes.iter().position(|(known, _)| *known == runtime).unwrap_or_else(|| {
            lanes.retain(|(_, lane)| !lane.is_idle());
            lanes.push((runtime, BatchLane::default()));
            lanes.len() - 1
        });
        act(&mut lanes[at].1)
    }
}

impl BatchLane {
    fn is_idle(&self) -> bool {
        self.alone == 0 && self.batches == 0 && self.queue.is_empty()
    }

    /// True if a call may go out by itself; it is in flight from now on.
    fn go_alone(&mut self) -> bool {
        let alone = self.batches == 0 && self.queue.is_empty() && self.alone < ALONE_MAX;
        self.alone += usize::from(alone);
        alone
    }

    /// Queues a request. True if a task has to be started that sends it.
    fn enqueue(&mut self, request: Request) -> bool {
        self.queue.push_back(request);
        let starts = self.batches < BATCHES_MAX;
        self.batches += usize::from(starts);
        starts
    }

    /// The next batch. Requests whose callers have left are not sent: their
    /// clean-up sends what is left to do. Without any the task ends.
    fn next_batch(&mut self) -> Vec<Request> {
        let mut batch = Vec::with_capacity(self.queue.len().min(REQUESTS_MAX));
        while batch.len() < REQUESTS_MAX
            && let Some(request) = self.queue.pop_front()
        {
            if !request.answer.is_closed() {
                batch.push(request);
            }
        }
        if batch.is_empty() {
            self.batches -= 1;
        }
        batch
    }
}

/// A call of its own that is in flight.
struct InFlight<'a> {
    batcher: &'a Batcher,
    runtime: Id,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.batcher.with_lane(self.runtime, |lane| lane.alone -= 1);
    }
}

impl RedisClient {
    /// Sends a request, by itself or in a batch.
    pub(super) async fn request(
        self: &Arc<Self>,
        action: &'static str,
        make: impl Fn() -> LibraryCall,
    ) -> Result<Value, Fault> {
        let call = make();
        let batches = self.batcher.batches && is_plain(&call);
        let Some(runtime) = Handle::try_current().ok().filter(|_| batches) else {
            return self.connections.call(action, &call).await;
        };
        match self.way(&runtime, call) {
            Way::Alone(call, _in_flight) => return self.connections.call(action, &call).await,
            Way::Batched(answer) => {
                let ended = |_| Fault::transient(action, "its runtime has ended");
                if let Some(value) = answer.await.map_err(ended)?? {
                    return Ok(value);
                }
            }
        }
        self.connections.call(action, &make()).await
    }

    /// Gives up. A caller may poll once and never again, so a release that needs a connection first
    /// is sent by a task: otherwise it would withhold the key until the lease ends.
    pub(super) async fn release(
        self: &Arc<Self>,
        target: &Target,
        how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        if self.connections.is_connected() {
            return self.release_now(target, how).await;
        }
        let (inner, target) = (Arc::clone(self), target.clone());
        let sent = tokio::spawn(async move { inner.release_now(&target, how).await });
        sent.await.map_err(|ended| Fault::transient("release", ended))?
    }

    async fn release_now(
        self: &Arc<Self>,
        target: &Target,
        how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        let make = || LibraryCall {
            verb: LibraryVerb::Release,
            keys: self.namespace.keys(target.key()),
            args: codec::release_args(target, how),
        };
        let value = self.request("release", make).await?;
        self.read(codec::outcome(&codec::released_id(target), &value))
    }

    fn way(self: &Arc<Self>, runtime: &Handle, call: LibraryCall) -> Way<'_> {
        let id = runtime.id();
        let (answer, receiver) = oneshot::channel();
        let (alone, starts) = self.batcher.with_lane(id, |lane| {
            if lane.go_alone() {
                return (Some(call), false);
            }
            (None, lane.enqueue(Request { call, answer }))
        });
        if starts {
            runtime.spawn(send_batches(BatchSender {
                inner: Arc::clone(self),
                runtime: id,
                done: false,
            }));
        }
        match alone {
            Some(call) => Way::Alone(call, InFlight { batcher: &self.batcher, runtime: id }),
            None => Way::Batched(receiver),
        }
    }
}

/// The task that sends batches, and what becomes of the queue if its runtime ends before it does.
struct BatchSender {
    inner: Arc<RedisClient>,
    runtime: Id,
    done: bool,
}

impl BatchSender {
    fn next_batch(&mut self) -> Vec<Request> {
        let batch = self.inner.batcher.with_lane(self.runtime, BatchLane::next_batch);
        self.done = batch.is_empty();
        batch
    }

    async fn send(&self, mut batch: Vec<Request>) {
        batch.sort_by_key(|request| request.call.verb != LibraryVerb::Release);
        let many = many(&batch);
        let answer = self.inner.connections.try_call("send many", &many).await;
        match for_all("send many", answer) {
            Ok(Some(Value::Array(values))) if values.len() == batch.len() => {
                for (request, value) in batch.into_iter().zip(values) {
                    let again = matches!(&value, Value::BulkString(text) if text.is_empty());
                    // A caller that has left needs no answer.
                    let _ = request.answer.send(Ok((!again).then_some(value)));
                }
            }
            Ok(None) => batch.into_iter().for_each(|request| {
                let _ = request.answer.send(Ok(None));
            }),
            Ok(Some(value)) => {
                self.inner.connections.distrust();
                self.fail(batch, &codec::garbled(&value));
            }
            Err(fault) => self.fail(batch, &fault),
        }
    }

    /// Answers a batch with a fault, and all that waits, too: it would meet the same.
    fn fail(&self, batch: Vec<Request>, fault: &Fault) {
        let waiting =
            self.inner.batcher.with_lane(self.runtime, |lane| std::mem::take(&mut lane.queue));
        for request in batch.into_iter().chain(waiting) {
            let _ = request.answer.send(Err(fault.clone()));
        }
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        if !self.done {
            self.inner.batcher.with_lane(self.runtime, |lane| lane.batches -= 1);
            self.fail(
                Vec::new(),
                &Fault::transient("send", "the runtime that was to send it has ended"),
            );
        }
    }
}

/// The call for a batch: releases, then acquires.
fn many(batch: &[Request]) -> LibraryCall {
    let (mut keys, mut args) = (Words::default(), Words::default());
    let releases = batch.partition_point(|request| request.call.verb == LibraryVerb::Release);
    args.push(releases);
    for Request { call, .. } in batch {
        keys.extend(call.keys.iter());
        args.extend(call.args.iter());
        if call.verb == LibraryVerb::Acquire {
            args.extend(std::iter::repeat_n("", ACQUIRE_ARGS - call.args.len()));
        }
    }
    LibraryCall { verb: LibraryVerb::Many, keys, args }
}

/// True for a request that says no more than a batch takes.
fn is_plain(call: &LibraryCall) -> bool {
    match call.verb {
        LibraryVerb::Acquire => call.args.len() <= ACQUIRE_ARGS,
        LibraryVerb::Release => call.args.len() == 1,
        _ => false,
    }
}

async fn send_batches(mut sender: BatchSender) {
    loop {
        // Callers that were just answered may have something to send right away.
        let_others_run().await;
        let batch = sender.next_batch();
        if batch.is_empty() {
            return;
        }
        sender.send(batch).await;
    }
}

/// Lets those tasks go first that can run now. Unlike after tokio's `yield_now`, any thread of the
/// runtime may go on with this one: the present thread may be about to run a task that blocks it.
async fn let_others_run() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    type Receiver = oneshot::Receiver<BatchAnswer>;

    /// Queues a request. Says whether a task has to be started.
    fn enqueue(lane: &mut BatchLane) -> (Receiver, bool) {
        let (answer, receiver) = oneshot::channel();
        let call = LibraryCall {
            verb: LibraryVerb::Release,
            keys: Words::default(),
            args: Words::default(),
        };
        let starts = lane.enqueue(Request { call, answer });
        (receiver, starts)
    }

    #[test]
    fn few_requests_go_alone_and_more_queue() {
        let mut lane = BatchLane::default();
        assert!((0..ALONE_MAX).all(|_| lane.go_alone()));
        assert!(!lane.go_alone());
        let (_receiver, starts) = enqueue(&mut lane);
        assert!(starts);
        lane.alone = 0;
        assert!(!lane.go_alone(), "none overtakes what waits");
    }

    #[test]
    fn requests_that_arrive_while_batches_are_in_flight_leave_together() {
        let mut lane = BatchLane::default();
        let queued: Vec<_> = (0..REQUESTS_MAX + 10).map(|_| enqueue(&mut lane)).collect();
        assert_eq!(queued.iter().filter(|(_, starts)| *starts).count(), BATCHES_MAX);
        assert_eq!(lane.next_batch().len(), REQUESTS_MAX);
        assert_eq!(lane.next_batch().len(), 10);
        assert_eq!(lane.next_batch().len(), 0);
        assert_eq!(lane.batches, BATCHES_MAX - 1, "a task that finds nothing ends");
    }

    #[test]
    fn a_request_whose_caller_has_left_is_not_sent() {
        let mut lane = BatchLane::default();
        let (left, _) = enqueue(&mut lane);
        let (_stays, _) = enqueue(&mut lane);
        drop(left);
        assert_eq!(lane.next_batch().len(), 1);
    }

    #[test]
    fn a_runtime_that_sends_nothing_is_forgotten_when_another_comes() {
        let batcher = Batcher::new(true);
        let runtimes = [(); 3].map(|()| tokio::runtime::Builder::new_current_thread().build());
        let [idle, busy, new] = runtimes.map(|runtime| runtime.unwrap().handle().id());
        batcher.with_lane(idle, |_| ());
        batcher.with_lane(busy, BatchLane::go_alone);
        batcher.with_lane(new, |_| ());
        let known: Vec<_> = lock(&batcher.lanes).iter().map(|(id, _)| *id).collect();
        assert_eq!(known, [busy, new]);
    }
}
