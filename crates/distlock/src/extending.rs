//! Extending a lease in other ways than by its own ttl and once.

use std::time::Duration;

use crate::engine::backoff::{fault_pause, random};
use crate::{Error, Lease, Leases};

impl Leases {
    /// The same leases with another ttl, for one call or for many.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the ttl is out of range.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let lease = leases.with_ttl(Duration::from_secs(300))?.acquire().await?;
    /// assert_eq!(lease.ttl(), Duration::from_secs(300));
    /// # Ok(()) }
    /// ```
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, Error> {
        self.clone().configure(|o| o.ttl(ttl))
    }

    /// Extends a lease so that it lasts this long from now; one that lasts longer stays as it is.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend), and [`Error::Invalid`] if the ttl is out of range.
    ///
    /// # Cancel safety
    ///
    /// As [`extend`](Self::extend).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let mut lease = leases.acquire().await?;
    /// leases.extend_for(&mut lease, Duration::from_secs(300)).await?;
    /// assert!(leases.remaining(&lease) > Duration::from_secs(290));
    /// # Ok(()) }
    /// ```
    pub async fn extend_for(&self, lease: &mut Lease, ttl: Duration) -> Result<(), Error> {
        self.with_ttl(ttl)?.extend(lease).await
    }

    /// Extends a lease to the full ttl, and repeats that while the store cannot be reached: until
    /// the lease ends by this machine's clock, or for `patience` if its end is not known.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend); a transient fault only after the last repetition.
    ///
    /// # Cancel safety
    ///
    /// As [`extend`](Self::extend).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let leases = distlock::Locks::memory().lease("batch")?;
    /// let mut lease = leases.acquire().await?;
    /// leases.extend_retrying(&mut lease).await?;
    /// # Ok(()) }
    /// ```
    pub async fn extend_retrying(&self, lease: &mut Lease) -> Result<(), Error> {
        let (clock, settings) = (&self.lock.keeper.clock, &self.lock.settings);
        let until = match self.remaining(lease) {
            Duration::ZERO => clock.now().after(settings.patience),
            left => clock.now().after(left),
        };
        let mut faults = 0;
        loop {
            let error = match self.extend(lease).await {
                Err(error @ (Error::Backend(_) | Error::NoQuorum { .. })) => error,
                done => return done,
            };
            faults += 1;
            let pause = fault_pause(faults, random(lease.id(), faults));
            if !error.is_transient() || until <= clock.now().after(pause) {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }
}
