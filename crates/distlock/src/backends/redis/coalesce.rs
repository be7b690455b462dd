//! Calls of the same instant go out together: one script for many keys.
//!
//! A call that comes while none is under way goes by itself. Whoever comes meanwhile leaves with
//! all others of the same instant, half of all who are around at most, so that the server works on
//! one half while the other is here; and when many calls are under way, with all who came until one
//! of them was back. So one caller pays for one round trip and nothing else, and with many callers
//! the work of a call, here and at the server, is shared by all who are in it.
//!
//! Only the usual case goes together: a claim on the whole of a free key, and its release while
//! nobody waits. The script leaves everything else alone, and it is asked for again by itself.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use distlock_core::{Answer, Ask, ClaimId, Fault, How, Key, Outcome, Target};
use redis::Cmd;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::faults::{ends_connection, fault};
use super::script::MANY;
use super::{FENCE_LIFE_MS, Inner, wire};
use crate::sync::lock;

/// How many calls are under way by themselves before others go together.
const ALONE_MAX: usize = 1;

/// How many calls are under way before others wait for one to come back. More than go by
/// themselves, so that somebody is always there to send those who wait.
const FLIGHTS_MAX: usize = 16;

/// How many keys one script takes on. The server does nothing else meanwhile.
const SEATS_MAX: usize = 64;

/// The fewest that are worth a call of their own while others are under way.
const SEATS_MIN: usize = 8;

/// How many calls may be under way before one has to be worth it.
const SMALL_FLIGHTS_MAX: usize = 4;

/// How many keys, by hash, are remembered as wanted by several.
const BUSY_KEYS: usize = 1024;

/// The calls under way and those who wait for the next.
#[derive(Debug)]
pub(super) struct Together {
    gate: Mutex<Gate>,
    /// Keys that were not the usual case when they were last asked for.
    busy: Box<[AtomicBool]>,
}

#[derive(Debug, Default)]
struct Gate {
    flights: usize,
    /// Who is under way with others.
    seated: usize,
    asks: VecDeque<Passenger<AskText>>,
    releases: VecDeque<Passenger<()>>,
    /// Somebody is about to leave and takes along whoever comes until then.
    boarding: bool,
}

/// Somebody who waits to be sent with others. Hears a number, or none if the key is not the usual
/// case.
#[derive(Debug)]
struct Passenger<T> {
    main: String,
    id: ClaimId,
    what: T,
    reply: oneshot::Sender<Result<Option<u64>, Fault>>,
}

/// What of an ask is the same for most who ask at the same time.
#[derive(Debug, PartialEq, Eq)]
struct AskText {
    text: String,
    ttl_ms: u64,
}

/// Who wants to be sent with others.
enum Seat {
    Ask(Passenger<AskText>),
    Release(Passenger<()>),
}

/// How a call goes out.
enum Turn<'a> {
    /// By itself, and others wait until this is dropped.
    Alone(Option<Flight<'a>>),
    /// With others: here is what came of it.
    With(oneshot::Receiver<Result<Option<u64>, Fault>>),
}

impl Default for Together {
    fn default() -> Self {
        let busy = std::iter::repeat_with(AtomicBool::default).take(BUSY_KEYS).collect();
        Self { gate: Mutex::default(), busy }
    }
}

impl Together {
    /// A call by itself, if few are under way.
    fn alone(&self) -> Option<Flight<'_>> {
        let mut gate = lock(&self.gate);
        if gate.flights >= ALONE_MAX {
            return None;
        }
        gate.flights += 1;
        Some(Flight(self))
    }

    fn busy(&self, key: &Key) -> &AtomicBool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.busy[hasher.finish() as usize % BUSY_KEYS]
    }
}

impl Inner {
    /// Asks, together with others if there are any.
    pub(super) async fn acquire(self: &Arc<Self>, ask: &Ask) -> Result<Answer, Fault> {
        let key = &ask.claim.key;
        if !ask.is_exclusive() || ask.fence_floor.is_some() {
            return Box::pin(self.ask(ask)).await;
        }
        let turn = self.turn(key, |reply| {
            let what =
                AskText { text: wire::ask_text(ask, &self.client), ttl_ms: wire::ttl_ms(ask) };
            Seat::Ask(self.passenger(key, ask.claim.id, what, reply))
        });
        let flight = match turn {
            Turn::Alone(flight) => flight,
            Turn::With(answer) => match self.landed("acquire", answer).await? {
                Some(fence) => return Ok(Answer::Granted { fence }),
                None => None,
            },
        };
        if self.together.busy(key).load(Ordering::Relaxed) {
            // Whoever lets go of it goes first: many wait for that, and nobody for this.
            tokio::task::yield_now().await;
        }
        // Boxed, so that those who go together do not carry it along.
        let answer = Box::pin(self.ask(ask)).await;
        drop(flight);
        let wanted = matches!(&answer, Ok(Answer::Busy(_)));
        self.together.busy(key).store(wanted, Ordering::Relaxed);
        answer
    }

