//! The oracle as an onlooker sees it.

use distlock_core::{Holder, Moment, Waiter};

use super::oracle::{Hold, Oracle, Place};

impl Oracle {
    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.holds.is_empty() && self.places.is_empty() && self.tombstones.is_empty()
    }

    /// The live holders as others see them, the one that ends last first.
    pub(crate) fn holders(&self, now: Moment) -> Vec<Holder> {
        let mut live: Vec<_> = self.holds.iter().filter(|hold| hold.until > now).collect();
        live.sort_by_key(|hold| std::cmp::Reverse((hold.until, hold.ask.claim.id)));
        live.iter().map(|hold| show(hold, now)).collect()
    }

    /// The live waiters as others see them, the next one first.
    pub(crate) fn waiters(&self, now: Moment) -> Vec<Waiter> {
        let mut live: Vec<_> = self.places.iter().filter(|place| place.until > now).collect();
        let order = self.order_at(now).unwrap_or_default();
        live.sort_by_key(|place| self.rank(place, order));
        live.iter().map(|place| show_place(place, now)).collect()
    }
}

fn show(hold: &Hold, now: Moment) -> Holder {
    Holder {
        owner: hold.ask.owner.clone(),
        reason: hold.ask.reason.clone(),
        fence: hold.fence,
        weight: hold.ask.weight,
        capacity: Some(hold.ask.capacity),
        exclusive: hold.ask.is_exclusive(),
        group: hold.ask.group.clone(),
        held_for: now.since(hold.since),
        expires_in: Some(hold.until.since(now)),
    }
}

fn show_place(place: &Place, now: Moment) -> Waiter {
    Waiter {
        owner: place.ask.owner.clone(),
        reason: place.ask.reason.clone(),
        weight: place.ask.weight,
        exclusive: place.ask.is_exclusive(),
        group: place.ask.group.clone(),
        waited: now.since(place.since),
    }
}
