//! All that can differ between two moments of the lock's world, and how each step changes it.

use super::client::{LockClient, LockNext, LockPhase};
use super::net::{LockMessage, RenewalSpan};
use super::{LockMistake, LockModel};
use crate::models::book::{Book, BookGrant, BookReply, Number, Ticks, Who};
use crate::models::twin::Twin;

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct LockWorld {
    pub(super) clients: Vec<LockClient>,
    /// A set, kept sorted: two equal messages are one that may arrive twice.
    pub(super) net: Vec<LockMessage>,
    pub(super) since_leap: Ticks,
    book: Book,
    /// The real law; not where something is wrong on purpose.
    twin: Option<Twin>,
    /// The highest fence that anybody has believed in.
    highest: Number,
    pub(super) broken: Option<&'static str>,
}

impl LockWorld {
    pub(super) fn new(world: &LockModel) -> Self {
        Self {
            clients: vec![LockClient::NEW; world.waits.len()],
            net: Vec::new(),
            since_leap: world.drift.unwrap_or_default(),
            book: Book::default(),
            twin: world.is_right().then(Twin::new),
            highest: 0,
            broken: None,
        }
    }

    fn client(&mut self, who: Who) -> &mut LockClient {
        &mut self.clients[usize::from(who)]
    }

    pub(super) fn is_leaving(&self, who: Who) -> bool {
        let about = |message: &LockMessage| match message {
            LockMessage::Release { .. } | LockMessage::Answer { .. } => message.who() == who,
            _ => false,
        };
        self.net.iter().any(about)
    }

    /// True if a client came to hold by a push.
    pub(in crate::models) fn is_pushed(&self) -> bool {
        let pushed = |client: &LockClient| {
            matches!(client.phase, LockPhase::Holding { ticket: Some(_), .. })
        };
        self.clients.iter().any(pushed)
    }

    /// True if a push has overtaken the answer to the ask that it grants.
    pub(in crate::models) fn is_overtaken(&self) -> bool {
        let early =
            |client: &LockClient| matches!(client.phase, LockPhase::Asking { early: Some(_), .. });
        self.clients.iter().any(early)
    }

    /// True if a client holds after another has lost.
    pub(in crate::models) fn is_succeeded(&self) -> bool {
        let lost = self.clients.iter().any(|client| client.phase == LockPhase::Lost);
        lost && self.clients.iter().any(LockClient::believes)
    }

    fn send(&mut self, message: LockMessage) {
        if let Err(index) = self.net.binary_search(&message) {
            self.net.insert(index, message);
        }
    }

    /// The client no longer waits for an answer: what has left still arrives at the store.
    fn abandon(&mut self, who: Who) {
        self.net.retain(
            |message| !matches!(message, LockMessage::Answer { who: to, .. } if *to == who),
        );
        for message in &mut self.net {
            match message {
                LockMessage::Acquire { who: from, heard }
                | LockMessage::Renew { who: from, heard, .. }
                    if *from == who =>
                {
                    *heard = false;
                }
                _ => {}
            }
        }
        self.net.sort_unstable();
        self.net.dedup();
    }

    pub(super) fn ask(&mut self, who: Who) {
        self.abandon(who);
        let client = self.client(who);
        let mut kept = None;
        if let LockPhase::Asking { early, .. } = client.phase {
            client.doubtful = true;
            kept = early;
        }
        client.phase = LockPhase::Asking { sent: 0, early: kept };
        self.send(LockMessage::Acquire { who, heard: true });
    }

    pub(super) fn renew(&mut self, who: Who) {
        let span = match &mut self.client(who).phase {
            LockPhase::Waiting { beat, .. } => {
                *beat = Some(0);
                RenewalSpan::Place
            }
            LockPhase::Holding { call, .. } => {
                *call = Some((0, RenewalSpan::Ttl));
                RenewalSpan::Ttl
            }
            _ => return,
        };
        self.send(LockMessage::Renew { who, span, heard: true });
    }

    pub(super) fn forget(&mut self, who: Who) {
        self.abandon(who);
        match &mut self.client(who).phase {
            LockPhase::Waiting { beat, .. } => *beat = None,
            LockPhase::Holding { call, .. } => *call = None,
            _ => {}
        }
    }

    pub(super) fn give_up(&mut self, who: Who, world: &LockModel) {
        self.abandon(who);
        let client = self.client(who);
        client.doubtful |= matches!(client.phase, LockPhase::Asking { .. });
        let waited = matches!(client.phase, LockPhase::Waiting { .. } | LockPhase::Asking { .. });
        client.phase = LockPhase::Leaving { waited };
        self.send_release(who, world);
    }

    pub(super) fn send_release(&mut self, who: Who, world: &LockModel) {
        let client = self.client(who);
        let bury = client.doubtful && world.mistake != Some(LockMistake::NoBurial);
        let LockPhase::Leaving { waited } = client.phase else { return };
        self.send(LockMessage::Release { who, bury, waited });
    }

    pub(super) fn tick(&mut self, world: &LockModel) {
        let oldest = world.ttl.max(world.place);
        self.clients.iter_mut().for_each(|client| client.tick(oldest));
        self.since_leap = (self.since_leap + 1).min(world.drift.unwrap_or_default());
        self.book.tick();
        self.twin.iter_mut().for_each(Twin::tick);
    }

