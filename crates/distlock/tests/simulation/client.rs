//! One client: takes locks of every kind, holds them for a while and gives them back or not.

use std::sync::Arc;
use std::time::Duration;

use distlock::{
    Backoff, ClaimId, Error, Guard, Lease, Leases, Locks, Options, Order, ReentrantGuard,
    ReentryId, WaitMode, WriteGuard,
};
use distlock_testkit::Rng;
use distlock_testkit::history::{AcquireSpec, ValidityEnd};
use tokio::time::{Instant, sleep, timeout};

use crate::planted::Bug;
use crate::witness::{Holding, Witness};
use crate::world::Shared;

/// How often a holder looks at its lock.
const LOOK: Duration = Duration::from_millis(15);

pub(crate) const KEYS: [&str; 4] = ["fifo", "writers", "readers", "fair"];

/// One task of a client.
pub(crate) struct Player {
    pub(crate) name: String,
    pub(crate) locks: Locks,
    pub(crate) witness: Witness,
    pub(crate) shared: Arc<Shared>,
    pub(crate) rng: Rng,
    pub(crate) bug: Bug,
    /// The lock has a `max_hold`, so that it may be forgotten.
    pub(crate) may_leak: bool,
}

/// What kind of lock to take.
#[derive(Clone, Debug)]
enum Kind {
    Mutex,
    Permits(u32, u32),
    Reentrant(ReentryId),
    Lease(Option<ClaimId>),
    Read(Order, Option<&'static str>),
    Write(Order, Option<&'static str>),
}

/// A lock of any kind that was taken.
enum Taken {
    Guard(Guard),
    Writer(WriteGuard),
    Entry(ReentrantGuard),
    Lease(Leases, Lease),
}

impl Taken {
    fn fence(&self) -> u64 {
        match self {
            Self::Guard(guard) => guard.fence(),
            Self::Writer(guard) => guard.fence(),
            Self::Entry(guard) => guard.fence(),
            Self::Lease(_, lease) => lease.fence(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Guard(guard) => guard.remaining(),
            Self::Writer(guard) => guard.remaining(),
            Self::Entry(guard) => guard.remaining(),
            Self::Lease(leases, lease) => leases.remaining(lease),
        }
    }
}

impl Player {
    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.rng.below(to - from))
    }

    fn kind(&mut self, key: &str) -> Kind {
        let order = match key {
            "writers" => Order::PreferWriters,
            "readers" => Order::PreferReaders,
            _ => Order::Fifo,
        };
        let group = *self.rng.pick(&[None, None, None, Some("a"), Some("b")]);
        match (key, self.rng.below(6)) {
            ("fifo", 0) => Kind::Mutex,
            ("fifo", 1) => Kind::Reentrant(ReentryId::random().unwrap()),
            ("fifo", 2) => Kind::Lease(None),
            ("fifo", 3) => Kind::Lease(Some(ClaimId::random().unwrap())),
            ("fifo", _) => {
                let permits = *self.rng.pick(&[2, 3, 3]);
                Kind::Permits(1 + u32::try_from(self.rng.below(2)).unwrap(), permits)
            }
            (_, 0..2) => Kind::Write(order, group),
            (_, _) => Kind::Read(order, group),
        }
    }

    fn options(&mut self, label: &str) -> impl FnOnce(Options) -> Options + use<> {
        let (ttl, place) = (self.millis(150, 600), self.millis(120, 500));
        let max_wait = match self.rng.below(6) {
            0 => Some(Duration::ZERO),
            1 => Some(self.millis(20, 800)),
            _ => None,
        };
        let waiting = match self.rng.below(8) {
            0 => WaitMode::Poll(Backoff::fixed(self.millis(10, 60))),
            _ => WaitMode::Queue,
        };
        let patience = self.millis(500, 5_000);
        let hold_at_least = if self.rng.chance(0.1) { self.millis(1, 200) } else { Duration::ZERO };
        let lock_delay = if self.rng.chance(0.1) { self.millis(1, 300) } else { Duration::ZERO };
        let max_hold = self.rng.chance(0.3).then(|| self.millis(50, 900));
        self.may_leak = max_hold.is_some();
        let label = label.to_owned();
        move |options| {
            let options = options.ttl(ttl).place(place).max_wait(max_wait).wait_mode(waiting);
            let options = options.hold_at_least(hold_at_least).lock_delay(lock_delay);
            options.owner(label).patience(patience).max_hold(max_hold)
        }
    }

    pub(crate) async fn play(mut self, rounds: u64) {
        for round in 0..rounds {
            let key = *self.rng.pick(&self.shared.keys);
            let kind = self.kind(key);
            let label = format!("{}/{round}", self.name);
            let options = self.options(&label);
            let locks = self.locks.configure(options).unwrap();
            self.shared.doing(&self.name, format!("round {round}: {kind:?} of {key}"));
            if let Some(taken) = self.take(&locks, &label, key, &kind).await {
                self.nest(&locks, &label, key, &kind).await;
                self.hold(taken, &kind).await;
            }
            let pause = self.millis(0, 80);
            sleep(pause).await;
            self.witness.gate.open().await;
        }
        self.shared.doing(&self.name, "done".into());
    }

    /// Asks, and changes its mind now and then.
    async fn take(
        &mut self,
        locks: &Locks,
        label: &str,
        key: &str,
        kind: &Kind,
    ) -> Option<(Taken, Holding)> {
        self.witness.asks(label, wish(key, kind));
        let asking = acquire(locks, key, kind);
        let patience = if self.rng.chance(0.25) { self.millis(0, 300) } else { Duration::MAX };
        let answer = timeout(patience, asking).await;
        self.witness.gate.open().await;
        let taken = match answer {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => {
                self.shared.refused(&error);
                return None;
            }
            Err(_) => {
                self.shared.cancelled();
                return None;
            }
        };
        self.shared.granted(&self.name);
        let looks = self.bug != Bug::ClientsIgnoreLoss;
        // A client that was paused may find that it has lost what it never knew it had.
        if looks && (taken.remaining().is_zero() || self.shared.is_broken(key, taken.fence())) {
            return None;
        }
        let holding = self.witness.granted(label, taken.fence());
        self.shared.holds(&holding);
        if looks {
            holding.valid_for(taken.remaining());
        }
        Some((taken, holding))
    }

    /// Enters once more where it is inside already.
    async fn nest(&mut self, locks: &Locks, label: &str, key: &str, kind: &Kind) {
        if !matches!(kind, Kind::Reentrant(_)) || self.rng.chance(0.5) {
            return;
        }
        let inner = format!("{label}/inner");
        let locks = locks.configure(|o| o.owner(&inner)).unwrap();
        if let Some(taken) = self.take(&locks, &inner, key, kind).await {
            self.hold(taken, kind).await;
        }
    }

    /// Holds for a while, looking at the lock all the time; then releases it in some way.
    async fn hold(&mut self, (mut taken, holding): (Taken, Holding), kind: &Kind) {
        let until = Instant::now() + self.millis(0, 700);
        while Instant::now() < until {
            sleep(LOOK.min(until - Instant::now())).await;
            self.witness.gate.open().await;
            if self.bug == Bug::ClientsIgnoreLoss {
                continue;
            }
            if taken.remaining().is_zero() {
                holding.end(ValidityEnd::Lost);
                break;
            }
            holding.valid_for(taken.remaining());
            if let Taken::Lease(leases, lease) = &mut taken
                && self.rng.chance(0.2)
            {
                let _ = leases.extend(lease).await;
                self.witness.gate.open().await;
            }
        }
        match (taken, self.rng.below(10)) {
            (Taken::Writer(writer), 0..5) => {
                holding.lowered(1);
                if let Ok(reader) = writer.downgrade().await {
                    self.look(&reader, &holding).await;
                    leave(Taken::Guard(reader), &holding).await;
                }
            }
            (Taken::Guard(guard), 0..2) => self.hand_over(guard, &holding, kind).await,
            (Taken::Guard(guard), 2) if self.may_leak => self.leak(guard, &holding),
            (Taken::Guard(guard), 3..6) => {
                holding.end(ValidityEnd::Released);
                drop(guard);
            }
            (taken, _) => leave(taken, &holding).await,
        }
    }

    async fn look(&mut self, guard: &Guard, holding: &Holding) {
        for _ in 0..self.rng.below(10) {
            self.witness.gate.open().await;
            holding.valid_for(guard.remaining());
            sleep(LOOK).await;
        }
        self.witness.gate.open().await;
    }

    /// The lock goes on as a lease, which is adopted and kept alive again.
    async fn hand_over(&mut self, guard: Guard, holding: &Holding, kind: &Kind) {
        let lease = guard.into_lease();
        let leases = self.locks.lease(lease.key().clone()).unwrap();
        holding.valid_for(leases.remaining(&lease));
        if !matches!(kind, Kind::Mutex | Kind::Permits(..)) {
            // Adopted with the options of all, whose ttl is its own.
            return leave(Taken::Lease(leases, lease), holding).await;
        }
        match self.locks.adopt(&lease).await {
            Ok(guard) => {
                // A hold of its own, for those who count.
                self.shared.granted(&self.name);
                self.look(&guard, holding).await;
                leave(Taken::Guard(guard), holding).await;
            }
            Err(_) => leave(Taken::Lease(leases, lease), holding).await,
        }
    }

    /// Forgets a guard. Only `max_hold`, or the end of its client, ends it then.
    fn leak(&mut self, guard: Guard, holding: &Holding) {
        holding.valid_for(guard.remaining());
        self.shared.leaked(holding, guard.watch());
        std::mem::forget(guard);
    }
}

async fn leave(taken: Taken, holding: &Holding) {
    holding.end(ValidityEnd::Released);
    match taken {
        Taken::Guard(guard) => drop(guard.release().await),
        Taken::Writer(guard) => drop(guard.release().await),
        Taken::Entry(guard) => drop(guard.release().await),
        Taken::Lease(leases, lease) => drop(leases.release(&lease).await),
    }
}

fn wish(key: &str, kind: &Kind) -> AcquireSpec {
    let group = |group: &Option<&str>| group.map(str::to_owned);
    match kind {
        Kind::Mutex | Kind::Lease(_) => AcquireSpec::mutex(key),
        Kind::Permits(n, of) => AcquireSpec::permits(key, *n, *of),
        Kind::Reentrant(id) => {
            let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
            AcquireSpec {
                thread: Some(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
                ..AcquireSpec::mutex(key)
            }
        }
        Kind::Read(order, of) => AcquireSpec { group: group(of), ..AcquireSpec::read(key, *order) },
        Kind::Write(order, of) => {
            AcquireSpec { group: group(of), ..AcquireSpec::write(key, *order) }
        }
    }
}

async fn acquire(locks: &Locks, key: &str, kind: &Kind) -> Result<Taken, Error> {
    let rwlock = |order: &Order, group: &Option<&str>| {
        let lock = locks.rwlock(key)?.order(*order);
        group.map_or(Ok(lock.clone()), |group| lock.group(group))
    };
    match kind {
        Kind::Mutex => locks.mutex(key)?.lock().await.map(Taken::Guard),
        Kind::Permits(n, of) => locks.semaphore(key, *of)?.acquire_many(*n).await.map(Taken::Guard),
        Kind::Reentrant(id) => locks.reentrant(key)?.owner_as(*id).lock().await.map(Taken::Entry),
        Kind::Lease(id) => {
            let leases = locks.lease(key)?;
            let lease = match id {
                Some(id) => leases.acquire_as(*id).await?,
                None => leases.acquire().await?,
            };
            Ok(Taken::Lease(leases, lease))
        }
        Kind::Read(order, group) => rwlock(order, group)?.read().await.map(Taken::Guard),
        Kind::Write(order, group) => rwlock(order, group)?.write().await.map(Taken::Writer),
    }
}
