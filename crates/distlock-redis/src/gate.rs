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
///
/// Every runtime has a gate of its own: another one may not turn, and nobody shall wait for that.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// Calls by themselves.
    alone: usize,
    /// One for each runtime that sends something, and maybe some that nobody uses any more.
    all: Vec<(Id, Gate)>,
}

/// Those of one runtime who go with others.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Calls under way.
    flights: usize,
    /// Who is in them.
    seated: usize,
    asks: VecDeque<Passenger<AskText>>,
    releases: VecDeque<Passenger<()>>,
    /// A new call is about to leave and takes along whoever comes until then.
    boarding: bool,
    /// Calls that are back. Their passengers were told and may not have left again.
    back: usize,
    /// Calls that are back, too, and tell theirs when those have left.
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

impl Gates {
    /// True if a call goes by itself now, because few are under way. It has to land.
    pub(super) fn leave_alone(&mut self) -> bool {
        let flights: usize = self.all.iter().map(|(_, gate)| gate.flights).sum();
        let leaves = self.alone + flights < ALONE_MAX;
        self.alone += usize::from(leaves);
        leaves
    }

    /// A call that went by itself is over.
    pub(super) fn land_alone(&mut self) {
        self.alone -= 1;
    }

    /// The gate of a runtime.
    pub(super) fn of(&mut self, home: Id) -> &mut Gate {
        let at = self.all.iter().position(|(known, _)| *known == home).unwrap_or_else(|| {
            self.all.retain(|(_, gate)| gate.flights > 0 || gate.waiting() > 0);
            self.all.push((home, Gate::default()));
            self.all.len() - 1
        });
        &mut self.all[at].1
    }
}

impl Gate {
    /// Somebody waits from now on. True if a call has to send him.
    pub(super) fn wait(&mut self, seat: Seat) -> bool {
        match seat {
            Seat::Ask(passenger) => self.asks.push_back(passenger),
            Seat::Release(passenger) => self.releases.push_back(passenger),
        }
        self.call()
    }

    /// True if a call is to leave. It has to land.
    ///
    /// Whoever waits has a call under way, which takes him sooner or later. A further call has to
    /// be worth it.
    pub(super) fn call(&mut self) -> bool {
        let first = self.waiting() > 0 && self.flights == 0;
        let further = self.are_worth_it() && self.flights < FLIGHTS_MAX;
        let leaves = !self.boarding && (first || further);
        if leaves {
            self.flights += 1;
            self.boarding = true;
        }
        leaves
    }

    /// None if the passengers of a call that is back may be told now. Otherwise those of another
    /// were just told, and it is heard here when they have left: if they are many, all would leave
    /// together and be back together, and the server and this client would wait for each other in
    /// turn. The call has to board, or to land.
    pub(super) fn may_tell(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.seated > 2 * SEATS_MIN && self.back > 0 {
            let (tell, told) = oneshot::channel();
            self.to_tell.push_back(tell);
            return Some(told);
        }
        self.back += 1;
        None
    }

    /// Those who go into a new call. If there are none, it has landed.
    pub(super) fn board(&mut self) -> Cabin {
        self.boarding = false;
        self.fill_or_land(false)
    }

    /// Those who go into a call whose last passengers were told. If there are none, it has landed:
    /// also if those who wait are few and can go with another one. On a runtime of one thread that
    /// is any other that is back: it boards after this one.
    pub(super) fn board_again(&mut self, back: usize, one_thread: bool) -> Cabin {
        self.seated -= back;
        let another_boards = self.told() && one_thread;
        self.fill_or_land(another_boards)
    }

    /// A call is over without having boarded again; maybe it was only about to leave.
    pub(super) fn land(&mut self, seated: usize, told: bool) {
        self.boarding = false;
        self.seated -= seated;
        if told {
            self.told();
        }
        self.flights -= 1;
    }

