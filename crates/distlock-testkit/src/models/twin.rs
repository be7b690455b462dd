//! The real law, run beside the small one: every answer of both is compared.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::law::{AddressedPush, Now, Record};
use distlock_core::{
    Answer, Ask, Claim, ClaimId, ClientId, Key, Label, Moment, Push, ReleaseOptions,
    ReleaseOutcome, Renewal, Standing, Target, Wait,
};

use super::book::{BookGrant, BookReply, Number, Ticks, Who};

/// The record of the same key that a [`Book`](super::book::Book) describes.
///
/// It takes no part in telling states apart: the book decides that, and is right to as long as the
/// two never differ, which is what this is here to find out.
#[derive(Clone, Debug)]
pub(super) struct Twin {
    record: Arc<Record>,
    at: u64,
    /// The real number behind each rank, beginning with rank 1.
    reals: Vec<u64>,
}

impl PartialEq for Twin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Hash for Twin {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Far longer than anything in a model lasts.
const FOR_EVER: Duration = Duration::from_secs(1 << 24);

impl Twin {
    pub(super) fn new() -> Self {
        Self { record: Arc::new(Record::new(0)), at: 0, reals: Vec::new() }
    }

    pub(super) fn tick(&mut self) {
        self.at += 1;
    }

    pub(super) fn acquire(
        &mut self,
        who: Who,
        (ttl, place): (Ticks, Option<Ticks>),
        (reply, granted): &(BookReply, Vec<BookGrant>),
    ) -> bool {
        let Some(claim) = claim(who) else { return false };
        let Ok(owner) = Label::new("owner", "model") else { return false };
        let mut ask = Ask::new(claim, owner, span(ttl));
        ask.wait = place.map(|place| Wait { place: span(place), waiters_max: u32::MAX });
        let now = self.now();
        let (answer, notices) = Arc::make_mut(&mut self.record).acquire(&ask, client(who), now);
        let same = match (answer, *reply) {
            (Answer::Granted { fence }, BookReply::Held { fence: rank }) => self.is(rank, fence),
            (Answer::Busy(busy), BookReply::Waiting { ticket, ahead }) => {
                busy.ahead == u64::from(ahead)
                    && busy.ticket.is_some_and(|real| self.is(ticket, real))
            }
            (Answer::Busy(busy), BookReply::Busy) => busy.ticket.is_none(),
            (Answer::Dead, BookReply::Dead) => true,
            _ => false,
        };
        same && self.pushes(&notices, granted) && self.holds()
    }

    pub(super) fn renew(
        &mut self,
        who: Who,
        ticks: Ticks,
        (reply, granted): &(BookReply, Vec<BookGrant>),
    ) -> bool {
        let Some(claim) = claim(who) else { return false };
        let renewal = Renewal::hold(claim, span(ticks));
        let now = self.now();
        let (standing, notices) = Arc::make_mut(&mut self.record).renew(&renewal, client(who), now);
        let same = match (standing, *reply) {
            (Standing::Held { fence }, BookReply::Held { fence: rank }) => self.is(rank, fence),
            (Standing::Waiting(waiting), BookReply::Waiting { ticket, ahead }) => {
                waiting.ahead == u64::from(ahead) && self.is(ticket, waiting.ticket)
            }
            (Standing::Gone, BookReply::Gone) => true,
            _ => false,
        };
        same && self.pushes(&notices, granted)
    }

    /// Gives up a claim that the book knew, or did not.
    pub(super) fn release(
        &mut self,
        who: Who,
        bury: bool,
        known: bool,
        granted: &[BookGrant],
    ) -> bool {
        let Some(claim) = claim(who) else { return false };
        let how = ReleaseOptions {
            keep: Duration::ZERO,
            bury: if bury { FOR_EVER } else { Duration::ZERO },
        };
        let now = self.now();
        let (outcome, notices) =
            Arc::make_mut(&mut self.record).release(&Target::Claim(claim), how, now);
        known == (outcome != ReleaseOutcome::Gone) && self.pushes(&notices, granted) && self.holds()
    }

    fn pushes(&mut self, notices: &[AddressedPush], granted: &[BookGrant]) -> bool {
        notices.len() == granted.len()
            && notices.iter().zip(granted).all(|(notice, &BookGrant { to, ticket, fence })| {
                let Push::Granted { id, ticket: real_ticket, fence: real_fence } = notice.push
                else {
                    return false;
                };
                notice.to == client(to)
                    && Some(id) == claim(to).map(|claim| claim.id)
                    && self.is(ticket, real_ticket)
                    && self.is(fence, real_fence)
            })
    }

    /// True if the rank stands for this number. A rank that is new stands for it from now on.
    fn is(&mut self, rank: Number, real: u64) -> bool {
        let index = usize::from(rank).saturating_sub(1);
        if index >= self.reals.len() {
            self.reals.resize(index + 1, 0);
        }
        if self.reals[index] == 0 {
            self.reals[index] = real;
        }
        self.reals[index] == real
    }

    /// The record keeps its own invariants.
    fn holds(&self) -> bool {
        self.record.verify(self.now().at);
        self.reals.iter().all(|&real| real <= self.record.counter())
    }

    /// Ranks have changed: the `n`th is now what `old[n]` was.
    pub(super) fn renumber(&mut self, old: &[Number]) {
        let real = |rank: &Number| self.reals.get(usize::from(*rank) - 1).copied().unwrap_or(0);
        self.reals = old.iter().map(real).collect();
    }

    /// The store's clock seeds nothing here, so that numbers are consecutive.
    fn now(&self) -> Now {
        Now { at: Moment::ORIGIN.after(Duration::from_secs(self.at)), seed: 0 }
    }
}

fn span(ticks: Ticks) -> Duration {
    Duration::from_secs(u64::from(ticks))
}

fn client(who: Who) -> ClientId {
    ClientId::from_bytes([who + 1; 16])
}

fn claim(who: Who) -> Option<Claim> {
    Some(Claim::new(Key::new("k").ok()?, ClaimId::from_bytes([who + 1; 16])))
}
