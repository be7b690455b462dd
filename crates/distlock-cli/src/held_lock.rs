//! A lock that is held, of any kind: one key or several that are one lock as far as loss goes.

use std::time::Duration;

use distlock::{
    Error, Guard, HoldEnd, Key, Lease, LossReason, MultiGuard, ReentrantGuard, ReentryId,
};

/// A lock that is held, of any kind.
#[derive(Debug)]
pub(crate) enum HeldLock {
    /// Of the usual kind.
    Plain(Guard),
    /// A client that knows the secret may enter again.
    Reentrant(ReentrantGuard, ReentryId),
    /// Several keys.
    Many(MultiGuard),
}

impl HeldLock {
    fn guards(&self) -> Vec<&Guard> {
        match self {
            Self::Plain(guard) => vec![guard],
            Self::Reentrant(guard, _) => vec![guard],
            Self::Many(all) => all.guards().iter().collect(),
        }
    }

    /// The keys, each with its fence.
    pub(crate) fn fences(&self) -> Vec<(Key, u64)> {
        self.guards().into_iter().map(|guard| (guard.key().clone(), guard.fence())).collect()
    }

    /// The fence of a single key; none if there are several.
    pub(crate) fn fence(&self) -> Option<u64> {
        match self.guards()[..] {
            [guard] => Some(guard.fence()),
            _ => None,
        }
    }

    pub(crate) fn waited(&self) -> Duration {
        self.guards().into_iter().map(Guard::waited).max().unwrap_or_default()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guards().into_iter().all(Guard::is_held)
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.guards().into_iter().map(Guard::remaining).min().unwrap_or_default()
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.guards().into_iter().find_map(Guard::loss)
    }

    /// Waits until it is lost, and says why.
    pub(crate) async fn lost(&self) -> LossReason {
        match self {
            Self::Plain(guard) => guard.lost().await,
            Self::Reentrant(guard, _) => guard.lost().await,
            Self::Many(all) => all.lost().await.1,
        }
    }

    /// The secret to enter again.
    pub(crate) fn secret(&self) -> Option<ReentryId> {
        match self {
            Self::Plain(_) | Self::Many(_) => None,
            Self::Reentrant(_, id) => Some(*id),
        }
    }

    /// Hands it over as plain data, a lease for each key; it is not renewed any more.
    pub(crate) fn into_leases(self) -> Vec<Lease> {
        match self {
            Self::Plain(guard) => vec![guard.into_lease()],
            Self::Reentrant(guard, _) => vec![guard.into_lease()],
            Self::Many(all) => all.into_guards().into_iter().map(Guard::into_lease).collect(),
        }
    }

    /// Releases it and tells the truth about it. Of several keys one that was lost is the loss of
    /// all, and one whose release failed makes no other stay.
    pub(crate) async fn release(self) -> Result<HoldEnd, Error> {
        let all = match self {
            Self::Plain(guard) => return guard.release().await,
            Self::Reentrant(guard, _) => return guard.release().await,
            Self::Many(all) => all.release().await,
        };
        let mut whole = Ok(HoldEnd::Released);
        for (_, end) in all {
            match end {
                Ok(HoldEnd::Released) => {}
                Ok(lost) => return Ok(lost),
                Err(error) => whole = Err(error),
            }
        }
        whole
    }
}
