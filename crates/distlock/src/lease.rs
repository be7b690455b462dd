//! A hold as plain data, for those who keep it themselves.
//!
//! Long because every form of acquiring has an example and its errors.

use std::time::Duration;

use distlock_core::{
    AttemptId, CAPACITY_MAX, Claim, ClaimId, Invalid, Key, Mode, Moment, NoteEvent, Order,
    QueuePosition, ReleaseOptions, ReleaseOutcome, Renewal, Standing, TTL_MIN, Target, Ticket,
};

use crate::engine::{Grant, KeptPlace, WaitLimit, release, renew};
use crate::keeper::RELEASE_MAX;
use crate::lock::{Lock, Shape};
#[cfg(feature = "metrics")]
use crate::observe::HeldCount;
use crate::observe::{NoteSubject, word};
use crate::options::Options;
use crate::{Error, HoldEnd, LossReason};

/// A hold as plain data: no client renews it, and dropping it releases nothing.
///
/// With the feature `serde` a lease can be written down, handed to another process and adopted
/// there. It contains the claim id: the client that has the lease can extend and release it.
#[derive(Clone, Debug)]
#[must_use = "no client renews or releases a lease but its owner"]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "LeaseJson", into = "LeaseJson"))]
pub struct Lease {
    key: Key,
    id: ClaimId,
    fence: u64,
    ttl: Duration,
    valid_until: Moment,
    /// When it was granted, for those who saw it granted.
    since: Option<Moment>,
    /// How it is held, for the journal.
    mode: Mode,
    /// The call that got it, if its id is the caller's. Not written down: it belongs to this
    /// process.
    attempt: Option<AttemptId>,
}

impl Lease {
    pub(crate) fn new(
        claim: &Claim,
        mode: Mode,
        fence: u64,
        ttl: Duration,
        valid_until: Moment,
    ) -> Self {
        Self {
            key: claim.key.clone(),
            id: claim.id,
            fence,
            ttl,
            valid_until,
            since: None,
            mode,
            attempt: None,
        }
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The secret that extends and releases the lease.
    pub fn id(&self) -> ClaimId {
        self.id
    }

    /// The fencing token. Raise it at the resource before you read there: see
    /// [`Guard::fence`](crate::Guard::fence).
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// How long each grant or extension lasts.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim::new(self.key.clone(), self.id)
    }
}

/// A lease as it is written down. Its end is not part of it: clocks of two machines, or of two
/// boots, cannot be compared, so a lease that was read counts as ended until it is extended.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseJson {
    key: String,
    id: String,
    fence: u64,
    ttl_ms: u64,
    /// As the journal writes it; left out if exclusive, as earlier versions did for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

