//! What a user may choose, and the check at the door.
//!
//! Long because every option is documented where it is set and checked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_core::{Invalid, Label, Retention, TTL_DEFAULT, TTL_MAX, TTL_MIN, Wait};
use tokio_util::sync::CancellationToken;

use crate::engine::backoff::Backoff;
use crate::keeper::RELEASE_MAX;
use crate::validity::{LEASE_MARGIN, Validity};

/// The shortest place: four heartbeats and a margin have to fit.
const PLACE_MIN: Duration = Duration::from_millis(50);

/// The least time between a renewal and the end of the lease it is to prevent.
const RENEWAL_MIN: Duration = Duration::from_millis(2);

/// When to renew, as a fraction of the ttl: early enough for two more tries.
const RENEW_AT: f64 = 1.0 / 3.0;

/// The choices behind a lock. Chain the setters; every one has a default that suits most.
///
/// Options are set through [`Locks::configure`](crate::Locks::configure), or `configure` on a
/// single lock, which check them all at once and refuse a bad one by name.
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let locks = distlock::Locks::memory();
/// let short = Duration::from_secs(5);
/// let quick = locks.configure(|o| o.ttl(short).max_wait(short))?;
/// let guard = quick.mutex("report")?.lock().await?;
/// assert!(guard.remaining() <= Duration::from_secs(5));
///
/// let refused = locks.configure(|o| o.ttl(Duration::ZERO)).unwrap_err();
/// assert!(refused.to_string().contains("ttl"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are passed to configure"]
pub struct Options {
    ttl: Duration,
    max_wait: Option<Duration>,
    wait_mode: WaitMode,
    owner: Option<String>,
    reason: Option<String>,
    max_hold: Option<Duration>,
    hold_at_least: Duration,
    lock_delay: Duration,
    renew_at: f64,
    drift: f64,
    drift_margin: Duration,
    release_timeout: Duration,
    cancel_on: Option<CancellationToken>,
    place: Duration,
    waiters_max: u32,
    patience: Option<Duration>,
    durability: Durability,
    full_ttl: bool,
    journal: Option<Retention>,
}

/// Who must know of a grant before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The store itself.
    #[default]
    Store,
    /// The store and this many replicas of it. Narrows the window in which a failover can lose a
    /// grant; it does not close it, and is no consensus. Costs a round trip to the replicas.
    Replicas(u32),
}

/// How to wait for a lock that is held.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum WaitMode {
    /// In the store's queue: first come, first served, and told when it is one's turn. Backends
    /// without a queue poll with the default pacing.
    #[default]
    Queue,
    /// By trying again. No client keeps a place, so luck decides among those who poll, and those
    /// who queue go first.
    Poll(Backoff),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: TTL_DEFAULT,
            max_wait: None,
            wait_mode: WaitMode::Queue,
            owner: None,
            reason: None,
            max_hold: None,
            hold_at_least: Duration::ZERO,
            lock_delay: Duration::ZERO,
            renew_at: RENEW_AT,
            drift: 0.01,
            drift_margin: LEASE_MARGIN,
            release_timeout: RELEASE_MAX,
            cancel_on: None,
            place: Duration::from_secs(4),
            waiters_max: 1_000_000,
            patience: None,
            durability: Durability::Store,
            full_ttl: false,
            journal: None,
        }
    }
}

impl Options {
    /// How long a grant lasts without a renewal, and so how long a crash blocks others. Guards are
    /// renewed; leases are not. Default 30 s, at least 7 ms, at most 365 days.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the waiting forms wait at most. Zero makes them one-shot. Default: for ever.
    pub fn max_wait(mut self, max_wait: impl Into<Option<Duration>>) -> Self {
        self.max_wait = max_wait.into();
        self
    }

    /// How to wait. Default: in the queue.
    pub fn wait_mode(mut self, wait_mode: WaitMode) -> Self {
        self.wait_mode = wait_mode;
        self
    }

