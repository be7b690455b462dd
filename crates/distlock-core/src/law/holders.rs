//! Those who hold a key, each with a lease of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::attempts::Attempts;
use super::parts::OmittedSharers;
use crate::{Ask, ClaimId, ClientId, Holder, Label, Moment, Order, ReentryId};

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    /// The client that asked for it.
    pub client: ClientId,
    /// The owner's label.
    pub owner: Label,
    /// What for.
    pub reason: Option<Label>,
    /// How much it holds.
    pub weight: u32,
    /// How much there is, as far as this holder is concerned.
    pub capacity: u32,
    /// The order that it asked for. It counts while the holder shares.
    pub order: Order,
    /// The group of a shared holder.
    pub group: Option<Label>,
    /// The thread of work it belongs to.
    pub reentry: Option<ReentryId>,
    /// Its fencing token.
    pub fence: u64,
    /// When it was granted.
    pub since: Moment,
    /// When its lease ends.
    pub until: Moment,
    /// Released by its owner but kept for a while: it can no longer be renewed.
    pub kept: bool,
    /// The calls whose clean-up it waits for.
    pub attempts: Attempts,
}

impl HeldClaim {
    pub(super) fn new(
        ask: &Ask,
        client: ClientId,
        fence: u64,
        since: Moment,
        until: Moment,
    ) -> Self {
        Self {
            client,
            owner: ask.owner.clone(),
            reason: ask.reason.clone(),
            weight: ask.weight,
            capacity: ask.capacity,
            order: ask.order,
            group: ask.group.clone(),
            reentry: ask.reentry,
            fence,
            since,
            until,
            kept: false,
            attempts: Attempts::of(ask.attempt),
        }
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.weight == self.capacity
    }

    /// The order that a shared holder asked for.
    pub(super) fn shared_order(&self) -> Option<Order> {
        (!self.is_exclusive()).then_some(self.order)
    }

    pub(super) fn view(&self, now: Moment) -> Holder {
        Holder {
            owner: self.owner.clone(),
            reason: self.reason.clone(),
            fence: self.fence,
            weight: self.weight,
            capacity: Some(self.capacity),
            exclusive: self.is_exclusive(),
            group: self.group.clone(),
            held_for: now.since(self.since),
            expires_in: Some(self.until.since(now)),
        }
    }
}