    pub(super) fn leap(&mut self) {
        self.since_leap = 0;
        self.book.tick();
        self.twin.iter_mut().for_each(Twin::tick);
    }

    pub(super) fn arrive(&mut self, message: LockMessage, world: &LockModel) {
        match message {
            LockMessage::Acquire { who, heard } => self.serve_ask(who, heard, world),
            LockMessage::Renew { who, span, heard } => {
                let ticks = if span == RenewalSpan::Place { world.place } else { world.ttl };
                let answer = self.book.renew(who, ticks, world.flaw);
                let same = self.twin.as_mut().is_none_or(|twin| twin.renew(who, ticks, &answer));
                self.served(who, answer, heard, same);
            }
            LockMessage::Release { who, bury, waited } => {
                let known = self.book.knows(who);
                let granted = self.book.release(who, bury, waited, world.flaw);
                let twin = self.twin.as_mut();
                let same = twin.is_none_or(|twin| twin.release(who, bury, known, &granted));
                let leaving = matches!(self.client(who).phase, LockPhase::Leaving { .. });
                self.served(who, (BookReply::Released, granted), leaving, same);
            }
            LockMessage::Answer { who, reply } => {
                // A second answer to the same call belongs to no client.
                if world.mistake != Some(LockMistake::AnyAnswer) {
                    self.abandon(who);
                }
                let next = self.client(who).answered(reply, world);
                self.heard(who, next, world);
            }
            LockMessage::Push { who, ticket, fence } => {
                let next = self.client(who).pushed(ticket, fence, world);
                self.heard(who, next, world);
            }
        }
    }

    fn serve_ask(&mut self, who: Who, heard: bool, world: &LockModel) {
        let first = self.book.live_waiter();
        let held = self.book.live_holder() == Some(who);
        let place = world.waits[usize::from(who)].then_some(world.place);
        let answer = self.book.acquire(who, (world.ttl, place), world.flaw);
        let twin = self.twin.as_mut();
        let same = twin.is_none_or(|twin| twin.acquire(who, (world.ttl, place), &answer));
        let got = matches!(answer.0, BookReply::Held { .. }) && !held;
        if got && first.is_some_and(|first| first != who) {
            self.broken = Some("a newcomer overtakes a waiter");
        }
        self.served(who, answer, heard, same);
    }

    fn served(
        &mut self,
        who: Who,
        (reply, granted): (BookReply, Vec<BookGrant>),
        heard: bool,
        same: bool,
    ) {
        if heard {
            self.send(LockMessage::Answer { who, reply });
        }
        for BookGrant { to, ticket, fence } in granted {
            self.send(LockMessage::Push { who: to, ticket, fence });
        }
        if !same {
            self.broken = Some("the law of the model differs from the real one");
        }
    }

    fn heard(&mut self, who: Who, next: LockNext, world: &LockModel) {
        match next {
            LockNext::Nothing => {}
            LockNext::AskAgain => self.ask(who),
            LockNext::GiveUp => self.give_up(who, world),
        }
        if let LockPhase::Holding { fence, .. } = self.client(who).phase {
            if fence < self.highest {
                self.broken = Some("fences go back");
            }
            self.highest = self.highest.max(fence);
        }
    }

    /// The rule that this state breaks by itself. What only a right client promises is looked at
    /// where nothing is wrong on purpose, so that mutants show the harm and not the slip.
    pub(super) fn breaks(&self, strict: bool) -> Option<&'static str> {
        let mut believers =
            (0..).zip(&self.clients).filter(|(_, client)| client.believes()).map(|(who, _)| who);
        let (first, second) = (believers.next(), believers.next());
        if second.is_some() {
            return Some("two clients believe that they hold");
        }
        if self.book.holder.is_none() && self.book.live_waiter().is_some() {
            return Some("the key is free and a client waits");
        }
        let gone = (0..).zip(&self.clients).filter(|(_, client)| client.phase == LockPhase::Gone);
        if gone.map(|(who, _)| who).any(|who: Who| self.book.knows(who)) {
            return Some("a claim that was given up is still at the store");
        }
        if strict && first.is_some_and(|who| self.book.live_holder() != Some(who)) {
            return Some("a client believes in a lease that has ended");
        }
        None
    }

    /// Replaces all numbers by their ranks: only their order and equality decide anything.
    pub(super) fn renumber(&mut self) {
        let mut old = Vec::with_capacity(8);
        self.numbers(&mut |number| {
            if *number > 0 && !old.contains(number) {
                old.push(*number);
            }
        });
        old.sort_unstable();
        let count = Number::try_from(old.len()).unwrap_or(Number::MAX);
        if old.last().is_none_or(|last| *last == count) && self.book.counter == count {
            return;
        }
        if let Some(twin) = &mut self.twin {
            twin.renumber(&old);
        }
        self.numbers(&mut |number| {
            let rank = old.partition_point(|other| other <= number);
            *number = Number::try_from(rank).unwrap_or(Number::MAX);
        });
        self.book.counter = count;
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(&mut Number)) {
        self.book.numbers(visit);
        self.clients.iter_mut().for_each(|client| client.numbers(visit));
        self.net.iter_mut().for_each(|message| message.numbers(visit));
        visit(&mut self.highest);
    }
}