    /// The label shown to those who wait. It decides nothing. Default `user@host:pid`.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// What the lock is held for, shown to those who wait.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// End the hold after this long, renewed or not. Default: never.
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = max_hold.into();
        self
    }

    /// Keep the key taken for at least this long after the grant, even if it is released sooner.
    /// For jobs that must not run twice within a period. Default zero.
    pub fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.hold_at_least = hold_at_least;
        self
    }

    /// After a lost lease, not after a release, no client enters for this long more. For resources
    /// that cannot check a fence. Default zero.
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self
    }

    /// When to renew, as a fraction of the ttl between 0 and 1. Default a third: two more chances
    /// before the lease ends.
    pub fn renew_at(mut self, fraction: f64) -> Self {
        self.renew_at = fraction;
        self
    }

    /// How much faster the store's clock may run than ours, as a fraction in `[0, 0.5]`. That much
    /// is taken off every lease. Default 0.01.
    pub fn drift(mut self, fraction: f64) -> Self {
        self.drift = fraction;
        self
    }

    /// What is taken off every lease beside [`drift`](Self::drift), against late timers and the
    /// rounding of the store: raise it where the process is paused for longer than that. Default
    /// and least 2 ms.
    pub fn drift_margin(mut self, margin: Duration) -> Self {
        self.drift_margin = margin;
        self
    }

    /// How long `release` waits for the store, and how long a blocking guard does so when it is
    /// dropped. After that the release goes on in the background. Default 5 s.
    pub fn release_timeout(mut self, release_timeout: Duration) -> Self {
        self.release_timeout = release_timeout;
        self
    }

    /// Stop when this token is cancelled: calls that wait fail with
    /// [`Error::Cancelled`](crate::Error::Cancelled), and guards are lost with
    /// [`LossReason::Cancelled`](crate::LossReason::Cancelled), which stops their work as any loss
    /// does. Their locks are released when they are dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Error, Locks, LossReason};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// let shutdown = CancellationToken::new();
    /// let token = shutdown.clone();
    /// let mutex = Locks::memory().mutex("import")?.configure(|o| o.cancel_on(token))?;
    /// let guard = mutex.lock().await?;
    ///
    /// shutdown.cancel();
    /// assert_eq!(guard.lost().await, LossReason::Cancelled);
    /// assert!(matches!(mutex.lock().await, Err(Error::Cancelled { .. })));
    /// # Ok(()) }
    /// ```
    pub fn cancel_on(mut self, token: CancellationToken) -> Self {
        self.cancel_on = Some(token);
        self
    }

    /// How long a place in the queue outlives the last sign of life, and so how long a waiter that
    /// died can block the line. Heartbeats go out four times as often. Default 4 s, at least 50 ms.
    pub fn place(mut self, place: Duration) -> Self {
        self.place = place;
        self
    }

    /// Refuse to queue behind this many. Default one million.
    pub fn waiters_max(mut self, waiters_max: u32) -> Self {
        self.waiters_max = waiters_max;
        self
    }

    /// How long a waiting call without a deadline rides out a backend that cannot be reached. One
    /// with a deadline does so until then; one-shot calls never do. Zero returns the first fault.
    /// Default: the ttl.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Who must know of a grant before it counts. With too few in time the grant is given back and
    /// the call fails with [`Error::NotReplicated`](crate::Error::NotReplicated). Default: the
    /// store itself.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// A grant counts only once the store has confirmed it for the full ttl. Without this, one that
    /// comes to a waiter is good for what is left of its place, and is extended a little later: for
    /// those who start something that must not begin with less time than it needs to stop.
    pub fn full_ttl(mut self) -> Self {
        self.full_ttl = true;
        self
    }

    /// Note down next to the locks who waited, held and how it ended, for
    /// [`Locks::history`](crate::Locks::history) and [`Locks::feed`](crate::Locks::feed), and keep
    /// it for as long as the [`Retention`] says. It is written in the background, in batches; no
    /// lock ever waits for it, and none is safer for it. Default: nothing is noted.
    pub fn journal(mut self, retention: impl Into<Option<Retention>>) -> Self {
        self.journal = retention.into();
        self
    }

    /// How much of the past is kept, if any: what [`journal`](Self::journal) or the URL says.
    pub fn retention(&self) -> Option<Retention> {
        self.journal
    }

    /// Checks everything.
    pub(crate) fn check(&self) -> Result<Settings, Invalid> {
        let validity = self.check_times()?;
        let renew_every = self.check_renewal(validity)?;
        let owner = match &self.owner {
            Some(owner) => Label::new("owner", owner)?,
            None => default_owner(),
        };
        let reason = self.reason.as_ref().map(|reason| Label::new("reason", reason)).transpose()?;
        self.journal.as_ref().map_or(Ok(()), Retention::check)?;
        Ok(Settings {
            ttl: self.ttl,
            max_wait: self.max_wait,
            wait_mode: self.wait_mode.clone(),
            owner,
            reason,
            max_hold: self.max_hold,
            hold_at_least: self.hold_at_least,
            lock_delay: self.lock_delay,
            renew_every,
            validity,
            release_timeout: self.release_timeout,
            cancel_on: self.cancel_on.clone(),
            wait: Wait { place: self.place_within_ttl(), waiters_max: self.waiters_max },
            patience: self.patience.unwrap_or(self.ttl),
            replicas: match self.durability {
                Durability::Store => 0,
                Durability::Replicas(replicas) => replicas,
            },
            full_ttl: self.full_ttl,
            journal: self.journal,
            options: self.clone(),
        })
    }

    /// A grant to a waiter lasts for the rest of its place, and no grant may outlast its ttl.
    fn place_within_ttl(&self) -> Duration {
        self.place.min(self.ttl.max(PLACE_MIN))
    }

    /// A lock that is renewed too late to be kept, or all the time, is of no use to anybody.
    fn check_renewal(&self, validity: Validity) -> Result<Duration, Invalid> {
        if !(self.renew_at > 0.0 && self.renew_at < 1.0) {
            return Err(Invalid::new("renew_at", self.renew_at, "must be between 0 and 1"));
        }
        let every = |fraction| self.ttl.mul_f64(fraction);
        let in_time = |every: Duration| every + RENEWAL_MIN < validity.of(self.ttl);
        if !in_time(every(RENEW_AT)) {
            let why = "must be longer: after the safety margin no time is left to renew it";
            return Err(Invalid::new("ttl", format_args!("{:?}", self.ttl), why));
        }
        let every = every(self.renew_at);
        if every < Duration::from_millis(1) {
            let why = "must leave at least a millisecond between two renewals";
            return Err(Invalid::new("renew_at", self.renew_at, why));
        }
        if !in_time(every) {
            let why = "must be smaller: the lease would be over before it is renewed";
            return Err(Invalid::new("renew_at", self.renew_at, why));
        }
        Ok(every)
    }

    fn check_times(&self) -> Result<Validity, Invalid> {
        let refuse =
            |what, value: Duration, why| Err(Invalid::new(what, format_args!("{value:?}"), why));
        if self.ttl < TTL_MIN {
            return refuse("ttl", self.ttl, "must be at least 1 ms");
        }
        if self.ttl > TTL_MAX {
            return refuse("ttl", self.ttl, "must be at most 365 days");
        }
        if !(0.0..=0.5).contains(&self.drift) {
            return Err(Invalid::new("drift", self.drift, "must be between 0 and 0.5"));
        }
        if self.drift_margin < LEASE_MARGIN || self.drift_margin > TTL_MAX {
            return refuse("drift_margin", self.drift_margin, "must be between 2 ms and 365 days");
        }
        if self.release_timeout.is_zero() || self.release_timeout > TTL_MAX {
            let why = "must be longer than zero and at most 365 days";
            return refuse("release_timeout", self.release_timeout, why);
        }
        let validity = Validity { drift: self.drift, margin: self.drift_margin };
        if self.place < PLACE_MIN || self.place > TTL_MAX {
            return refuse("place", self.place, "must be between 50 ms and 365 days");
        }
        if self.lock_delay > TTL_MAX - self.ttl {
            return refuse("lock_delay", self.lock_delay, "and ttl must be at most 365 days");
        }
        if self.hold_at_least > TTL_MAX {
            return refuse("hold_at_least", self.hold_at_least, "must be at most 365 days");
        }
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return refuse("max_hold", Duration::ZERO, "must be longer than zero");
        }
        if self.waiters_max == 0 {
            return Err(Invalid::new("waiters_max", 0, "must be at least 1"));
        }
        Ok(validity)
    }
}