    /// Gives up, together with others if there are any.
    pub(super) async fn release(
        self: &Arc<Self>,
        target: &Target,
        how: How,
    ) -> Result<Outcome, Fault> {
        let claim = match target {
            Target::Claim(claim) if how == How::default() => claim,
            _ => return Box::pin(self.give_up(target, how)).await,
        };
        let turn = self.turn(&claim.key, |reply| {
            Seat::Release(self.passenger(&claim.key, claim.id, (), reply))
        });
        let _flight = match turn {
            Turn::Alone(flight) => flight,
            Turn::With(answer) => match self.landed("release", answer).await? {
                Some(_) => return Ok(Outcome::WasHeld),
                None => None,
            },
        };
        Box::pin(self.give_up(target, how)).await
    }

    /// What those who went together hear.
    async fn landed(
        &self,
        action: &'static str,
        answer: oneshot::Receiver<Result<Option<u64>, Fault>>,
    ) -> Result<Option<u64>, Fault> {
        match tokio::time::timeout(self.link.patience(), answer).await {
            Ok(Ok(heard)) => heard,
            Ok(Err(_)) => Err(Fault::transient(action, "the call was given up before it left")),
            Err(elapsed) => {
                // Whoever was about to leave lives on a runtime that does not turn: the next who
                // comes leaves instead.
                lock(&self.together.gate).boarding = false;
                Err(Fault::transient(action, elapsed))
            }
        }
    }

    fn passenger<T>(
        &self,
        key: &Key,
        id: ClaimId,
        what: T,
        reply: oneshot::Sender<Result<Option<u64>, Fault>>,
    ) -> Passenger<T> {
        Passenger { main: self.namespace.main(key), id, what, reply }
    }

    /// Whether a call goes by itself, or with others, among whom it gets this seat.
    fn turn(
        self: &Arc<Self>,
        key: &Key,
        seat: impl FnOnce(oneshot::Sender<Result<Option<u64>, Fault>>) -> Seat,
    ) -> Turn<'_> {
        if self.namespace.fence_of_all().is_none() {
            return Turn::Alone(None);
        }
        if let Some(flight) = self.together.alone() {
            return Turn::Alone(Some(flight));
        }
        match Handle::try_current() {
            Ok(home) if !self.together.busy(key).load(Ordering::Relaxed) => {
                let (reply, answer) = oneshot::channel();
                // Written down before the gate is locked: many come at the same time.
                let seat = seat(reply);
                if lock(&self.together.gate).wait(seat) {
                    home.spawn(fly_on(Slot::new(self)));
                }
                Turn::With(answer)
            }
            _ => Turn::Alone(None),
        }
    }
}

/// A call that is under way by itself.
struct Flight<'a>(&'a Together);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        lock(&self.0.gate).flights -= 1;
    }
}

impl Gate {
    /// Somebody waits from now on. True if somebody has to send him.
    fn wait(&mut self, seat: Seat) -> bool {
        match seat {
            Seat::Ask(passenger) => self.asks.push_back(passenger),
            Seat::Release(passenger) => self.releases.push_back(passenger),
        }
        self.call()
    }

    /// True if a call is to leave from now on.
    fn call(&mut self) -> bool {
        let leaves = !self.boarding && self.may_leave();
        if leaves {
            self.flights += 1;
            self.boarding = true;
        }
        leaves
    }

    /// Those who go into one call, first those who let go. Whoever has left meanwhile stays out.
    fn board(&mut self) -> Cabin {
        let all = self.seated + self.asks.len() + self.releases.len();
        let seats = all.div_ceil(2).clamp(SEATS_MIN, SEATS_MAX);
        let releases = board(&mut self.releases, seats, |_, _| true);
        // One ask is written for all: whoever asks for something else is next.
        let asks = board(&mut self.asks, seats - releases.len(), |one, other| one == other);
        Cabin { releases, asks }
    }

    /// A few may go with whatever there is. Beyond that it has to be worth a call of its own, or
    /// waits for one that comes back.
    fn may_leave(&self) -> bool {
        let flights_max = match self.asks.len() + self.releases.len() {
            0 => 0,
            1..SEATS_MIN => SMALL_FLIGHTS_MAX,
            _ => FLIGHTS_MAX,
        };
        self.flights < flights_max
    }
}

fn board<T>(
    waiting: &mut VecDeque<Passenger<T>>,
    seats: usize,
    together: impl Fn(&T, &T) -> bool,
) -> Vec<Passenger<T>> {
    let mut boarded: Vec<Passenger<T>> = Vec::with_capacity(waiting.len().min(seats));
    while boarded.len() < seats
        && let Some(next) = waiting.front()
        && boarded.first().is_none_or(|first| together(&first.what, &next.what))
    {
        boarded.extend(waiting.pop_front().filter(|passenger| !passenger.reply.is_closed()));
    }
    boarded
}

