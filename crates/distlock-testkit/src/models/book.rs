//! The law for one mutex, small enough to be hashed and to be broken on purpose.
//!
//! Time is what is left of a lease, and numbers are ranks, so that states which behave alike are
//! equal. A [`Twin`](super::twin::Twin) runs the real law beside it and compares every answer.

use std::fmt;

/// A length of time in steps of the models' clock.
pub(crate) type Ticks = u8;

/// Who asks: the index of a client, which has one claim.
pub(crate) type Who = u8;

/// A fence or a ticket.
pub(crate) type Number = u8;

/// A way in which the law could have been written wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A release frees the key and leaves the rest to the next client.
    ReleaseAdmitsNobody,
    /// What has ended is dropped, and no claim is admitted for it.
    PurgeAdmitsNobody,
    /// A client that asks while the key is free gets it, whatever the queue.
    NewcomersBarge,
    /// A waiter that gives up leaves the queue, but not a hold it got meanwhile.
    CancelMissesGrant,
    /// A renewal of what is gone brings it back if the key is free.
    RenewalCreates,
    /// A renewal sets the lease to what it asks for, even if more was left.
    RenewalShortens,
    /// Asking again for what one holds answers with the hold and does not extend it.
    RepeatKeepsOldLease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BookHolder {
    pub(super) who: Who,
    pub(super) left: Ticks,
    pub(super) fence: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BookPlace {
    pub(super) who: Who,
    pub(super) left: Ticks,
    pub(super) ticket: Number,
}

/// What the store says to an ask or a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BookReply {
    /// The claim holds.
    Held {
        /// Its fence.
        fence: Number,
    },
    /// The claim waits.
    Waiting {
        /// Its place.
        ticket: Number,
        /// How many are before it.
        ahead: u8,
    },
    /// Not now, and no place was asked for.
    Busy,
    /// The store does not know the claim.
    Gone,
    /// The claim was buried.
    Dead,
    /// The claim is given up.
    Released,
}

/// A grant that is to be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BookGrant {
    pub(super) to: Who,
    pub(super) ticket: Number,
    pub(super) fence: Number,
}

/// All that the store knows of the one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Book {
    pub(super) holder: Option<BookHolder>,
    pub(super) queue: Vec<BookPlace>,
    tombstones: Vec<Who>,
    pub(super) counter: Number,
}

impl Book {
    /// Time passes at the store. What has ended is noticed by the next verb.
    pub(super) fn tick(&mut self) {
        for left in self.holder.iter_mut().map(|holder| &mut holder.left) {
            *left = left.saturating_sub(1);
        }
        for place in &mut self.queue {
            place.left = place.left.saturating_sub(1);
        }
    }

    /// The lease or the place of a claim ends.
    pub(super) fn end(&mut self, who: Who) {
        for holder in self.holder.iter_mut().filter(|holder| holder.who == who) {
            holder.left = 0;
        }
        for place in self.queue.iter_mut().filter(|place| place.who == who) {
            place.left = 0;
        }
    }

    /// Who holds by the store's own clock, noticed or not.
    pub(super) fn live_holder(&self) -> Option<Who> {
        self.holder.filter(|holder| holder.left > 0).map(|holder| holder.who)
    }

    pub(super) fn live_waiter(&self) -> Option<Who> {
        self.queue.iter().find(|place| place.left > 0).map(|place| place.who)
    }

    /// True if the claim holds or waits, noticed or not.
    pub(super) fn knows(&self, who: Who) -> bool {
        self.live_holder() == Some(who)
            || self.queue.iter().any(|place| place.who == who && place.left > 0)
    }

