//! A hold as plain data, for threads that keep it themselves.

use std::time::Duration;

use super::runtime::BlockingRuntime;
use crate::options::Options;
use crate::{ClaimId, Error, HoldEnd, Lease, Order, QueueOutcome};

/// The leases of one key. See [`crate::Leases`].
///
/// ```
/// use distlock::{HoldEnd, blocking::Locks};
///
/// # fn main() -> Result<(), distlock::Error> {
/// let leases = Locks::memory()?.lease("batch")?;
/// let mut lease = leases.acquire()?;
/// leases.extend(&mut lease)?;
/// assert_eq!(leases.release(&lease)?, HoldEnd::Released);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Leases {
    pub(super) leases: crate::Leases,
    pub(super) runtime: BlockingRuntime,
}

/// `name(arguments) -> what comes of it`: the call of the same name, run to its end.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $done:ty;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`crate::Leases::", stringify!($name), "`], and")]
        /// [`Error::AsyncContext`] inside an async task.
        pub fn $name(&self $(, $argument: $kind)*) -> Result<$done, Error> {
            self.runtime.wait(self.leases.$name($($argument),*))
        })*
    };
}

impl Leases {
    /// Leases that hold together with other shared ones. See [`crate::Leases::shared`].
    #[must_use]
    pub fn shared(self) -> Self {
        Self { leases: self.leases.shared(), ..self }
    }

    /// Leases of `n` out of `permits`. See [`crate::Leases::permits`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if `n` is zero or more than `permits`.
    pub fn permits(self, n: u32, permits: u32) -> Result<Self, Error> {
        Ok(Self { leases: self.leases.permits(n, permits)?, ..self })
    }

    /// Who goes first. See [`crate::Leases::order`].
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { leases: self.leases.order(order), ..self }
    }

    /// Changes the options of these leases.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { leases: self.leases.configure(change)?, ..self })
    }

    /// The same leases with another ttl. See [`crate::Leases::with_ttl`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the ttl is out of range.
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, Error> {
        Ok(Self { leases: self.leases.with_ttl(ttl)?, ..self.clone() })
    }

    /// How long the lease is sure to last by this machine's clock; zero if it has ended.
    pub fn remaining(&self, lease: &Lease) -> Duration {
        self.leases.remaining(lease)
    }

    /// A lease from the id alone. See [`crate::Leases::lease_of`].
    pub fn lease_of(&self, id: ClaimId) -> Lease {
        self.leases.lease_of(id)
    }

    calls! {
        /// Acquires, waiting up to `max_wait`.
        acquire() -> Lease;
        /// Acquires if it is free.
        try_acquire() -> Lease;
        /// Acquires, waiting at most this long.
        try_acquire_for(max_wait: Duration) -> Lease;
        /// Acquires under a claim id of the caller's.
        acquire_as(id: ClaimId) -> Lease;
        /// Acquires under a claim id of the caller's, if the key is free.
        try_acquire_as(id: ClaimId) -> Lease;
        /// Acquires under a claim id of the caller's, and keeps the place in the queue if
        /// `max_wait` was not enough.
        acquire_or_queue(id: ClaimId) -> QueueOutcome;
        /// Finds the lease that an id holds.
        find(id: ClaimId) -> Option<Lease>;
        /// Extends a lease to the full ttl from now.
        extend(lease: &mut Lease) -> ();
        /// Extends a lease so that it lasts this long from now.
        extend_for(lease: &mut Lease, ttl: Duration) -> ();
        /// Extends a lease, and repeats that while the store cannot be reached.
        extend_retrying(lease: &mut Lease) -> ();
        /// Extends what `id` holds, or acquires under it.
        acquire_or_extend(id: ClaimId) -> Lease;
        /// Releases a lease.
        release(lease: &Lease) -> HoldEnd;
        /// Gives up what one call got under an id of its caller's.
        give_up(lease: &Lease) -> HoldEnd;
    }
}
