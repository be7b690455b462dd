//! How much of everything one caller may have.

use std::sync::Arc;
use std::time::Duration;

use distlock::Key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Config;
use crate::auth::Caller;
use crate::ledger::Account;
use crate::problem::Problem;

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
    accounts: Vec<Account>,
    /// Has no slot for anything.
    nobody: Account,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        // Callers are counted from 1; number 0 is everybody where there are no tokens.
        let callers = config.tokens.len() + 1;
        Self {
            waiters: (0..callers).map(|_| Arc::new(Semaphore::new(config.waiters_max))).collect(),
            accounts: (0..callers).map(|_| Account::new(config.leases_max)).collect(),
            nobody: Account::new(0),
        }
    }

    /// Counts a request that may wait, for as long as the permit lives.
    pub(crate) fn wait(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        let gate = self.waiters.get(caller.number).map(Arc::clone);
        gate.and_then(|gate| gate.try_acquire_owned().ok())
            .ok_or_else(|| Problem::too_many("too many requests of this token are waiting"))
    }

    /// The leases of a caller.
    pub(crate) fn account(&self, caller: &Caller) -> &Account {
        self.accounts.get(caller.number).unwrap_or(&self.nobody)
    }

    /// A hold was broken, whosever it was.
    pub(crate) fn broken(&self, key: &Key, fence: u64) {
        self.accounts.iter().for_each(|account| account.broken(key, fence));
    }

    /// Forgets what has ended.
    pub(crate) fn tidy(&self) {
        self.accounts.iter().for_each(Account::tidy);
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
