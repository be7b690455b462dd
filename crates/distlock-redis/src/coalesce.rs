//! Calls of the same instant go out together: one script for many keys.
//!
//! A call that comes while none is under way goes by itself. Whoever comes meanwhile leaves with
//! all others of the same instant, a quarter of all who are around at most, so that the server has
//! always something to do while others are here; and when several calls are under way, with all
//! who came until one of them was back. So one caller pays for one round trip and nothing else, and
//! with many callers the work of a call, here and at the server, is shared by all who are in it.
//!
//! Only the usual case goes together: a claim on the whole of a free key, and its release while
//! nobody waits. The script leaves everything else alone, and it is asked for again by itself.

use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use distlock_core::{Answer, Ask, ClaimId, Fault, Key, ReleaseOptions, ReleaseOutcome, Target};
use foldhash::fast::RandomState;
use redis::Cmd;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::oneshot;

use super::faults::for_all;
use super::gate::{AskText, Cabin, Gates, Passenger, Reply, Seat};
use super::script::MANY;
use super::{Inner, wire};
use distlock_core::sync::lock;

/// How many keys, by hash, are remembered as wanted by several.
const MEMORIES: usize = 1024;

/// How often in a row a key has to be free before it counts as wanted by one alone again.
const BUSY_FOR: u8 = 8;

/// The calls under way and those who wait for the next.
#[derive(Debug)]
pub(super) struct Together {
    gates: Mutex<Gates>,
    /// By hash of the key: two keys may share one.
    memories: Box<[Memory]>,
    hasher: RandomState,
}

/// What somebody who goes with others hears, see [`Reply`].
type Answered = oneshot::Receiver<Result<Option<u64>, Fault>>;

/// How a call goes out.
enum Turn<'a> {
    /// By itself, and others wait until this is dropped.
    Alone(Option<Flight<'a>>),
    /// With others: here is what came of it.
    With(Answered),
}

impl Default for Together {
    fn default() -> Self {
        let memories = std::iter::repeat_with(Memory::default).take(MEMORIES).collect();
        Self { gates: Mutex::default(), memories, hasher: RandomState::default() }
    }
}

impl Together {
    /// A call by itself, if few are under way.
    fn alone(&self) -> Option<Flight<'_>> {
        lock(&self.gates).leave_alone().then(|| Flight(self))
    }

    /// What is remembered of a key.
    pub(super) fn memory(&self, key: &Key) -> &Memory {
        &self.memories[self.hasher.hash_one(key) as usize % MEMORIES]
    }
}

/// What happened at a key of late. Several may write at once: whoever is last is as right as the
/// others.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// For how much longer it is remembered that several wanted it.
    busy: AtomicU8,
}

impl Memory {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn note(&self, busy: bool) {
        let before = self.busy.load(Ordering::Relaxed);
        self.busy.store(if busy { BUSY_FOR } else { before.saturating_sub(1) }, Ordering::Relaxed);
    }
}

impl Inner {
    /// Asks, together with others if there are any.
    pub(super) async fn acquire(self: &Arc<Self>, ask: &Ask) -> Result<Answer, Fault> {
        let key = &ask.claim.key;
        let usual = ask.is_exclusive() && ask.attempt.is_none();
        if !usual || ask.fence_floor.is_some() || ask.witness.is_some() {
            return Box::pin(self.ask(ask)).await;
        }
        let memory = self.together.memory(key);
        let turn = self.turn(memory, |reply| {
            let what =
                AskText { text: wire::ask_text(ask, &self.client), ttl_ms: wire::ttl_ms(ask) };
            Seat::Ask(self.passenger(key, ask.claim.id, what, reply))
        });
        let flight = match turn {
            Turn::Alone(flight) => flight,
            Turn::With(answer) => match landed("acquire", answer).await? {
                Some(fence) => return Ok(Answer::Granted { fence }),
                None => None,
            },
        };
        // Boxed, so that those who go together do not carry it along.
        let answer = Box::pin(self.ask(ask)).await;
        drop(flight);
        memory.note(matches!(&answer, Ok(Answer::Busy(_))));
        answer
    }

    /// Gives up. A caller may poll once and never again, so a release that needs a connection first
    /// is sent by a task: otherwise it would withhold the key until the lease ends.
    pub(super) async fn release(
        self: &Arc<Self>,
        target: &Target,
        how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        if self.link.is_connected() {
            return self.release_now(target, how).await;
        }
        let (inner, target) = (Arc::clone(self), target.clone());
        let sent = tokio::spawn(async move { inner.release_now(&target, how).await });
        sent.await.map_err(|ended| Fault::transient("release", ended))?
    }

    /// Gives up, together with others if there are any.
    async fn release_now(
        self: &Arc<Self>,
        target: &Target,
        how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        let claim = match target {
            Target::Claim(claim) if how == ReleaseOptions::default() => claim,
            _ => return Box::pin(self.give_up(target, how)).await,
        };
        let memory = self.together.memory(&claim.key);
        let turn = self
            .turn(memory, |reply| Seat::Release(self.passenger(&claim.key, claim.id, (), reply)));
        let _flight = match turn {
            Turn::Alone(flight) => flight,
            Turn::With(answer) => match landed("release", answer).await? {
                Some(_) => return Ok(ReleaseOutcome::WasHeld),
                None => {
                    memory.note(true);
                    None
                }
            },
        };
        if self.is_usual_caller() {
            return Box::pin(self.give_up_hold(claim)).await;
        }
        Box::pin(self.give_up(target, how)).await
    }

