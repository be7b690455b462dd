//! How much of everything one caller may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Key, LossReason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ServerConfig;
use crate::auth::Caller;
use crate::lease_quota::LeaseQuota;
use crate::problem::Problem;
use crate::sync::lock;

/// The largest body of a request that is not a Terraform state.
pub(crate) const BODY_MAX: usize = 64 * 1024;

/// How long a body may take to arrive.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest wait of one request that can be configured: shorter than the patience of most
/// proxies.
pub(crate) const HTTP_WAIT_MAX: Duration = Duration::from_secs(55);

/// The shortest and the longest lease that can be had over HTTP.
pub(crate) const HTTP_TTL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// How long an operation under a pattern may last.
pub(crate) const OPERATION_MAX: Duration = Duration::from_secs(600);

/// What each caller has in use, by the name of its token. A reloaded token file keeps it.
#[derive(Debug)]
pub(crate) struct Limits {
    shares: Mutex<HashMap<String, Arc<Share>>>,
    waiters_max: usize,
    leases_max: usize,
}

/// What one caller has in use.
#[derive(Debug)]
pub(crate) struct Share {
    waiters: Arc<Semaphore>,
    quota: LeaseQuota,
}

impl Limits {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let (waiters_max, leases_max) = (config.waiters_max, config.leases_max);
        Self { shares: Mutex::default(), waiters_max, leases_max }
    }

    /// The share of a name. There are as many as there are tokens.
    pub(crate) fn share(&self, name: &str) -> Arc<Share> {
        let mut shares = lock(&self.shares);
        if let Some(share) = shares.get(name) {
            return Arc::clone(share);
        }
        let waiters = Arc::new(Semaphore::new(self.waiters_max));
        let share = Arc::new(Share { waiters, quota: LeaseQuota::new(self.leases_max) });
        shares.insert(name.to_owned(), Arc::clone(&share));
        share
    }

    /// Forgets names that have gone, once their leases have ended.
    pub(crate) fn keep(&self, is_known: impl Fn(&str) -> bool) {
        let mut shares = lock(&self.shares);
        shares.retain(|name, share| is_known(name) || !share.quota.is_empty());
    }

    /// Counts a request that may wait, for as long as the permit lives.
    pub(crate) fn wait(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        let waiters = Arc::clone(&caller.share.waiters);
        waiters
            .try_acquire_owned()
            .map_err(|_| Problem::too_many("too many requests of this token are waiting"))
    }

    /// The leases of a caller.
    pub(crate) fn quota<'a>(&self, caller: &'a Caller) -> &'a LeaseQuota {
        &caller.share.quota
    }

    /// A hold was broken, of whichever caller: a lease that was granted here counts as lost.
    pub(crate) fn broken(&self, key: &Key, fence: u64) {
        for leased in self.accounts().iter().filter_map(|quota| quota.broken(key, fence)) {
            leased.leases.count_lost(&leased.lease, LossReason::Broken);
        }
    }

    /// The leases of every caller.
    pub(crate) fn accounts(&self) -> Vec<LeaseQuota> {
        lock(&self.shares).values().map(|share| share.quota.clone()).collect()
    }

    /// Forgets what has ended.
    pub(crate) fn tidy(&self) {
        lock(&self.shares).values().for_each(|share| share.quota.tidy());
    }
}

/// Reads a ttl, which the token of a caller may limit further. A default is shortened to the limit.
pub(crate) fn ttl(
    caller: &Caller,
    ms: Option<u64>,
    default: Duration,
) -> Result<Duration, Problem> {
    let most = caller.ttl_max();
    span("ttlMs", ms, default.min(most), *HTTP_TTL_RANGE.start()..=most)
}

/// Reads a duration from a request and refuses it by name if it is out of bounds.
pub(crate) fn span(
    what: &str,
    ms: Option<u64>,
    default: Duration,
    allowed: std::ops::RangeInclusive<Duration>,
) -> Result<Duration, Problem> {
    let span = ms.map_or(default, Duration::from_millis);
    if allowed.contains(&span) {
        return Ok(span);
    }
    let (least, most) = (allowed.start().as_millis(), allowed.end().as_millis());
    Err(Problem::invalid(format!("{what} must be between {least} and {most}")))
}
