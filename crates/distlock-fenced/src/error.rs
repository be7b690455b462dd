//! Why a fenced read or write did not happen.

/// A resource refused a fence. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A newer holder was here, so this holder has lost its lock. Do not retry: acquire the lock
    /// again and start over with the new fence.
    #[error("fence {fence} is stale, the resource has seen {newest}: acquire the lock again")]
    Stale {
        /// The fence of the caller.
        fence: u64,
        /// The largest fence that the resource has seen.
        newest: u64,
    },
    /// The write was not preceded by a read under the same fence. Read again under it, compute the
    /// new value from that, and write.
    #[error("fence {fence} was not raised, the resource has seen {newest}: read before you write")]
    NotRaised {
        /// The fence of the caller.
        fence: u64,
        /// The largest fence that the resource has seen, or 0.
        newest: u64,
    },
    /// The number is 0 or too large to be the fence of a lock.
    #[error("{fence} is not a fence: fences are between 1 and 2^53 - 1")]
    Invalid {
        /// The fence of the caller.
        fence: u64,
    },
}

/// A fenced read or write failed: the resource refused the fence, or its client reported an error.
#[derive(Debug, thiserror::Error)]
pub enum FencedError<E> {
    /// The resource refused the fence.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The client of the resource failed. Whether the write happened is known only if its own
    /// documentation says so.
    #[error("the resource could not be read or written: {0}")]
    Store(#[source] E),
}

impl<E> FencedError<E> {
    /// The refusal, if it is one.
    pub fn refused(&self) -> Option<Refused> {
        match self {
            Self::Refused(refused) => Some(*refused),
            Self::Store(_) => None,
        }
    }
}
