//! Those who wait to be sent with others, and who goes into a call.

use std::collections::VecDeque;

use distlock_core::{ClaimId, Fault};
use redis::Cmd;
use tokio::sync::oneshot;

use super::wire;

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

/// Who waits, and how many calls are under way.
#[derive(Debug, Default)]
pub(super) struct Gate {
    flights: usize,
    /// Who is under way with others.
    seated: usize,
    asks: VecDeque<Passenger<AskText>>,
    releases: VecDeque<Passenger<()>>,
    /// Somebody is about to leave and takes along whoever comes until then.
    boarding: bool,
    /// The passengers of a call that is back were told, and it has not left again.
    telling: bool,
}

/// Where somebody hears a number, or none if the key is not the usual case.
pub(super) type Reply = oneshot::Sender<Result<Option<u64>, Fault>>;

/// Somebody who waits to be sent with others.
#[derive(Debug)]
pub(super) struct Passenger<T> {
    pub(super) main: String,
    pub(super) id: ClaimId,
    pub(super) what: T,
    pub(super) reply: Reply,
}

/// What of an ask is the same for most who ask at the same time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AskText {
    pub(super) text: String,
    pub(super) ttl_ms: u64,
}

/// Who wants to be sent with others.
pub(super) enum Seat {
    Ask(Passenger<AskText>),
    Release(Passenger<()>),
}

impl Gate {
    /// True if a call goes by itself now, because few are under way. It has to land.
    pub(super) fn leave_alone(&mut self) -> bool {
        let leaves = self.flights < ALONE_MAX;
        self.flights += usize::from(leaves);
        leaves
    }

    /// A call that went by itself is over.
    pub(super) fn land_alone(&mut self) {
        self.flights -= 1;
    }

    /// Somebody waits from now on. True if somebody has to send him.
    pub(super) fn wait(&mut self, seat: Seat) -> bool {
        match seat {
            Seat::Ask(passenger) => self.asks.push_back(passenger),
            Seat::Release(passenger) => self.releases.push_back(passenger),
        }
        self.call()
    }

    /// True if a call is to leave from now on. It has to land.
    pub(super) fn call(&mut self) -> bool {
        let leaves = !self.boarding && self.may_leave();
        if leaves {
            self.flights += 1;
            self.boarding = true;
        }
        leaves
    }

    /// True if the passengers of a call that is back may be told now. Not while those of another
    /// are, if they are many: they would all leave together and be back together, and the server
    /// and this client would wait for each other in turn. The call has to board, or to land.
    pub(super) fn may_tell(&mut self) -> bool {
        self.seated <= 2 * SEATS_MIN || !std::mem::replace(&mut self.telling, true)
    }

    /// Those who go into a call, whose last passengers are back. If there are none, it has landed.
    pub(super) fn board(&mut self, back: usize) -> Cabin {
        self.boarding = false;
        self.telling = false;
        self.seated -= back;
        let cabin = self.fill_cabin();
        self.seated += cabin.len();
        self.flights -= usize::from(cabin.len() == 0);
        cabin
    }

    /// A call is over without having boarded again.
    pub(super) fn land(&mut self, seated: usize) {
        self.flights -= 1;
        self.seated -= seated;
        self.boarding = false;
        self.telling = false;
    }

    /// Whoever was about to leave may never do: the next who comes leaves instead.
    pub(super) fn rely_on_nobody(&mut self) {
        self.boarding = false;
    }

    /// Those who go into one call, first those who let go. Whoever has left meanwhile stays out.
    pub(super) fn fill_cabin(&mut self) -> Cabin {
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
pub(super) struct Cabin {
    releases: Vec<Passenger<()>>,
    asks: Vec<Passenger<AskText>>,
}

impl Cabin {
    pub(super) fn len(&self) -> usize {
        self.releases.len() + self.asks.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ClaimId> {
        let released = self.releases.iter().map(|release| release.id);
        released.chain(self.asks.iter().map(|ask| ask.id))
    }

    /// Adds `KEYS` and `ARGV` of many.lua.
    pub(super) fn fill(&self, cmd: &mut Cmd, fence: &str, fence_life_ms: u64) {
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
    pub(super) fn tell(self, mut heard: impl FnMut() -> Result<Option<u64>, Fault>) {
        for passenger in self.releases {
            let _ = passenger.reply.send(heard());
        }
        for passenger in self.asks {
            let _ = passenger.reply.send(heard());
        }
    }
}
