//! Those who wait to be sent with others, and who goes into a call.

use std::collections::VecDeque;

use distlock_core::{ClaimId, Fault};
use redis::Cmd;
use tokio::runtime::Id;
use tokio::sync::oneshot;

use super::wire;

/// How many calls are under way by themselves before others go together.
const ALONE_MAX: usize = 1;

/// How many calls are under way before others wait for one to come back. More than go by
/// themselves, so that somebody is always there to send those who wait.
const FLIGHTS_MAX: usize = 16;

/// How many calls all who are around share: one that the server works on, one on its way to it, and
/// one whose passengers are here. With two, the server and this client wait for each other.
const SHARES: usize = 3;

/// How many keys one script takes on. The server does nothing else meanwhile.
const SEATS_MAX: usize = 64;

/// The fewest that are worth a further call while others are under way.
const SEATS_MIN: usize = 8;

/// How many calls may be under way before a further one has to be worth it.
const SMALL_FLIGHTS_MAX: usize = 4;

/// Who waits, and how many calls are under way.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Calls by themselves.
    alone: usize,
    /// Calls with others: the runtime of each.
    flights: Vec<Id>,
    /// Who is under way with others.
    seated: usize,
    asks: VecDeque<Passenger<AskText>>,
    releases: VecDeque<Passenger<()>>,
    /// Somebody is about to leave and takes along whoever comes until then.
    boarding: bool,
    /// The runtime of a call that is back, whose passengers were told and may not have left again.
    telling: Option<Id>,
    /// Calls of that runtime that are back, too, and tell theirs after it.
    to_tell: VecDeque<oneshot::Sender<()>>,
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
        let leaves = self.under_way() < ALONE_MAX;
        self.alone += usize::from(leaves);
        leaves
    }

    /// A call that went by itself is over.
    pub(super) fn land_alone(&mut self) {
        self.alone -= 1;
    }

    /// Somebody waits from now on. True if a call from this runtime has to send him.
    pub(super) fn wait(&mut self, seat: Seat, home: Id) -> bool {
        match seat {
            Seat::Ask(passenger) => self.asks.push_back(passenger),
            Seat::Release(passenger) => self.releases.push_back(passenger),
        }
        self.call(home)
    }

    /// True if a call is to leave from this runtime. It has to land.
    pub(super) fn call(&mut self, home: Id) -> bool {
        let leaves = !self.boarding && self.may_leave();
        if leaves {
            self.flights.push(home);
            self.boarding = true;
        }
        leaves
    }

    /// None if the passengers of a call that is back may be told now. Otherwise those of another
    /// were just told, and it is heard here when they have left: all would leave together and be
    /// back together, and the server and this client would wait for each other in turn. The call
    /// has to board, or to land.
    pub(super) fn may_tell(&mut self, home: Id) -> Option<oneshot::Receiver<()>> {
        let few = self.seated <= 2 * SEATS_MIN;
        match self.telling {
            _ if few => None,
            Some(other) if other == home => {
                let (tell, told) = oneshot::channel();
                self.to_tell.push_back(tell);
                Some(told)
            }
            // That one may belong to a runtime that does not turn.
            Some(_) => None,
            None => {
                self.telling = Some(home);
                None
            }
        }
    }

    /// Those who go into a call, whose last passengers are back. If there are none, it has landed:
    /// also if those who wait are few and can go with another call of the same runtime.
    pub(super) fn board(&mut self, home: Id, back: usize) -> Cabin {
        self.boarding = false;
        self.seated -= back;
        self.told();
        let others = self.flights.iter().filter(|flight| **flight == home).count() > 1;
        if others && self.waiting() < self.share() {
            self.forget(home);
            return Cabin::default();
        }
        let cabin = self.fill_cabin();
        self.seated += cabin.len();
        if cabin.len() == 0 {
            self.forget(home);
        }
        cabin
    }

    /// A call is over without having boarded again.
    pub(super) fn land(&mut self, home: Id, seated: usize) {
        self.boarding = false;
        self.seated -= seated;
        self.told();
        self.forget(home);
    }

    /// Whoever was about to leave may never do: the next who comes leaves instead.
    pub(super) fn rely_on_nobody(&mut self) {
        self.boarding = false;
    }

    /// Those who go into one call, first those who let go. Whoever has left meanwhile stays out.
    pub(super) fn fill_cabin(&mut self) -> Cabin {
        let seats = self.share().max(SEATS_MIN);
        let releases = board(&mut self.releases, seats, |_, _| true);
        // One ask is written for all: whoever asks for something else is next.
        let asks = board(&mut self.asks, seats - releases.len(), |one, other| one == other);
        Cabin { releases, asks }
    }

    /// A few may go with whatever there is. Beyond that it has to be worth a call of its own, or
    /// waits for one that comes back.
    fn may_leave(&self) -> bool {
        let flights_max = match self.waiting() {
            0 => 0,
            waiting if waiting < self.share().max(SEATS_MIN) => SMALL_FLIGHTS_MAX,
            _ => FLIGHTS_MAX,
        };
        self.under_way() < flights_max
    }

    fn under_way(&self) -> usize {
        self.alone + self.flights.len()
    }

    fn waiting(&self) -> usize {
        self.asks.len() + self.releases.len()
    }

    /// How many of all who are around make up a call.
    fn share(&self) -> usize {
        (self.seated + self.waiting()).div_ceil(SHARES).min(SEATS_MAX)
    }

    /// One call of that runtime is not under way any more.
    fn forget(&mut self, home: Id) {
        if let Some(at) = self.flights.iter().position(|flight| *flight == home) {
            self.flights.swap_remove(at);
        }
    }

    /// The passengers of a call have left again: the next may tell its own.
    fn told(&mut self) {
        let next =
            std::iter::from_fn(|| self.to_tell.pop_front()).any(|tell| tell.send(()).is_ok());
        self.telling = self.telling.filter(|_| next);
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
#[derive(Default)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::{Builder, Runtime};

    type Heard = oneshot::Receiver<Result<Option<u64>, Fault>>;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    /// So many more who let go. Their receivers have to live as long as they are to be sent.
    fn come(gate: &mut Gate, many: usize, home: Id) -> (Vec<Heard>, usize) {
        let mut called = 0;
        let heard = (0..many).map(|_| {
            let (reply, heard) = oneshot::channel();
            let id = ClaimId::random().unwrap();
            let seat = Seat::Release(Passenger { main: "k".to_owned(), id, what: (), reply });
            called += usize::from(gate.wait(seat, home));
            heard
        });
        (heard.collect(), called)
    }

    #[test]
    fn who_comes_while_somebody_is_about_to_leave_goes_along() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_heard, called) = come(&mut gate, 5, home);
        assert_eq!(called, 1);
        assert_eq!(gate.board(home, 0).len(), 5);
    }

    #[test]
    fn a_call_takes_a_third_of_all() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_heard, _) = come(&mut gate, 60, home);
        for left in [40, 20, 0] {
            assert_eq!(gate.board(home, 0).len(), 20);
            assert_eq!(gate.waiting(), left);
            assert_eq!(gate.call(home), left > 0);
        }
    }

    #[test]
    fn few_wait_for_another_call_of_their_runtime() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_heard, _) = come(&mut gate, 60, home);
        for _ in 0..3 {
            gate.board(home, 0);
            gate.call(home);
        }
        let (_few, called) = come(&mut gate, 5, home);
        assert_eq!(called, 1, "three are under way: one more may go with whatever there is");
        assert_eq!(gate.board(home, 20).len(), 0, "too few, and others are under way");
        assert_eq!(gate.waiting(), 5);
        let (_more, _) = come(&mut gate, 12, home);
        assert_eq!(gate.board(home, 20).len(), 13, "a third of 37, with the next that is back");
    }

    #[test]
    fn nobody_waits_for_the_call_of_another_runtime_or_for_one_that_went_by_itself() {
        let (mut gate, here, there) = (Gate::default(), runtime(), runtime());
        let (home, foreign) = (here.handle().id(), there.handle().id());
        let (_theirs, _) = come(&mut gate, 30, foreign);
        assert!(gate.board(foreign, 0).len() > 0);
        assert!(gate.board(foreign, 0).len() > 0);
        let (_ours, called) = come(&mut gate, 2, home);
        assert_eq!(called, 1);
        assert!(gate.board(home, 0).len() > 0, "that runtime may not turn");

        let mut gate = Gate::default();
        assert!(gate.leave_alone());
        let (_ours, called) = come(&mut gate, 1, home);
        assert_eq!(called, 1);
        assert_eq!(gate.board(home, 0).len(), 1, "nobody boards the other");
    }

    #[test]
    fn calls_that_are_back_together_tell_one_after_the_other() {
        let (mut gate, here, there) = (Gate::default(), runtime(), runtime());
        let (home, foreign) = (here.handle().id(), there.handle().id());
        let (_heard, _) = come(&mut gate, 60, home);
        gate.board(home, 0);
        gate.call(home);
        gate.board(home, 0);
        assert!(gate.may_tell(home).is_none());
        let mut second = gate.may_tell(home).expect("the first was just told");
        let gone = gate.may_tell(home);
        let mut third = gate.may_tell(home).expect("the first was just told");
        drop(gone);
        assert!(gate.may_tell(foreign).is_none(), "a runtime that does not turn holds nobody up");
        gate.board(home, 20);
        assert!(second.try_recv().is_ok());
        assert!(third.try_recv().is_err());
        gate.land(home, 20);
        assert!(third.try_recv().is_ok());
    }
}