    pub(super) fn acquire(
        &mut self,
        who: Who,
        (ttl, place): (Ticks, Option<Ticks>),
        flaw: Option<Flaw>,
    ) -> (BookReply, Vec<BookGrant>) {
        let barges = flaw == Some(Flaw::NewcomersBarge) && !self.knows(who);
        let granted = if barges { self.purge() } else { self.settle(flaw) };
        if self.tombstones.contains(&who) {
            return (BookReply::Dead, granted);
        }
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.who == who) {
            if flaw != Some(Flaw::RepeatKeepsOldLease) {
                holder.left = holder.left.max(ttl);
            }
            return (BookReply::Held { fence: holder.fence }, granted);
        }
        if let Some(ahead) = self.position(who) {
            let waits = &mut self.queue[ahead];
            waits.left = waits.left.max(place.unwrap_or_default());
            let ticket = waits.ticket;
            let reply = place.map_or(BookReply::Busy, |_| waiting(ticket, ahead));
            return (reply, granted);
        }
        if self.holder.is_none() && (self.queue.is_empty() || barges) {
            let fence = self.mint();
            self.holder = Some(BookHolder { who, left: ttl, fence });
            return (BookReply::Held { fence }, granted);
        }
        let Some(left) = place else { return (BookReply::Busy, granted) };
        let (ticket, ahead) = (self.mint(), self.queue.len());
        self.queue.push(BookPlace { who, left, ticket });
        (waiting(ticket, ahead), granted)
    }

    pub(super) fn renew(
        &mut self,
        who: Who,
        span: Ticks,
        flaw: Option<Flaw>,
    ) -> (BookReply, Vec<BookGrant>) {
        let mut granted = Vec::new();
        if self.live_holder() != Some(who) {
            granted = self.settle(flaw);
        }
        if let Some(ahead) = self.position(who) {
            let place = &mut self.queue[ahead];
            place.left = place.left.max(span);
            return (waiting(place.ticket, ahead), granted);
        }
        if self.holder.is_none() && flaw == Some(Flaw::RenewalCreates) {
            let fence = self.mint();
            self.holder = Some(BookHolder { who, left: span, fence });
        }
        match self.holder.as_mut().filter(|holder| holder.who == who) {
            Some(holder) if flaw == Some(Flaw::RenewalShortens) => {
                holder.left = span;
                (BookReply::Held { fence: holder.fence }, granted)
            }
            Some(holder) => {
                holder.left = holder.left.max(span);
                (BookReply::Held { fence: holder.fence }, granted)
            }
            None => (BookReply::Gone, granted),
        }
    }

    /// Gives up a claim. `waited` is what its client believes, which only a flawed law asks.
    pub(super) fn release(
        &mut self,
        who: Who,
        bury: bool,
        waited: bool,
        flaw: Option<Flaw>,
    ) -> Vec<BookGrant> {
        let mut granted = self.settle(flaw);
        if bury && !self.tombstones.contains(&who) {
            self.tombstones.push(who);
            self.tombstones.sort_unstable();
        }
        self.queue.retain(|place| place.who != who);
        let misses = waited && flaw == Some(Flaw::CancelMissesGrant);
        if self.holder.is_some_and(|holder| holder.who == who) && !misses {
            self.holder = None;
        }
        if flaw != Some(Flaw::ReleaseAdmitsNobody) {
            granted.extend(self.admit());
        }
        granted
    }

    fn purge(&mut self) -> Vec<BookGrant> {
        self.holder = self.holder.filter(|holder| holder.left > 0);
        self.queue.retain(|place| place.left > 0);
        Vec::new()
    }

    fn settle(&mut self, flaw: Option<Flaw>) -> Vec<BookGrant> {
        self.purge();
        if flaw == Some(Flaw::PurgeAdmitsNobody) { Vec::new() } else { self.admit() }
    }

    fn admit(&mut self) -> Vec<BookGrant> {
        if self.holder.is_some() || self.queue.is_empty() {
            return Vec::new();
        }
        let BookPlace { who, left, ticket } = self.queue.remove(0);
        let fence = self.mint();
        self.holder = Some(BookHolder { who, left, fence });
        vec![BookGrant { to: who, ticket, fence }]
    }

    fn position(&self, who: Who) -> Option<usize> {
        self.queue.iter().position(|place| place.who == who)
    }

    fn mint(&mut self) -> Number {
        self.counter += 1;
        self.counter
    }

    /// Visits every number, so that they can be replaced by their ranks.
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(&mut Number)) {
        self.holder.iter_mut().for_each(|holder| visit(&mut holder.fence));
        self.queue.iter_mut().for_each(|place| visit(&mut place.ticket));
    }
}

fn waiting(ticket: Number, ahead: usize) -> BookReply {
    BookReply::Waiting { ticket, ahead: u8::try_from(ahead).unwrap_or(u8::MAX) }
}

impl fmt::Display for BookReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Held { fence } => write!(f, "held under fence {fence}"),
            Self::Waiting { ticket, .. } => write!(f, "waiting with ticket {ticket}"),
            Self::Busy => f.write_str("busy"),
            Self::Gone => f.write_str("gone"),
            Self::Dead => f.write_str("dead"),
            Self::Released => f.write_str("released"),
        }
    }
}
