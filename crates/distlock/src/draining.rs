//! Waiting for releases that go on in the background, and releasing on every node of a quorum.

#[cfg(feature = "quorum")]
use crate::Lease;
#[cfg(feature = "quorum")]
use crate::backends::ReleaseReport;
use crate::{Error, Locks};

impl Locks {
    /// Waits until every guard and call that was dropped before has released what it had: until
    /// the store has acknowledged it, or its lease is over. Nothing is closed, and what is dropped
    /// meanwhile is not waited for.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the background task cannot be started.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// drop(locks.mutex("deploy")?.lock().await?);
    /// locks.drained().await?;
    /// assert!(locks.inspect("deploy").await?.is_free());
    /// # Ok(()) }
    /// ```
    pub async fn drained(&self) -> Result<(), Error> {
        let leaving = self.keeper.leaving();
        if !leaving.is_empty() {
            self.keeper.start()?;
        }
        for left in leaving {
            // The channel ends when the release has.
            let _ = left.await;
        }
        Ok(())
    }

    /// Releases a lease on every node of a quorum that was opened by its URL, and waits until each
    /// has answered or failed. `release` returns as soon as a majority has.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the locks are not on a `quorum:` URL.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease released on some nodes and not on others: call it
    /// again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Error, Locks};
    ///
    /// let locks = Locks::memory();
    /// let lease = locks.lease("import")?.acquire().await?;
    /// let refused = locks.release_everywhere(&lease).await;
    /// assert!(matches!(refused, Err(Error::Unsupported { .. })));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "quorum")]
    pub async fn release_everywhere(&self, lease: &Lease) -> Result<ReleaseReport, Error> {
        match &self.quorum {
            Some(quorum) => Ok(quorum.release_everywhere(lease.key(), lease.id()).await),
            None => Err(Error::Unsupported { what: "a release on every node" }),
        }
    }
}