    fn passenger<T>(&self, key: &Key, id: ClaimId, what: T, reply: Reply) -> Passenger<T> {
        Passenger { main: self.namespace.main(key), id, what, reply }
    }

    /// Whether a call goes by itself, or with others, among whom it gets this seat.
    fn turn(self: &Arc<Self>, memory: &Memory, seat: impl FnOnce(Reply) -> Seat) -> Turn<'_> {
        if self.namespace.fence_of_all().is_none() {
            return Turn::Alone(None);
        }
        if let Some(flight) = self.together.alone() {
            return Turn::Alone(Some(flight));
        }
        match Handle::try_current() {
            Ok(home) if !memory.is_busy() => {
                let (reply, answer) = oneshot::channel();
                // Written down before the gates are locked: many come at the same time.
                let seat = seat(reply);
                if lock(&self.together.gates).of(home.id()).wait(seat) {
                    home.spawn(fly_on(Slot::new(self, home.id())));
                }
                Turn::With(answer)
            }
            _ => Turn::Alone(None),
        }
    }
}

/// What those who went together hear. There is no deadline but that of the call: it runs on the
/// same runtime, so whoever can wait for it is able to hear that it failed.
async fn landed(action: &'static str, answer: Answered) -> Result<Option<u64>, Fault> {
    answer.await.map_err(|_| {
        Fault::transient(action, "the call was given up before its answer was heard")
    })?
}

/// A call that is under way by itself.
struct Flight<'a>(&'a Together);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        lock(&self.0.gates).land_alone();
    }
}

/// One of the calls that may be under way at once.
struct Slot {
    inner: Arc<Inner>,
    home: Id,
    free: bool,
    /// Who is in the call.
    seated: usize,
    /// Those were told what came of it.
    told: bool,
}

impl Slot {
    fn new(inner: &Arc<Inner>, home: Id) -> Self {
        Self { inner: Arc::clone(inner), home, free: false, seated: 0, told: false }
    }

    /// Those who leave now; if there are none, the slot is free.
    fn board(&mut self) -> Option<Cabin> {
        let mut gates = lock(&self.inner.together.gates);
        let gate = gates.of(self.home);
        let told = std::mem::take(&mut self.told);
        let cabin = if told {
            let one_thread = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
            gate.board_again(self.seated, one_thread)
        } else {
            gate.board()
        };
        self.seated = cabin.len();
        if cabin.len() == 0 {
            self.free = true;
            return None;
        }
        if gate.call() {
            drop(gates);
            tokio::spawn(fly_on(Slot::new(&self.inner, self.home)));
        }
        Some(cabin)
    }

    /// Sends one call and tells those who are in it. A fault means that nobody else gets through.
    async fn fly(&mut self, cabin: Cabin) -> Result<(), Fault> {
        let inner = &*self.inner;
        let (Some(fence), Some(first)) = (inner.namespace.fence_of_all(), cabin.ids().next())
        else {
            return Ok(());
        };
        let fill = |cmd: &mut Cmd| cabin.fill(cmd, fence);
        let answer = inner.link.try_eval("send many", &MANY, &fill).await;
        let numbers = for_all("send many", answer).and_then(|value| match value {
            Some(value) => inner.read(wire::many(first, cabin.counts(), &value)),
            None => Ok(Vec::new()),
        });
        let turn = lock(&inner.together.gates).of(self.home).may_tell();
        if let Some(turn) = turn {
            // The gate lives as long as this call, and hands over every turn.
            let _ = turn.await;
        }
        self.told = true;
        match numbers {
            Ok(numbers) => {
                // All who were granted have one fence; what those who let go hear is the same.
                numbers.iter().flatten().take(1).for_each(|fence| inner.link.seen.note(*fence));
                let mut numbers = numbers.into_iter();
                cabin.tell(|| Ok(numbers.next().flatten()));
                Ok(())
            }
            Err(fault) => {
                cabin.tell(|| Err(fault.clone()));
                Err(fault)
            }
        }
    }

    /// Nobody is going to send what waits: all hear of it and may ask again.
    fn give_up(&self, fault: &Fault) {
        loop {
            let cabin = lock(&self.inner.together.gates).of(self.home).fill_cabin();
            if cabin.len() == 0 {
                return;
            }
            cabin.tell(|| Err(fault.clone()));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.free {
            lock(&self.inner.together.gates).of(self.home).land(self.seated, self.told);
            // Only then: whoever comes from now on does not rely on this one any more.
            self.give_up(&Fault::transient("send", "the runtime that was to send it has ended"));
        }
    }
}

/// Sends those who wait, and then those who came meanwhile, until nobody does.
async fn fly_on(mut slot: Slot) {
    loop {
        // Whoever was just answered may have something to send right away.
        go_last().await;
        let Some(cabin) = slot.board() else { return };
        if let Err(fault) = slot.fly(cabin).await {
            slot.give_up(&fault);
        }
    }
}

/// Lets those go first who may run now. Unlike with tokio's `yield_now`, any thread of the runtime
/// may go on with it: this one may be about to run somebody who keeps it for long.
async fn go_last() {
    let mut went = false;
    poll_fn(|context| {
        if std::mem::replace(&mut went, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
