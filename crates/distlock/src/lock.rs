//! What all lock kinds share: a key, the options, and how to turn them into an ask.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Ask, AttemptId, CAPACITY_MAX, Claim, ClaimId, Key, Label, Mode, Order, ReentryId,
};

use crate::engine::{AcquireRequest, Grant, WaitLimit, acquire};
use crate::keeper::Keeper;
use crate::options::{Options, Settings};
use crate::{Error, Guard};

/// A lock of any kind on one key.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) key: Key,
}

/// What kind of lock to ask for: the only thing in which the kinds differ.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) weight: u32,
    pub(crate) capacity: u32,
    pub(crate) order: Order,
    pub(crate) group: Option<Label>,
    pub(crate) reentry: Option<ReentryId>,
}

impl Shape {
    pub(crate) const MUTEX: Self =
        Self { weight: 1, capacity: 1, order: Order::Fifo, group: None, reentry: None };

    pub(crate) fn read(order: Order, group: Option<Label>) -> Self {
        Self { weight: 1, capacity: CAPACITY_MAX, order, group, reentry: None }
    }

    pub(crate) fn write(order: Order, group: Option<Label>) -> Self {
        Self { weight: CAPACITY_MAX, ..Self::read(order, group) }
    }

    pub(crate) fn permits(weight: u32, capacity: u32) -> Self {
        Self { weight, capacity, ..Self::MUTEX }
    }

    /// How the journal calls it.
    pub(crate) fn mode(&self) -> Mode {
        Mode::of_shape(self.weight, self.capacity)
    }

    pub(crate) fn reentrant(id: ReentryId) -> Self {
        Self { reentry: Some(id), ..Self::MUTEX }
    }
}

impl Lock {
    pub(crate) fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { settings: self.keeper.configure(&self.settings, change)?, ..self.clone() })
    }

    /// How long the waiting forms wait.
    pub(crate) fn limit(&self) -> WaitLimit {
        WaitLimit::from_max_wait(self.settings.max_wait)
    }

    /// Acquires and keeps.
    pub(crate) async fn guard(&self, shape: Shape, limit: WaitLimit) -> Result<Guard, Error> {
        let request = self.request(shape, None, limit)?;
        let grant = acquire(&self.keeper, request).await?;
        Guard::keep(&self.keeper, &grant, &self.settings)
    }

    /// Acquires as plain data.
    pub(crate) async fn lease(
        &self,
        shape: Shape,
        id: Option<ClaimId>,
        limit: WaitLimit,
    ) -> Result<Grant, Error> {
        let mut request = self.request(shape, id, limit)?;
        request.full_ttl = true;
        acquire(&self.keeper, request).await
    }

    /// Acquires as plain data, or leaves the claim in the queue when `max_wait` is over.
    pub(crate) async fn lease_or_place(
        &self,
        shape: Shape,
        (id, attempt): (ClaimId, AttemptId),
        max_wait: Duration,
    ) -> Result<Grant, Error> {
        let mut request = self.request(shape, Some(id), WaitLimit::Forever)?;
        request.ask.attempt = Some(attempt);
        request.full_ttl = true;
        request.keep_place_after = Some(max_wait);
        acquire(&self.keeper, request).await
    }

    pub(crate) fn request(
        &self,
        shape: Shape,
        id: Option<ClaimId>,
        limit: WaitLimit,
    ) -> Result<AcquireRequest, Error> {
        let (settings, fixed_id) = (&self.settings, id.is_some());
        let attempt = id.map(|_| AttemptId::random()).transpose().map_err(Error::from_fault)?;
        let id = id.map_or_else(ClaimId::random, Ok).map_err(Error::from_fault)?;
        let ask = Ask {
            claim: Claim::new(self.key.clone(), id),
            attempt,
            owner: settings.owner.clone(),
            reason: settings.reason.clone(),
            weight: shape.weight,
            capacity: shape.capacity,
            order: shape.order,
            group: shape.group,
            reentry: shape.reentry,
            ttl: settings.lease(),
            fence_floor: None,
            witness: None,
            wait: None,
        };
        let settings = Arc::clone(settings);
        let full_ttl = settings.full_ttl;
        Ok(AcquireRequest { ask, limit, full_ttl, settings, fixed_id, keep_place_after: None })
    }
}