#[cfg(feature = "serde")]
impl From<Lease> for LeaseJson {
    fn from(lease: Lease) -> Self {
        Self {
            key: lease.key.to_string(),
            id: lease.id.reveal(),
            fence: lease.fence,
            ttl_ms: u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX),
            mode: (lease.mode != Mode::Exclusive).then(|| lease.mode.to_string()),
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<LeaseJson> for Lease {
    type Error = Invalid;

    fn try_from(written: LeaseJson) -> Result<Self, Self::Error> {
        let claim = Claim::new(Key::new(written.key)?, written.id.parse()?);
        let ttl = Duration::from_millis(written.ttl_ms);
        let mode = written.mode.map_or(Ok(Mode::Exclusive), |mode| mode.parse())?;
        Ok(Self::new(&claim, mode, written.fence, ttl, Moment::ORIGIN))
    }
}

/// The leases of one key: every verb is one call, and nothing happens in the background but the
/// heartbeats of a call that waits.
///
/// The options `max_hold` and `hold_at_least` are the keeper's and mean nothing here.
///
/// For programs that keep locks themselves: services that answer for others, scripts, hand-over
/// between processes. Everybody else wants a [`Mutex`](crate::Mutex).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{HoldEnd, Locks};
///
/// let locks = Locks::memory();
/// let leases = locks.lease("batch")?;
/// let mut lease = leases.acquire().await?;
/// leases.extend(&mut lease).await?;
/// assert_eq!(leases.release(&lease).await?, HoldEnd::Released);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Leases {
    pub(crate) lock: Lock,
    shape: Shape,
    /// The order, if one was chosen.
    order: Option<Order>,
}

/// What [`Leases::acquire_or_queue`] came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "no client renews or releases a lease but its owner"]
pub enum QueueOutcome {
    /// The lease was granted.
    Granted(Lease),
    /// The id waits in the queue. Its place lives for `place` from now on: a client that asks again
    /// under the same id before that keeps it.
    Waiting {
        /// The number of the place.
        ticket: Ticket,
        /// How many wait ahead.
        ahead: u64,
        /// When the first holder's lease ends unless it is renewed.
        retry_after: Option<Duration>,
        /// How long the place lives.
        place: Duration,
    },
}

impl Leases {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock, shape: Shape::MUTEX, order: None }
    }

    /// Leases that hold together with other shared ones and exclude all others, as the readers of a
    /// [`RwLock`](crate::RwLock) do. Exclusive leases and mutexes of the same key are its writers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let readers = locks.lease("config")?.shared();
    /// let (one, two) = (readers.acquire().await?, readers.acquire().await?);
    /// assert!(locks.lease("config")?.try_acquire().await.is_err());
    /// # let _ = (one, two);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shared(self) -> Self {
        let default = || self.lock.keeper.backend.capabilities().default_order();
        let shape = Shape::read(self.order.unwrap_or_else(default), None);
        Self { shape, ..self }
    }

    /// Leases of `n` out of `permits`, as those of a [`Semaphore`](crate::Semaphore).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if `n` is zero or more than `permits`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let uploads = distlock::Locks::memory().lease("uploads")?.permits(1, 2)?;
    /// let (one, two) = (uploads.acquire().await?, uploads.acquire().await?);
    /// assert!(uploads.try_acquire().await.is_err());
    /// # let _ = (one, two);
    /// # Ok(()) }
    /// ```
    pub fn permits(self, n: u32, permits: u32) -> Result<Self, Error> {
        if permits == CAPACITY_MAX {
            return Err(Invalid::new("permits", permits, "must be below 2^32 - 1").into());
        }
        if n == 0 || n > permits {
            return Err(Invalid::new("permits", n, "must be between 1 and all there are").into());
        }
        let shape = Shape::permits(n, permits);
        let order = self.order.unwrap_or(shape.order);
        Ok(Self { shape: Shape { order, ..shape }, ..self })
    }

    /// Who goes first. All sharers of a key must agree while it is in use; exclusive leases work
    /// beside any order. Default: that of [`RwLock::order`](crate::RwLock::order) for shared
    /// leases, first come, first served for permits.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { shape: Shape { order, ..self.shape }, order: Some(order), ..self }
    }

    /// Changes the options of these leases.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.configure(change)?, ..self.clone() })
    }

    /// How long the lease is sure to last by this machine's clock; zero if it has ended.
    pub fn remaining(&self, lease: &Lease) -> Duration {
        lease.valid_until.since(self.lock.keeper.clock.now())
    }

    /// Acquires, waiting up to `max_wait`.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.acquire().await?;
    /// assert!(leases.try_acquire().await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Lease, Error> {
        self.take(None, self.lock.limit()).await
    }

    /// Acquires if it is free.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if it is not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what was granted meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let lease = distlock::Locks::memory().lease("batch")?.try_acquire().await?;
    /// # let _ = lease;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Lease, Error> {
        self.take(None, WaitLimit::Once).await
    }

    /// Acquires, waiting at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it is still held then.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.try_acquire_for(Duration::from_millis(10)).await?;
    /// # let _ = lease;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_for(&self, max_wait: Duration) -> Result<Lease, Error> {
        self.take(None, WaitLimit::from_max_wait(Some(max_wait))).await
    }

    /// Acquires under a claim id of the caller's, waiting up to `max_wait`. Asking again under the
    /// same id gets the same lease, so a caller that lost the answer can simply repeat the call.
    ///
    /// The id must be unguessable and serve one acquisition only.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). After a transient [`Error::Backend`] the id may hold or not:
    /// ask again, or release it. [`Error::NotHeld`] if the id was given up before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or running into a timeout, gives up what this call got. Another call
    /// under the same id that got the lease, or is about to, keeps it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::ClaimId;
    ///
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let id: ClaimId = "0123456789abcdef0123456789abcdef".parse()?;
    /// let first = leases.acquire_as(id).await?;
    /// let again = leases.acquire_as(id).await?;
    /// assert_eq!(first.fence(), again.fence());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_as(&self, id: ClaimId) -> Result<Lease, Error> {
        self.take(Some(id), self.lock.limit()).await
    }

    /// Acquires under a claim id of the caller's, if the key is free. See
    /// [`acquire_as`](Self::acquire_as).
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if it is not free.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_as`](Self::acquire_as).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.try_acquire_as("0123456789abcdef0123456789abcdef".parse()?).await?;
    /// # let _ = lease;
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_as(&self, id: ClaimId) -> Result<Lease, Error> {
        self.take(Some(id), WaitLimit::Once).await
    }

    /// Acquires under a claim id of the caller's, waiting up to `max_wait`, and keeps the place in
    /// the queue if that was not enough: for those who would rather come back than hang on. The
    /// place lives as long as the option `place` says, and a client that asks again under the same
    /// id, from this process or another, goes on waiting where it stood.
    ///
    /// # Errors
    ///
    /// As [`acquire_as`](Self::acquire_as), and [`Error::Unsupported`] if the backend has no queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, unless another call under the same id waits there or
    /// has kept the place; then the place lives as long as that call or the option `place` says.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// use distlock::{ClaimId, QueueOutcome};
    ///
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let leases = leases.configure(|o| o.max_wait(Duration::ZERO))?;
    /// let first = leases.acquire().await?;
    ///
    /// let id: ClaimId = "0123456789abcdef0123456789abcdef".parse()?;
    /// let turn = leases.acquire_or_queue(id).await?;
    /// assert!(matches!(turn, QueueOutcome::Waiting { ahead: 0, .. }));
    /// leases.release(&first).await?;
    /// let turn = leases.acquire_or_queue(id).await?;
    /// assert!(matches!(turn, QueueOutcome::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub async fn acquire_or_queue(&self, id: ClaimId) -> Result<QueueOutcome, Error> {
        let (keeper, settings) = (&self.lock.keeper, &self.lock.settings);
        if !keeper.backend.capabilities().queue {
            return Err(Error::Unsupported { what: "a queue" });
        }
        let max_wait = settings.max_wait.unwrap_or(Duration::MAX);
        let attempt = AttemptId::random().map_err(Error::from_fault)?;
        let shape = self.shape.clone();
        let timeout = match self.lock.lease_or_place(shape, (id, attempt), max_wait).await {
            Ok(grant) => {
                return Ok(QueueOutcome::Granted(self.granted(&grant)));
            }
            Err(error @ Error::Timeout { .. }) => error,
            Err(error) => return Err(error),
        };
        let place = settings.wait.place;
        let mut lease = Lease { attempt: Some(attempt), ..self.lease_of(id) };
        let renewal = Renewal::hold(lease.claim(), place);
        // A caller that does not learn where the id stands cannot come back to it.
        let (claim, span) = (lease.claim(), settings.lease());
        let mut kept = KeptPlace { keeper, claim, attempt, lease: span, heard: false };
        let turn = match renew(&*keeper.backend, renewal, RELEASE_MAX).await {
            Ok(Standing::Waiting(waiting)) => {
                let QueuePosition { ticket, ahead, retry_after } = waiting;
                QueueOutcome::Waiting { ticket, ahead, retry_after, place }
            }
            Ok(Standing::Held { .. }) => {
                self.extend(&mut lease).await?;
                QueueOutcome::Granted(lease)
            }
            Ok(_) => return Err(timeout),
            Err(fault) => return Err(Error::from_fault(fault)),
        };
        kept.heard = true;
        Ok(turn)
    }

    /// Counts a lease of this key in the gauge `distlock_held` for as long as the value lives. For
    /// those who keep leases for others and know when they end; guards count by themselves.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.acquire().await?;
    /// let held = leases.count_held();
    /// leases.release(&lease).await?;
    /// drop(held);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn count_held(&self) -> HeldCount {
        HeldCount::new(&self.lock.keeper.observer, &self.lock.key)
    }

    /// A lease from the id alone, for those who kept nothing else of it. It counts as ended until
    /// it is extended; releasing it works at once.
    pub fn lease_of(&self, id: ClaimId) -> Lease {
        let claim = Claim::new(self.lock.key.clone(), id);
        Lease::new(&claim, self.shape.mode(), 0, self.lock.settings.ttl, Moment::ORIGIN)
    }

    /// Finds the lease that an id holds; none if it holds nothing. Extends nothing, so the lease
    /// counts as ended until it is extended.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.acquire().await?;
    /// let found = leases.find(lease.id()).await?;
    /// assert_eq!(found.map(|found| found.fence()), Some(lease.fence()));
    /// # Ok(()) }
    /// ```
    pub async fn find(&self, id: ClaimId) -> Result<Option<Lease>, Error> {
        // A renewal never shortens, so one for the shortest time there is only looks.
        let mut lease = self.lease_of(id);
        let renewal = Renewal::hold(lease.claim(), TTL_MIN);
        let standing = renew(&*self.lock.keeper.backend, renewal, RELEASE_MAX).await;
        match standing.map_err(Error::from_fault)? {
            Standing::Held { fence } => {
                lease.fence = fence;
                Ok(Some(lease))
            }
            _ => Ok(None),
        }
    }

    /// Extends a lease to the full ttl from now. Never shortens it, never acquires, never waits.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the lease is over; [`Error::Lost`] if the answer took longer than the
    /// extension lasts. After any other error the lease is as it was.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was, or extended at the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let mut lease = leases.acquire().await?;
    /// leases.extend(&mut lease).await?;
    /// leases.release(&lease).await?;
    /// assert!(leases.extend(&mut lease).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, lease: &mut Lease) -> Result<(), Error> {
        let (keeper, settings) = (&self.lock.keeper, &self.lock.settings);
        let sent_at = keeper.clock.now();
        let renewal = Renewal::hold(self.claim(lease)?, settings.lease());
        match renew(&*keeper.backend, renewal, RELEASE_MAX).await {
            Ok(Standing::Held { fence }) => {
                if lease.valid_until > Moment::ORIGIN {
                    keeper.observer.meter.margin(&lease.key, self.remaining(lease));
                }
                let until = settings.validity.until(sent_at, settings.ttl);
                lease.valid_until = lease.valid_until.max(until);
                lease.fence = fence;
                lease.ttl = settings.ttl;
                if self.remaining(lease).is_zero() {
                    let (key, reason) = (lease.key.clone(), LossReason::TooSlow);
                    return Err(Error::Lost { key, reason });
                }
                Ok(())
            }
            Ok(_) => {
                let why = || word(LossReason::Gone.word());
                if lease.since.is_some() {
                    keeper.observer.meter.lost(&lease.key, LossReason::Gone.word());
                    self.measure_end(lease, "lost", sent_at);
                }
                self.note(lease, sent_at, || NoteEvent::Lost { held: None, why: why() });
                Err(Error::NotHeld { key: lease.key.clone() })
            }
            Err(fault) => Err(Error::from_fault(fault)),
        }
    }

    /// Extends what `id` holds, or acquires under it if it holds nothing, waiting up to `max_wait`.
    /// A hold that exists is never dropped, whatever happens to this call.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend) and [`acquire_as`](Self::acquire_as).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves a hold that existed before; one that did not is given up.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let id = "0123456789abcdef0123456789abcdef".parse()?;
    /// let lease = leases.acquire_or_extend(id).await?;
    /// assert_eq!(leases.acquire_or_extend(id).await?.fence(), lease.fence());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_or_extend(&self, id: ClaimId) -> Result<Lease, Error> {
        let mut lease = self.lease_of(id);
        match self.extend(&mut lease).await {
            Ok(()) => Ok(lease),
            Err(Error::NotHeld { .. }) => self.acquire_as(id).await,
            Err(error) => Err(error),
        }
    }

    /// Releases a lease: [`HoldEnd::Released`] if it was held until now, [`HoldEnd::Lost`] if it
    /// was not. Releasing again is harmless and answers [`HoldEnd::Lost`].
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseUncertain`] if the store could not be reached: repeat it, or let it expire.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease released or not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::HoldEnd;
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.acquire().await?;
    /// assert_eq!(leases.release(&lease).await?, HoldEnd::Released);
    /// assert!(matches!(leases.release(&lease).await?, HoldEnd::Lost(_)));
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, lease: &Lease) -> Result<HoldEnd, Error> {
        let target = Target::Claim(self.claim(lease)?);
        match self.identify(lease).await {
            Some((leases, lease)) => leases.release_target(&lease, target).await,
            None => self.release_target(lease, target).await,
        }
    }

    /// What the journal has to know of a lease that is known by its id alone: its fence, and the
    /// owner and reason of its holder. None if nothing is to be noted, or nothing can be found.
    async fn identify(&self, lease: &Lease) -> Option<(Self, Lease)> {
        if self.lock.settings.journal.is_none() || lease.fence > 0 {
            return None;
        }
        let found = self.find(lease.id).await.ok()??;
        let seen = self.lock.keeper.backend.inspect(&lease.key).await.ok();
        let mut holders = seen.into_iter().flat_map(|seen| seen.holders);
        let Some(holder) = holders.find(|holder| holder.fence == found.fence) else {
            return Some((self.clone(), found));
        };
        let named = self.clone().configure(|o| {
            let o = o.owner(holder.owner.as_str());
            if let Some(reason) = &holder.reason { o.reason(reason.as_str()) } else { o }
        });
        Some((named.unwrap_or_else(|_| self.clone()), found))
    }

    /// Counts a lease as lost, in the metrics and in the journal, for a program that keeps leases
    /// for others and found out that this one ended without a release. Changes nothing at the
    /// store. Guards, [`extend`](Self::extend) and [`release`](Self::release) count by themselves.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::LossReason;
    ///
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.acquire().await?;
    /// // Later, when the lease has expired:
    /// leases.count_lost(&lease, LossReason::Expired);
    /// # Ok(()) }
    /// ```
    pub fn count_lost(&self, lease: &Lease, reason: LossReason) {
        let keeper = &self.lock.keeper;
        let now = keeper.clock.now();
        keeper.observer.lost();
        keeper.observer.meter.lost(&lease.key, reason.word());
        self.measure_end(lease, "lost", now);
        // The operator who breaks a hold notes that down.
        if reason != LossReason::Broken {
            self.note(lease, now, || NoteEvent::Lost { held: None, why: word(reason.word()) });
        }
    }

    /// Gives up what one call got under an id of its caller's, for a caller that never received it:
    /// [`HoldEnd::Released`] if that ended the lease. If another call under the same id has the
    /// lease, too, it stays, and the answer is [`HoldEnd::Lost`]. A lease that was not acquired
    /// under an id of the caller's is released.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease given up or not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::HoldEnd;
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let id = "0123456789abcdef0123456789abcdef".parse()?;
    /// let lost = leases.acquire_as(id).await?;
    /// let repeated = leases.acquire_as(id).await?;
    /// assert!(matches!(leases.give_up(&lost).await?, HoldEnd::Lost(_)));
    /// assert_eq!(leases.release(&repeated).await?, HoldEnd::Released);
    /// # Ok(()) }
    /// ```
    pub async fn give_up(&self, lease: &Lease) -> Result<HoldEnd, Error> {
        let claim = self.claim(lease)?;
        let target = match lease.attempt {
            Some(attempt) => Target::Attempt { claim, attempt },
            None => Target::Claim(claim),
        };
        self.release_target(lease, target).await
    }

    async fn release_target(&self, lease: &Lease, target: Target) -> Result<HoldEnd, Error> {
        let keeper = &self.lock.keeper;
        let sent_at = keeper.clock.now();
        let patience = self.lock.settings.release_timeout;
        match release(&*keeper.backend, &target, ReleaseOptions::default(), patience).await {
            Ok(ReleaseOutcome::WasHeld) => {
                self.measure_end(lease, "released", sent_at);
                self.note(lease, sent_at, || NoteEvent::Released { held: None });
                Ok(HoldEnd::Released)
            }
            Ok(_) => {
                // One that is released again within its time was released before.
                if lease.since.is_some() && lease.valid_until <= sent_at {
                    self.count_lost(lease, LossReason::Expired);
                }
                Ok(HoldEnd::Lost(LossReason::Gone))
            }
            Err(source) => Err(Error::ReleaseUncertain { key: lease.key.clone(), source }),
        }
    }

    async fn take(&self, id: Option<ClaimId>, limit: WaitLimit) -> Result<Lease, Error> {
        let grant = self.lock.lease(self.shape.clone(), id, limit).await?;
        Ok(self.granted(&grant))
    }

    fn granted(&self, grant: &Grant) -> Lease {
        let Lock { keeper, settings, .. } = &self.lock;
        let lease = Lease::new(&grant.claim, grant.mode, grant.fence, settings.ttl, grant.until);
        Lease { since: Some(keeper.clock.now()), attempt: grant.attempt, ..lease }
    }

    /// Tells the meter how a lease ended, if it is known since when it was held.
    fn measure_end(&self, lease: &Lease, end: &'static str, at: Moment) {
        if let Some(since) = lease.since {
            self.lock.keeper.observer.meter.ended(&lease.key, end, at.since(since));
        }
    }

    /// Notes down what became of a lease. One that was never held has no fence.
    fn note(&self, lease: &Lease, at: Moment, what: impl FnOnce() -> NoteEvent) {
        let Lock { keeper, settings, key } = &self.lock;
        if settings.journal.is_none() || lease.fence == 0 {
            return;
        }
        let (mode, fence) = (self.shape.mode(), Some(lease.fence));
        keeper.observer.note(
            NoteSubject { key, settings, mode, acquisition: None, fence },
            || at,
            what,
        );
        let _ = keeper.start();
    }

    /// The claim behind a lease, if it is one of this key.
    fn claim(&self, lease: &Lease) -> Result<Claim, Error> {
        if lease.key != self.lock.key {
            return Err(Error::NotHeld { key: self.lock.key.clone() });
        }
        Ok(lease.claim())
    }
}
