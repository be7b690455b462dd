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

/// How many calls all who are around share: those that the server works on, one on its way to it,
/// and those whose passengers are here. With two, the server and this client wait for each other.
const SHARES: usize = 4;

/// How many keys one script takes on. The server does nothing else meanwhile.
const SEATS_MAX: usize = 64;

/// The fewest seats of a call.
const SEATS_MIN: usize = 8;

/// The fewest that are worth a further call, unless hardly anybody is around.
const WORTH_IT: usize = 6;

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
    /// A new call of this runtime is about to leave and takes along whoever comes until then.
    boarding: Option<Id>,
    /// Calls that are back: the runtime of each. Their passengers were told and may not have left
    /// again.
    back: Vec<Id>,
    /// Calls that are back, too, and tell theirs when those have left.
    to_tell: VecDeque<(Id, oneshot::Sender<()>)>,
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
    ///
    /// Whoever waits has a call of his own runtime under way, which takes him sooner or later:
    /// another runtime may not turn. A further call has to be worth it.
    pub(super) fn call(&mut self, home: Id) -> bool {
        let first = self.waiting() > 0 && !self.flights.contains(&home);
        let further = self.are_worth_it() && self.under_way() < FLIGHTS_MAX;
        let leaves = self.boarding != Some(home) && (first || further);
        if leaves {
            self.flights.push(home);
            self.boarding = Some(home);
        }
        leaves
    }

    /// None if the passengers of a call that is back may be told now. Otherwise those of another
    /// were just told, and it is heard here when they have left: if they are many, all would leave
    /// together and be back together, and the server and this client would wait for each other in
    /// turn. The call has to board, or to land.
    pub(super) fn may_tell(&mut self, home: Id) -> Option<oneshot::Receiver<()>> {
        // Another runtime may not turn.
        if self.seated > 2 * SEATS_MIN && self.back.contains(&home) {
            let (tell, told) = oneshot::channel();
            self.to_tell.push_back((home, tell));
            return Some(told);
        }
        self.back.push(home);
        None
    }

    /// Those who go into a new call. If there are none, it has landed.
    pub(super) fn board(&mut self, home: Id) -> Cabin {
        self.boarding = None;
        self.fill_or_land(home, false)
    }

    /// Those who go into a call whose last passengers were told. If there are none, it has landed:
    /// also if those who wait are few and can go with another one. On a runtime of one thread that
    /// is any other that is back: it boards after this one.
    pub(super) fn board_again(&mut self, home: Id, back: usize, one_thread: bool) -> Cabin {
        self.seated -= back;
        let another_boards = self.told(home) && one_thread;
        self.fill_or_land(home, another_boards)
    }

    /// A call is over without having boarded again.
    pub(super) fn land(&mut self, home: Id, seated: usize, told: bool) {
        self.boarding = self.boarding.filter(|boarding| *boarding != home);
        self.seated -= seated;
        if told {
            self.told(home);
        }
        forget(&mut self.flights, home);
    }

    fn fill_or_land(&mut self, home: Id, another_boards: bool) -> Cabin {
        let others = self.flights.iter().filter(|flight| **flight == home).count() > 1;
        let few = others && self.waiting() < self.share();
        let cabin = if another_boards || few { Cabin::default() } else { self.fill_cabin() };
        self.seated += cabin.len();
        if cabin.len() == 0 {
            forget(&mut self.flights, home);
        }
        cabin
    }

    /// Those who go into one call, first those who let go. Whoever has left meanwhile stays out.
    pub(super) fn fill_cabin(&mut self) -> Cabin {
        let seats = self.share().max(SEATS_MIN);
        let releases = board(&mut self.releases, seats, |_, _| true);
        // One ask is written for all: whoever asks for something else is next.
        let asks = board(&mut self.asks, seats - releases.len(), |one, other| one == other);
        Cabin { releases, asks }
    }

    fn under_way(&self) -> usize {
        self.alone + self.flights.len()
    }

    fn waiting(&self) -> usize {
        self.asks.len() + self.releases.len()
    }

    fn around(&self) -> usize {
        self.seated + self.waiting()
    }

    /// How many of all who are around make up a call.
    fn share(&self) -> usize {
        self.around().div_ceil(SHARES).min(SEATS_MAX)
    }

    /// True if those who wait are worth a call although others are under way.
    fn are_worth_it(&self) -> bool {
        let least = if self.around() < SEATS_MIN { 1 } else { WORTH_IT };
        self.waiting() >= self.share().max(least)
    }

    /// A call that is back leaves or is over. True if the passengers of another one were told
    /// meanwhile; otherwise the next of its runtime may tell its own.
    fn told(&mut self, home: Id) -> bool {
        forget(&mut self.back, home);
        if self.back.contains(&home) {
            return true;
        }
        while let Some(at) = self.to_tell.iter().position(|(waits, _)| *waits == home)
            && let Some((_, tell)) = self.to_tell.remove(at)
        {
            if tell.send(()).is_ok() {
                self.back.push(home);
                break;
            }
        }
        false
    }
}

