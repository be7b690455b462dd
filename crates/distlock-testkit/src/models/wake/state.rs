//! Clients, their connections and the store while a client waits to be woken.

use super::{WakeMistake, WakeModel};
use crate::models::book::{Book, BookGrant, BookReply, Number, Who};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WakePhase {
    Idle,
    Asking,
    Waiting,
    Holding,
    Leaving,
    Crashed,
}

/// What a client is about to do of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Duty {
    Nothing,
    Subscribe,
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Up {
    Ask,
    Look,
    Subscribe,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Down {
    Answer(BookReply),
    Subscribed,
    Push,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WakeClient {
    pub(super) phase: WakePhase,
    pub(super) duty: Duty,
    pub(super) connected: bool,
    pub(super) subscribed: bool,
    /// This is not its first connection.
    again: bool,
    /// Messages arrive in the order in which they were sent.
    pub(super) up: Vec<Up>,
    pub(super) down: Vec<Down>,
}

impl WakeClient {
    /// Nothing is on its way to or from it.
    pub(super) fn is_idle(&self) -> bool {
        self.up.is_empty() && self.down.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WakeWorld {
    pub(super) clients: Vec<WakeClient>,
    pub(super) book: Book,
    pub(super) breaks: u8,
    pub(super) crashes: u8,
}

/// Leases end only where a client has crashed, so their length is of no matter.
const LIVE: u8 = 1;

impl WakeWorld {
    pub(super) fn new(world: &WakeModel) -> Self {
        let client = WakeClient {
            phase: WakePhase::Idle,
            duty: Duty::Nothing,
            connected: true,
            subscribed: !world.late,
            again: false,
            up: Vec::new(),
            down: Vec::new(),
        };
        let clients = vec![client; usize::from(world.clients)];
        Self { clients, book: Book::default(), breaks: 0, crashes: 0 }
    }

    fn client(&mut self, who: Who) -> &mut WakeClient {
        &mut self.clients[usize::from(who)]
    }

    pub(super) fn ask(&mut self, who: Who) {
        let client = self.client(who);
        client.phase = WakePhase::Asking;
        client.up.push(Up::Ask);
    }

    pub(super) fn subscribe(&mut self, who: Who) {
        let client = self.client(who);
        client.duty = Duty::Nothing;
        client.up.push(Up::Subscribe);
    }

    pub(super) fn look(&mut self, who: Who) {
        let client = self.client(who);
        client.duty = Duty::Nothing;
        client.up.push(Up::Look);
    }

    pub(super) fn release(&mut self, who: Who) {
        let client = self.client(who);
        client.phase = WakePhase::Leaving;
        client.up.push(Up::Release);
    }

    pub(super) fn break_off(&mut self, who: Who) {
        self.breaks += 1;
        self.cut(who);
        self.client(who).again = true;
    }

    fn cut(&mut self, who: Who) {
        let client = self.client(who);
        (client.connected, client.subscribed) = (false, false);
        client.duty = Duty::Nothing;
        client.up.clear();
        client.down.clear();
    }

    pub(super) fn crash(&mut self, who: Who) {
        self.crashes += 1;
        self.cut(who);
        self.client(who).phase = WakePhase::Crashed;
    }

    /// A new connection subscribes first. What was under way is sent again; it is idempotent.
    pub(super) fn reconnect(&mut self, who: Who) {
        let client = self.client(who);
        client.connected = true;
        client.duty = Duty::Subscribe;
        match client.phase {
            WakePhase::Asking => client.up.push(Up::Ask),
            WakePhase::Leaving => client.up.push(Up::Release),
            _ => {}
        }
    }

    pub(super) fn serve(&mut self, who: Who, world: &WakeModel) {
        let request = self.client(who).up.remove(0);
        let tells_purge = world.mistake != Some(WakeMistake::PurgeTellsNobody);
        let (answer, granted, tells) = match request {
            Up::Subscribe => {
                let client = self.client(who);
                client.subscribed = true;
                client.down.push(Down::Subscribed);
                return;
            }
            Up::Ask => {
                let (reply, granted) = self.book.acquire(who, (LIVE, Some(LIVE)), None);
                (reply, granted, tells_purge)
            }
            Up::Look => {
                let (reply, granted) = self.book.renew(who, LIVE, None);
                (reply, granted, tells_purge)
            }
            Up::Release => {
                let granted = self.book.release(who, false, false, None);
                let tells = world.mistake != Some(WakeMistake::ReleaseTellsNobody);
                (BookReply::Released, granted, tells)
            }
        };
        self.client(who).down.push(Down::Answer(answer));
        for BookGrant { to, .. } in granted {
            let client = self.client(to);
            // A claim that is not subscribed does not learn of it.
            if tells && client.subscribed && client.connected {
                client.down.push(Down::Push);
            }
        }
    }

    pub(super) fn read(&mut self, who: Who, world: &WakeModel) {
        let client = self.client(who);
        match client.down.remove(0) {
            Down::Push if client.phase == WakePhase::Waiting => client.phase = WakePhase::Holding,
            Down::Push => {}
            Down::Subscribed => {
                let sleeps = match world.mistake {
                    Some(WakeMistake::SubscribeLast) => !client.again,
                    Some(WakeMistake::SleepOnAfterBreak) => client.again,
                    _ => false,
                };
                if client.phase == WakePhase::Waiting && !sleeps {
                    client.duty = Duty::Look;
                }
            }
            Down::Answer(reply) => match (client.phase, reply) {
                (WakePhase::Asking, BookReply::Waiting { .. }) => {
                    client.phase = WakePhase::Waiting;
                    if !client.subscribed {
                        client.duty = Duty::Subscribe;
                    }
                }
                (WakePhase::Asking | WakePhase::Waiting, BookReply::Held { .. }) => {
                    client.phase = WakePhase::Holding;
                }
                (WakePhase::Leaving, BookReply::Released) => client.phase = WakePhase::Idle,
                _ => {}
            },
        }
    }

    pub(super) fn broken(&self) -> Option<&'static str> {
        if self.clients.iter().filter(|client| client.phase == WakePhase::Holding).count() > 1 {
            return Some("two clients believe that they hold");
        }
        if self.book.holder.is_none() && self.book.live_waiter().is_some() {
            return Some("the key is free and a client waits");
        }
        let sleeper = self.book.live_holder().map(|who| &self.clients[usize::from(who)]);
        let sleeps = sleeper.is_some_and(|client| {
            client.phase == WakePhase::Waiting
                && client.connected
                && client.duty == Duty::Nothing
                && client.is_idle()
        });
        sleeps.then_some("a waiter holds, and nothing is on its way to tell it")
    }

    /// True if a client holds whose connection broke, while its predecessor is still leaving.
    pub(in crate::models) fn is_woken_after_break(&self) -> bool {
        let woken = |client: &WakeClient| client.again && client.phase == WakePhase::Holding;
        let leaves = |client: &WakeClient| client.phase == WakePhase::Leaving;
        self.clients.iter().any(woken) && self.clients.iter().any(leaves)
    }

    pub(super) fn renumber(&mut self) {
        let mut next: Number = 0;
        let mut old = Vec::new();
        self.numbers(&mut |number| old.push(*number));
        old.sort_unstable();
        old.dedup();
        self.numbers(&mut |number| {
            let rank = old.partition_point(|other| other <= number);
            *number = Number::try_from(rank).unwrap_or(Number::MAX);
            next = next.max(*number);
        });
        self.book.counter = next;
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(&mut Number)) {
        self.book.numbers(visit);
        for message in self.clients.iter_mut().flat_map(|client| &mut client.down) {
            match message {
                // Only the kind of an answer is read here.
                Down::Answer(BookReply::Held { fence }) => *fence = 0,
                Down::Answer(BookReply::Waiting { ticket, ahead }) => (*ticket, *ahead) = (0, 0),
                _ => {}
            }
        }
    }
}
