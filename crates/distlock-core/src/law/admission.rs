//! Who may enter: the rule itself, and letting in those it allows.

use super::holders::HeldClaim;
use super::record::{AddressedPush, Now, Record};
use crate::{Ask, Moment, Push, Ticket};

impl Record {
    /// True if the ask could hold beside those who hold now, whatever the queue.
    pub(super) fn fits(&self, ask: &Ask) -> bool {
        if self.holders.is_empty() {
            return true;
        }
        !ask.is_exclusive()
            && !self.holders.any_exclusive()
            && self.holders.group() == ask.group.as_ref()
            && self.holders.weight() + u64::from(ask.weight) <= u64::from(ask.capacity)
    }

    /// Drops claims that have expired, then admits the claims that can enter now.
    pub(super) fn settle(&mut self, now: Now, notices: &mut Vec<AddressedPush>) {
        self.holders.purge(now.at);
        self.queue.purge(now.at);
        self.purge_tombstones(now.at);
        self.admit(now, notices);
    }

    /// Lets in the first in line as long as there is room.
    pub(super) fn admit(&mut self, now: Now, notices: &mut Vec<AddressedPush>) {
        let order = self.order().unwrap_or_default();
        while let Some(ticket) = self.queue.first(order)
            && self.queue.get(ticket).is_some_and(|place| self.fits(&place.ask))
        {
            // At the end of the counter no claim enters; an ask is answered with Spent.
            let Some(fence) = self.fence_for(ticket, now) else { return };
            let reentry = self.queue.get(ticket).and_then(|place| place.ask.reentry);
            self.enter(ticket, fence, now.at, notices);
            // The rest of the same thread of work is inside now, too.
            while let Some(sibling) = reentry.and_then(|reentry| self.queue.of_reentry(&reentry)) {
                self.enter(sibling, fence, now.at, notices);
            }
        }
    }

    fn fence_for(&mut self, ticket: Ticket, now: Now) -> Option<u64> {
        let floor = self.queue.get(ticket).and_then(|place| place.ask.fence_floor);
        self.mint(floor.unwrap_or(now.seed))
    }

    /// Moves a waiter to the holders. Its lease is what is left of its place.
    fn enter(&mut self, ticket: Ticket, fence: u64, now: Moment, notices: &mut Vec<AddressedPush>) {
        let Some((place, until)) = self.queue.remove(ticket) else { return };
        let id = place.ask.claim.id;
        // What is left of its place, and never longer than it asked to hold.
        let until = until.min(now.after(place.ask.ttl));
        let held = HeldClaim::new(&place.ask, place.client, fence, now, until);
        // Shared holders agree on one order: that of the first of them.
        let order = self.holders.order().unwrap_or(held.order);
        self.holders.insert(id, HeldClaim { order, attempts: place.attempts, ..held });
        notices.push(AddressedPush { to: place.client, push: Push::Granted { id, ticket, fence } });
    }
}