/// Options that passed the check.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) wait_mode: WaitMode,
    pub(crate) owner: Label,
    pub(crate) reason: Option<Label>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_at_least: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) renew_every: Duration,
    pub(crate) validity: Validity,
    pub(crate) release_timeout: Duration,
    pub(crate) cancel_on: Option<CancellationToken>,
    pub(crate) wait: Wait,
    pub(crate) patience: Duration,
    /// How many replicas must have a grant.
    pub(crate) replicas: u32,
    /// A grant must be good for the full ttl.
    pub(crate) full_ttl: bool,
    /// How much of the past is kept, if any.
    pub(crate) journal: Option<Retention>,
    options: Options,
}

impl Settings {
    pub(crate) fn default_checked() -> Arc<Self> {
        Arc::new(Options::default().check().expect("the defaults are in range"))
    }

    /// These settings with some of them changed.
    pub(crate) fn configure(
        &self,
        change: impl FnOnce(Options) -> Options,
    ) -> Result<Arc<Self>, Invalid> {
        change(self.options.clone()).check().map(Arc::new)
    }

    /// True if the token that these settings depend on was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel_on.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Ends when the token that these settings depend on is cancelled.
    pub(crate) async fn until_cancelled(&self) {
        match &self.cancel_on {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// The lease that the store is asked for.
    pub(crate) fn lease(&self) -> Duration {
        self.ttl + self.lock_delay
    }
}

/// `user@host:pid`, as far as the machine tells.
fn default_owner() -> Label {
    static OWNER: OnceLock<Label> = OnceLock::new();
    let make = || {
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
        let user = if user.is_empty() { "unknown" } else { &user };
        let whole = format!("{user}@{}:{}", host(), std::process::id());
        Label::new("owner", whole).unwrap_or_else(|_| plain_owner())
    };
    OWNER.get_or_init(make).clone()
}

fn plain_owner() -> Label {
    Label::new("owner", format!("process:{}", std::process::id())).expect("short and printable")
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn host() -> String {
    let name = std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME"));
    name.unwrap_or_else(|_| "localhost".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_refused_by_name() {
        let second = Duration::from_secs(1);
        let bad: [(&str, Options); 21] = [
            ("ttl", Options::default().ttl(Duration::ZERO)),
            ("ttl", Options::default().ttl(Duration::from_micros(500))),
            ("ttl", Options::default().ttl(Duration::from_nanos(999_999))),
            ("ttl", Options::default().ttl(Duration::from_millis(1))),
            ("ttl", Options::default().ttl(Duration::MAX)),
            ("owner", Options::default().owner("")),
            ("owner", Options::default().owner("x".repeat(1 << 20))),
            ("reason", Options::default().reason("a\nb")),
            ("renew_at", Options::default().renew_at(0.0)),
            ("renew_at", Options::default().renew_at(1.0)),
            ("renew_at", Options::default().renew_at(f64::NAN)),
            ("renew_at", Options::default().renew_at(0.999)),
            ("renew_at", Options::default().renew_at(1e-9)),
            ("drift", Options::default().drift(-0.1)),
            ("drift", Options::default().drift(f64::NAN)),
            ("drift_margin", Options::default().drift_margin(Duration::from_millis(1))),
            ("release_timeout", Options::default().release_timeout(Duration::ZERO)),
            ("place", Options::default().place(Duration::from_millis(1))),
            ("lock_delay", Options::default().ttl(second).lock_delay(TTL_MAX)),
            ("max_hold", Options::default().max_hold(Duration::ZERO)),
            ("waiters_max", Options::default().waiters_max(0)),
        ];
        for (what, options) in bad {
            let refused = options.check().unwrap_err();
            assert_eq!(refused.what, what, "{refused}");
        }
    }

    #[test]
    fn the_default_owner_names_this_process() {
        let owner = Options::default().check().unwrap().owner;
        assert!(owner.as_str().ends_with(&format!(":{}", std::process::id())), "{owner}");
    }
}