/// All holders of a key, indexed by what the law asks about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    pub(super) by_id: BTreeMap<ClaimId, HeldClaim>,
    by_end: BTreeSet<(Moment, ClaimId)>,
    by_reentry: BTreeMap<ReentryId, BTreeSet<ClaimId>>,
    weight: u64,
    exclusive: usize,
    /// Sharers that are not part of this excerpt.
    rest: OmittedSharers,
}

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.rest.count == 0
    }

    pub(super) fn leave_out(&mut self, rest: OmittedSharers) {
        self.rest = rest;
    }

    /// The sum of the weights held.
    pub(super) fn weight(&self) -> u64 {
        self.weight + self.rest.weight
    }

    pub(super) fn any_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// The order that the shared holders agree on; none if no holder shares.
    pub(super) fn order(&self) -> Option<Order> {
        self.by_id.values().next().and_then(HeldClaim::shared_order)
    }

    /// The group of the shared holders; they all agree on it.
    pub(super) fn group(&self) -> Option<&Label> {
        self.by_id.values().next().and_then(|held| held.group.as_ref())
    }

    pub(super) fn get(&self, id: &ClaimId) -> Option<&HeldClaim> {
        self.by_id.get(id)
    }

    pub(super) fn insert(&mut self, id: ClaimId, held: HeldClaim) {
        self.weight += u64::from(held.weight);
        self.exclusive += usize::from(held.is_exclusive());
        self.by_end.insert((held.until, id));
        if let Some(reentry) = held.reentry {
            self.by_reentry.entry(reentry).or_default().insert(id);
        }
        self.by_id.insert(id, held);
    }

    pub(super) fn remove(&mut self, id: &ClaimId) -> Option<HeldClaim> {
        let held = self.by_id.remove(id)?;
        self.weight -= u64::from(held.weight);
        self.exclusive -= usize::from(held.is_exclusive());
        self.by_end.remove(&(held.until, *id));
        if let Some(reentry) = held.reentry
            && let Some(claims) = self.by_reentry.get_mut(&reentry)
        {
            claims.remove(id);
            if claims.is_empty() {
                self.by_reentry.remove(&reentry);
            }
        }
        Some(held)
    }

    /// Changes one holder, keeping the indexes in step.
    pub(super) fn change(&mut self, id: &ClaimId, change: impl FnOnce(&mut HeldClaim)) {
        if let Some(mut held) = self.remove(id) {
            change(&mut held);
            self.insert(*id, held);
        }
    }

    /// Moves the end of a lease later, never earlier.
    pub(super) fn extend(&mut self, id: &ClaimId, until: Moment) {
        if let Some(held) = self.by_id.get_mut(id)
            && held.until < until
        {
            self.by_end.remove(&(held.until, *id));
            held.until = until;
            self.by_end.insert((until, *id));
        }
    }

    /// Changes the attempts of a holder, on which nothing else depends.
    pub(super) fn change_attempts(&mut self, id: &ClaimId, change: impl FnOnce(&mut Attempts)) {
        if let Some(held) = self.by_id.get_mut(id) {
            change(&mut held.attempts);
        }
    }

    /// Drops those whose lease has ended.
    pub(super) fn purge(&mut self, now: Moment) {
        while let Some(&(until, id)) = self.by_end.first()
            && until <= now
        {
            self.remove(&id);
        }
    }

    /// Raises the fence of a claim, and of the rest of its thread of work, which shares it.
    pub(super) fn raise_fence(&mut self, id: &ClaimId, fence: u64) {
        let reentry = self.by_id.get(id).and_then(|held| held.reentry);
        let siblings = reentry.and_then(|reentry| self.by_reentry.get(&reentry));
        for sibling in siblings.into_iter().flatten().chain([id]) {
            if let Some(held) = self.by_id.get_mut(sibling) {
                held.fence = fence;
            }
        }
    }

    /// The fence under which a thread of work is inside. One that was released but is kept is not.
    pub(super) fn reentry_fence(&self, reentry: &ReentryId) -> Option<u64> {
        let claims = self.by_reentry.get(reentry)?;
        let inside = claims.iter().filter_map(|id| self.by_id.get(id)).find(|held| !held.kept);
        inside.map(|held| held.fence)
    }

    /// How long until the first lease ends.
    pub(super) fn first_end(&self, now: Moment) -> Option<Duration> {
        self.by_end.first().map(|(until, _)| until.since(now))
    }

    /// The holders, the one whose lease ends last first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = (&ClaimId, &HeldClaim)> {
        self.by_end.iter().rev().filter_map(|(_, id)| self.by_id.get_key_value(id))
    }

    /// Those among them whose lease has not ended, purged or not.
    pub(super) fn live(&self, now: Moment) -> impl Iterator<Item = &HeldClaim> {
        self.latest_first().map(|(_, held)| held).take_while(move |held| held.until > now)
    }

    pub(super) fn verify(&self, now: Moment) {
        assert!(self.by_id.values().all(|held| held.until > now), "an expired holder is left");
        assert_eq!(self.by_end.len(), self.by_id.len(), "an end without a holder");
        let sum: u64 = self.by_id.values().map(|held| u64::from(held.weight)).sum();
        assert_eq!(sum, self.weight, "the sum of weights is wrong");
        let exclusive = self.by_id.values().filter(|held| held.is_exclusive()).count();
        assert_eq!(exclusive, self.exclusive, "the number of exclusive holders is wrong");
        let reentrant = self.by_id.values().filter(|held| held.reentry.is_some()).count();
        let indexed: usize = self.by_reentry.values().map(BTreeSet::len).sum();
        assert_eq!(reentrant, indexed, "the reentry index is wrong");
    }
}
