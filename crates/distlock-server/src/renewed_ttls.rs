//! Leases that were granted by another replica or before a restart, and are renewed here.
//!
//! A store does not keep the ttl of a lease, so the first renewal here estimates it. Later ones use
//! the same ttl again: an estimate that is made anew each time would grow with each renewal.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use distlock::{ClaimId, Holder, Key, Lease, Leases};

use crate::lease_quota::LeaseSubject;
use crate::problem::Problem;
use crate::state::App;
use crate::sync::lock;
use crate::wire;

/// How many leases are remembered. More than that are estimated again.
const RENEWED_TTLS_MAX: usize = 20_000;

/// The ttl of each lease that was renewed here and granted elsewhere.
#[derive(Debug, Default)]
pub(crate) struct RenewedTtls(Mutex<HashMap<(Key, ClaimId), Duration>>);

impl RenewedTtls {
    /// The ttl that a lease was last renewed for.
    pub(crate) fn ttl(&self, key: &Key, id: ClaimId) -> Option<Duration> {
        lock(&self.0).get(&(key.clone(), id)).copied()
    }

    pub(crate) fn renewed(&self, lease: &Lease) {
        let mut ttls = lock(&self.0);
        if ttls.len() >= RENEWED_TTLS_MAX {
            ttls.clear();
        }
        ttls.insert((lease.key().clone(), lease.id()), lease.ttl());
    }

    pub(crate) fn ended(&self, lease: &Lease) {
        lock(&self.0).remove(&(lease.key().clone(), lease.id()));
    }
}

/// What the store shows of a lease.
pub(crate) struct StoredLease {
    pub(crate) ttl: Duration,
    pub(crate) about: Option<LeaseSubject>,
}

/// Looks at a lease by its id; none if it holds nothing.
pub(crate) async fn look(
    app: &App,
    leases: &Leases,
    id: ClaimId,
) -> Result<Option<StoredLease>, Problem> {
    let found = leases.find(id).await.map_err(Problem::under_an_id)?;
    let Some(lease) = found else { return Ok(None) };
    let seen = app.locks.inspect(lease.key()).await.map_err(Problem::under_an_id)?;
    let holder = seen.holders.into_iter().find(|holder| holder.fence == lease.fence());
    let ttl = holder.as_ref().and_then(Holder::ttl_estimate).unwrap_or(lease.ttl());
    let about = holder.map(|holder| {
        let wire::HolderBody { owner, mode, permits, limit, .. } = holder.into();
        LeaseSubject { owner, mode, permits, limit }
    });
    Ok(Some(StoredLease { ttl, about }))
}