/// Takes one call of that runtime off the list.
fn forget(calls: &mut Vec<Id>, home: Id) {
    if let Some(at) = calls.iter().position(|call| *call == home) {
        calls.swap_remove(at);
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

    /// How many let go, and how many ask.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.releases.len(), self.asks.len())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ClaimId> {
        let released = self.releases.iter().map(|release| release.id);
        released.chain(self.asks.iter().map(|ask| ask.id))
    }

    /// Adds `KEYS` and `ARGV` of many_names.lua.
    pub(super) fn fill(&self, cmd: &mut Cmd) {
        cmd.arg(self.len());
        let released = self.releases.iter().map(|release| &release.main);
        for main in released.chain(self.asks.iter().map(|ask| &ask.main)) {
            cmd.arg(main);
        }
        cmd.arg(self.releases.len());
        match self.asks.first().map(|ask| &ask.what) {
            Some(AskText { text, ttl_ms }) => cmd.arg(text).arg(*ttl_ms),
            None => cmd.arg("").arg(0),
        };
        let mut word = [b' '; 33];
        for id in self.ids() {
            word[..32].copy_from_slice(wire::hex(id).as_bytes());
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

    /// So many under way from this runtime, and nobody waits.
    fn under_way(gate: &mut Gate, many: usize, home: Id) -> Vec<Heard> {
        let (heard, _) = come(gate, many, home);
        while gate.waiting() > 0 {
            gate.board(home);
            gate.call(home);
        }
        heard
    }

    #[test]
    fn who_comes_while_somebody_is_about_to_leave_goes_along() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_heard, called) = come(&mut gate, 5, home);
        assert_eq!(called, 1);
        assert_eq!(gate.board(home).len(), 5);
    }

    #[test]
    fn a_call_takes_a_quarter_of_all() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_heard, _) = come(&mut gate, 60, home);
        for left in [45, 30, 15, 0] {
            assert_eq!(gate.board(home).len(), 15);
            assert_eq!(gate.waiting(), left);
            assert_eq!(gate.call(home), left > 0);
        }
    }

    #[test]
    fn few_wait_for_another_call_of_their_runtime() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let _heard = under_way(&mut gate, 60, home);
        let (_few, called) = come(&mut gate, 5, home);
        assert_eq!(called, 0, "not worth a call of their own");
        assert!(gate.may_tell(home).is_none());
        assert_eq!(gate.board_again(home, 15, false).len(), 0, "nor the one that is back");
        assert_eq!(gate.waiting(), 5);
        let (_more, called) = come(&mut gate, 12, home);
        assert_eq!(called, 1, "a quarter of all is");
        assert!(gate.may_tell(home).is_none());
        assert_eq!(gate.board_again(home, 15, false).len(), 12, "a quarter of those who are left");
    }

    #[test]
    fn nobody_waits_for_the_call_of_another_runtime_or_for_one_that_went_by_itself() {
        let (mut gate, here, there) = (Gate::default(), runtime(), runtime());
        let (home, foreign) = (here.handle().id(), there.handle().id());
        assert!(gate.leave_alone());
        let _theirs = under_way(&mut gate, 30, foreign);
        let (_next, called) = come(&mut gate, 1, foreign);
        assert_eq!(called, 0);
        // That runtime may not turn from here on.
        let (_ours, called) = come(&mut gate, 2, home);
        assert_eq!(called, 1);
        assert_eq!(gate.board(home).len(), 3);
    }

    #[test]
    fn somebody_about_to_leave_from_another_runtime_is_not_relied_on() {
        let (mut gate, here, there) = (Gate::default(), runtime(), runtime());
        let (home, foreign) = (here.handle().id(), there.handle().id());
        let (_theirs, called) = come(&mut gate, 1, foreign);
        assert_eq!(called, 1);
        let (_ours, called) = come(&mut gate, 1, home);
        assert_eq!(called, 1);
    }

    #[test]
    fn large_calls_that_are_back_together_tell_one_after_the_other() {
        let (mut gate, here, there) = (Gate::default(), runtime(), runtime());
        let (home, foreign) = (here.handle().id(), there.handle().id());
        let _heard = under_way(&mut gate, 60, home);
        assert!(gate.may_tell(home).is_none());
        let mut second = gate.may_tell(home).expect("the first was just told");
        let gone = gate.may_tell(home);
        let mut third = gate.may_tell(home).expect("the first was just told");
        drop(gone);
        assert!(gate.may_tell(foreign).is_none(), "a runtime that does not turn holds nobody up");
        let (_back, _) = come(&mut gate, 15, home);
        assert_eq!(gate.board_again(home, 15, false).len(), 15);
        assert!(second.try_recv().is_ok());
        assert!(third.try_recv().is_err());
        gate.land(home, 15, true);
        assert!(third.try_recv().is_ok());
        gate.land(home, 15, true);
        assert!(gate.may_tell(home).is_none(), "all turns are over");
    }

    #[test]
    fn small_calls_that_are_back_together_become_one_on_one_thread() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_two, _) = come(&mut gate, 2, home);
        gate.board(home);
        let (_other_two, called) = come(&mut gate, 2, home);
        assert_eq!(called, 1, "hardly anybody is around");
        gate.board(home);
        assert!(gate.may_tell(home).is_none());
        assert!(gate.may_tell(home).is_none());
        let (_back, _) = come(&mut gate, 2, home);
        assert_eq!(gate.board_again(home, 2, true).len(), 0, "the other one boards after it");
        let (_back, _) = come(&mut gate, 2, home);
        assert_eq!(gate.board_again(home, 2, true).len(), 4);
    }

    #[test]
    fn a_call_that_is_dropped_leaves_nothing_behind() {
        let (mut gate, rt) = (Gate::default(), runtime());
        let home = rt.handle().id();
        let (_heard, _) = come(&mut gate, 3, home);
        gate.land(home, 0, false);
        let (_more, called) = come(&mut gate, 1, home);
        assert_eq!(called, 1, "nobody waits for the one that is gone");
        assert_eq!(gate.board(home).len(), 4);
        gate.land(home, 4, false);
        assert_eq!((gate.under_way(), gate.around()), (0, 0));
    }
}