    fn fill_or_land(&mut self, another_boards: bool) -> Cabin {
        let few = self.flights > 1 && self.waiting() < self.share();
        let cabin = if another_boards || few { Cabin::default() } else { self.fill_cabin() };
        self.seated += cabin.len();
        if cabin.len() == 0 {
            self.flights -= 1;
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
    /// meanwhile; otherwise the next may tell its own.
    fn told(&mut self) -> bool {
        self.back -= 1;
        if self.back > 0 {
            return true;
        }
        while let Some(tell) = self.to_tell.pop_front() {
            if tell.send(()).is_ok() {
                self.back = 1;
                break;
            }
        }
        false
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
    pub(super) fn fill(&self, cmd: &mut Cmd, fence: &str) {
        cmd.arg(self.len() + 1).arg(fence);
        let released = self.releases.iter().map(|release| &release.main);
        for main in released.chain(self.asks.iter().map(|ask| &ask.main)) {
            cmd.arg(main);
        }
        cmd.arg(self.releases.len());
        let mut word = [b' '; 33];
        for id in self.ids() {
            word[..32].copy_from_slice(wire::hex(id).as_bytes());
            cmd.arg(&word[..]);
        }
        if let Some(AskText { text, ttl_ms }) = self.asks.first().map(|ask| &ask.what) {
            cmd.arg(text).arg(*ttl_ms);
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
    fn come(gate: &mut Gate, many: usize) -> (Vec<Heard>, usize) {
        let mut called = 0;
        let heard = (0..many).map(|_| {
            let (reply, heard) = oneshot::channel();
            let id = ClaimId::random().unwrap();
            let seat = Seat::Release(Passenger { main: "k".to_owned(), id, what: (), reply });
            called += usize::from(gate.wait(seat));
            heard
        });
        (heard.collect(), called)
    }

    /// So many under way, and nobody waits.
    fn under_way(gate: &mut Gate, many: usize) -> Vec<Heard> {
        let (heard, _) = come(gate, many);
        while gate.waiting() > 0 {
            gate.board();
            gate.call();
        }
        heard
    }

    #[test]
    fn who_comes_while_somebody_is_about_to_leave_goes_along() {
        let mut gate = Gate::default();
        let (_heard, called) = come(&mut gate, 5);
        assert_eq!(called, 1);
        assert_eq!(gate.board().len(), 5);
    }

    #[test]
    fn a_call_takes_a_quarter_of_all() {
        let mut gate = Gate::default();
        let (_heard, _) = come(&mut gate, 60);
        for left in [45, 30, 15, 0] {
            assert_eq!(gate.board().len(), 15);
            assert_eq!(gate.waiting(), left);
            assert_eq!(gate.call(), left > 0);
        }
    }

    #[test]
    fn few_wait_for_another_call() {
        let mut gate = Gate::default();
        let _heard = under_way(&mut gate, 60);
        let (_few, called) = come(&mut gate, 5);
        assert_eq!(called, 0, "not worth a call of their own");
        assert!(gate.may_tell().is_none());
        assert_eq!(gate.board_again(15, false).len(), 0, "nor the one that is back");
        assert_eq!(gate.waiting(), 5);
        let (_more, called) = come(&mut gate, 12);
        assert_eq!(called, 1, "a quarter of all is");
        assert!(gate.may_tell().is_none());
        assert_eq!(gate.board_again(15, false).len(), 12, "a quarter of those who are left");
    }

    #[test]
    fn nobody_waits_for_a_call_of_another_runtime_or_goes_along_with_one() {
        let (mut gates, here, there) = (Gates::default(), runtime(), runtime());
        let (home, foreign) = (here.handle().id(), there.handle().id());
        let _theirs = under_way(gates.of(foreign), 30);
        let (_next, called) = come(gates.of(foreign), 1);
        assert_eq!(called, 0);
        // That runtime may not turn from here on.
        let (_ours, called) = come(gates.of(home), 2);
        assert_eq!(called, 1);
        assert_eq!(gates.of(home).board().len(), 2);
        assert_eq!(gates.of(foreign).waiting(), 1);
    }

    #[test]
    fn a_call_goes_by_itself_as_long_as_no_other_is_under_way() {
        let (mut gates, rt) = (Gates::default(), runtime());
        assert!(gates.leave_alone());
        assert!(!gates.leave_alone());
        gates.land_alone();
        let _heard = under_way(gates.of(rt.handle().id()), 1);
        assert!(!gates.leave_alone());
        gates.of(rt.handle().id()).land(1, false);
        assert!(gates.leave_alone());
    }

    #[test]
    fn a_runtime_that_sends_nothing_is_forgotten_when_another_comes() {
        let (mut gates, runtimes) = (Gates::default(), [runtime(), runtime(), runtime()]);
        let [idle, busy, new] = runtimes.each_ref().map(|runtime| runtime.handle().id());
        let _none = under_way(gates.of(idle), 0);
        let _some = under_way(gates.of(busy), 1);
        gates.of(new);
        assert_eq!(gates.all.iter().map(|(home, _)| *home).collect::<Vec<_>>(), [busy, new]);
    }

    #[test]
    fn large_calls_that_are_back_together_tell_one_after_the_other() {
        let mut gate = Gate::default();
        let _heard = under_way(&mut gate, 60);
        assert!(gate.may_tell().is_none());
        let mut second = gate.may_tell().expect("the first was just told");
        let gone = gate.may_tell();
        let mut third = gate.may_tell().expect("the first was just told");
        drop(gone);
        let (_back, _) = come(&mut gate, 15);
        assert_eq!(gate.board_again(15, false).len(), 15);
        assert!(second.try_recv().is_ok());
        assert!(third.try_recv().is_err());
        gate.land(15, true);
        assert!(third.try_recv().is_ok());
        gate.land(15, true);
        assert!(gate.may_tell().is_none(), "all turns are over");
    }

    #[test]
    fn small_calls_that_are_back_together_become_one_on_one_thread() {
        let mut gate = Gate::default();
        let (_two, _) = come(&mut gate, 2);
        gate.board();
        let (_other_two, called) = come(&mut gate, 2);
        assert_eq!(called, 1, "hardly anybody is around");
        gate.board();
        assert!(gate.may_tell().is_none());
        assert!(gate.may_tell().is_none());
        let (_back, _) = come(&mut gate, 2);
        assert_eq!(gate.board_again(2, true).len(), 0, "the other one boards after it");
        let (_back, _) = come(&mut gate, 2);
        assert_eq!(gate.board_again(2, true).len(), 4);
    }

    #[test]
    fn a_call_that_is_dropped_leaves_nothing_behind() {
        let mut gate = Gate::default();
        let (_heard, _) = come(&mut gate, 3);
        gate.land(0, false);
        let (_more, called) = come(&mut gate, 1);
        assert_eq!(called, 1, "nobody waits for the one that is gone");
        assert_eq!(gate.board().len(), 4);
        gate.land(4, false);
        assert_eq!((gate.flights, gate.around()), (0, 0));
    }
}
