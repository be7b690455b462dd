//! How much of everything one caller may have.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{ClaimId, Lease, Leases};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Config;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::sync::lock;

/// The largest body of a request that is not a Terraform state.
pub(crate) const BODY_MAX: usize = 64 * 1024;

/// How long a body may take to arrive.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest wait of one request that can be configured: shorter than the patience of most
/// proxies.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(55);

/// The shortest and the longest lease that can be had over HTTP.
pub(crate) const TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// How long an operation under a pattern may last.
pub(crate) const OPERATION_MAX: Duration = Duration::from_secs(600);

/// What each caller has at the moment.
#[derive(Debug)]
pub(crate) struct Limits {
    waiters: Vec<Arc<Semaphore>>,
    leases: Vec<Mutex<Ledger>>,
    leases_max: usize,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        // Callers are counted from 1; number 0 is everybody where there are no tokens.
        let callers = config.tokens.len() + 1;
        Self {
            waiters: (0..callers).map(|_| Arc::new(Semaphore::new(config.waiters_max))).collect(),
            leases: (0..callers).map(|_| Mutex::default()).collect(),
            leases_max: config.leases_max,
        }
    }

    /// Counts a request that may wait, for as long as the permit lives.
    pub(crate) fn wait(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        let gate = self.waiters.get(caller.number).map(Arc::clone);
        gate.and_then(|gate| gate.try_acquire_owned().ok())
            .ok_or_else(|| Problem::too_many("too many requests of this token are waiting"))
    }

    /// Refuses a caller who has as many leases as one may have.
    pub(crate) fn may_lease(&self, caller: &Caller) -> Result<(), Problem> {
        let Some(ledger) = self.leases.get(caller.number) else { return Ok(()) };
        if lock(ledger).live(Instant::now(), self.leases_max) < self.leases_max {
            return Ok(());
        }
        Err(Problem::too_many("this token has as many leases as it may have"))
    }

    /// A lease was granted.
    pub(crate) fn leased(&self, caller: &Caller, leased: Leased) {
        if let Some(ledger) = self.leases.get(caller.number) {
            lock(ledger).put(leased);
        }
    }

    /// A lease was renewed. One that was granted elsewhere counts there.
    pub(crate) fn renewed(&self, caller: &Caller, lease: &Lease) {
        if let Some(ledger) = self.leases.get(caller.number) {
            let mut ledger = lock(ledger);
            if let Some(leased) = ledger.remove(lease.id()) {
                ledger.put(Leased { lease: lease.clone(), ..leased }.restarted());
            }
        }
    }

    /// A lease was released or found to be lost. Tells what was known of it.
    pub(crate) fn ended(&self, caller: &Caller, id: ClaimId) -> Option<Leased> {
        self.leases.get(caller.number).and_then(|ledger| lock(ledger).remove(id))
    }
}

/// A lease that was granted here, with what its release shall be noted down with.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) leases: Leases,
    end: Instant,
}

impl Leased {
    pub(crate) fn new(lease: Lease, leases: Leases) -> Self {
        Self { lease, leases, end: Instant::now() }.restarted()
    }

    fn restarted(mut self) -> Self {
        self.end = Instant::now() + self.lease.ttl();
        self
    }
}

/// The leases that a caller got here, by when they end. It decides about nothing but how many more
/// there may be, so it does not matter that other replicas have ledgers of their own.
#[derive(Debug, Default)]
struct Ledger {
    leased: HashMap<ClaimId, Leased>,
    by_end: BTreeSet<(Instant, ClaimId)>,
}

impl Ledger {
    /// How many are alive. Looks only if there may be too many.
    fn live(&mut self, now: Instant, max: usize) -> usize {
        if self.leased.len() >= max {
            while let Some(&(end, id)) = self.by_end.first()
                && end <= now
            {
                self.by_end.pop_first();
                self.leased.remove(&id);
            }
        }
        self.leased.len()
    }

    fn put(&mut self, leased: Leased) {
        let (end, id) = (leased.end, leased.lease.id());
        self.remove(id);
        self.leased.insert(id, leased);
        self.by_end.insert((end, id));
    }

    fn remove(&mut self, id: ClaimId) -> Option<Leased> {
        let leased = self.leased.remove(&id)?;
        self.by_end.remove(&(leased.end, id));
        Some(leased)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_forgets_what_has_ended_and_nothing_else() {
        let leases = distlock::Locks::memory().lease("key").unwrap();
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        let put = |ledger: &mut Ledger, n: u8, seconds: u64| {
            let lease = leases.lease_of(ClaimId::from_bytes([n; 16]));
            let end = start + Duration::from_secs(seconds);
            ledger.put(Leased { end, ..Leased::new(lease, leases.clone()) });
        };
        for n in 0..3 {
            put(&mut ledger, n, n.into());
        }
        assert_eq!(ledger.live(start + Duration::from_secs(1), 3), 1);
        put(&mut ledger, 2, 9);
        assert_eq!(ledger.live(start + Duration::from_secs(5), 1), 1);
        assert!(ledger.remove(ClaimId::from_bytes([2; 16])).is_some());
        assert!(ledger.remove(ClaimId::from_bytes([2; 16])).is_none());
        assert_eq!((ledger.live(start, 1), ledger.by_end.len()), (0, 0));
    }
}