/// Those who go together.
struct Cabin {
    releases: Vec<Passenger<()>>,
    asks: Vec<Passenger<AskText>>,
}

impl Cabin {
    fn len(&self) -> usize {
        self.releases.len() + self.asks.len()
    }

    fn ids(&self) -> impl Iterator<Item = ClaimId> {
        let released = self.releases.iter().map(|release| release.id);
        released.chain(self.asks.iter().map(|ask| ask.id))
    }

    /// Adds `KEYS` and `ARGV` of many.lua.
    fn fill(&self, cmd: &mut Cmd, fence: &str, fence_life_ms: u64) {
        cmd.arg(self.len() + 1).arg(fence);
        let released = self.releases.iter().map(|release| &release.main);
        for main in released.chain(self.asks.iter().map(|ask| &ask.main)) {
            cmd.arg(main);
        }
        cmd.arg(self.releases.len()).arg(fence_life_ms);
        match self.asks.first().map(|ask| &ask.what) {
            Some(AskText { text, ttl_ms }) => cmd.arg(text).arg(*ttl_ms),
            None => cmd.arg("").arg(0),
        };
        let mut word = [b' '; 33];
        for id in self.ids() {
            word[..32].copy_from_slice(&wire::hex(id));
            cmd.arg(&word[..]);
        }
    }

    /// Tells everybody what came of it. Whoever has left meanwhile is cleaned up after as usual.
    fn tell(self, mut heard: impl FnMut() -> Result<Option<u64>, Fault>) {
        for passenger in self.releases {
            let _ = passenger.reply.send(heard());
        }
        for passenger in self.asks {
            let _ = passenger.reply.send(heard());
        }
    }
}

/// One of the calls that may be under way at once.
struct Slot {
    inner: Arc<Inner>,
    free: bool,
    /// Who is in the call.
    seated: usize,
}

impl Slot {
    fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner), free: false, seated: 0 }
    }

    /// Those who leave now; if there are none, the slot is free.
    fn board(&mut self) -> Option<Cabin> {
        let mut gate = lock(&self.inner.together.gate);
        gate.boarding = false;
        gate.seated -= std::mem::take(&mut self.seated);
        let cabin = gate.board();
        if cabin.len() == 0 {
            gate.flights -= 1;
            self.free = true;
            return None;
        }
        self.seated = cabin.len();
        gate.seated += self.seated;
        if gate.call() {
            drop(gate);
            tokio::spawn(fly_on(Slot::new(&self.inner)));
        }
        Some(cabin)
    }

    /// Nobody is going to send what waits: all hear of it and may ask again.
    fn give_up(&self, fault: &Fault) {
        loop {
            let cabin = lock(&self.inner.together.gate).board();
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
            {
                let mut gate = lock(&self.inner.together.gate);
                gate.flights -= 1;
                gate.seated -= self.seated;
                gate.boarding = false;
            }
            // Only then: whoever comes from now on does not rely on this one any more.
            self.give_up(&Fault::transient("send", "the runtime that was to send it has ended"));
        }
    }
}

/// Sends those who wait, and then those who came meanwhile, until nobody does.
async fn fly_on(mut slot: Slot) {
    loop {
        // Whoever was just answered may have something to send right away.
        tokio::task::yield_now().await;
        let Some(cabin) = slot.board() else { return };
        if let Err(fault) = fly(&slot.inner, cabin).await {
            slot.give_up(&fault);
        }
    }
}

async fn fly(inner: &Inner, cabin: Cabin) -> Result<(), Fault> {
    let (Some(fence), Some(first)) = (inner.namespace.fence_of_all(), cabin.ids().next()) else {
        return Ok(());
    };
    let fill = |cmd: &mut Cmd| cabin.fill(cmd, fence, FENCE_LIFE_MS);
    match inner.link.try_eval("send many", &MANY, &fill).await {
        Ok(Ok(value)) => match inner.read(wire::many(first, cabin.len(), &value)) {
            Ok(numbers) => {
                let mut numbers = numbers.into_iter();
                cabin.tell(|| Ok(numbers.next().flatten()));
                Ok(())
            }
            Err(fault) => {
                cabin.tell(|| Err(fault.clone()));
                Err(fault)
            }
        },
        Ok(Err(error)) if ends_connection(&error) => {
            let fault = fault("send many", error);
            cabin.tell(|| Err(fault.clone()));
            Err(fault)
        }
        // The server would not do it for all of them. Each hears for itself why.
        Ok(Err(_)) => {
            cabin.tell(|| Ok(None));
            Ok(())
        }
        Err(fault) => {
            cabin.tell(|| Err(fault.clone()));
            Err(fault)
        }
    }
}
