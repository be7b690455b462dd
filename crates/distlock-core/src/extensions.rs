//! What some stores offer beside the verbs, each as a small trait of its own.

use std::fmt;

use crate::{AcquireMany, Confirmed, Fault, Pending, Renewal};

/// A store whose grants reach replicas.
pub trait Replicated: fmt::Debug + Send + Sync {
    /// Renews a hold and waits, for as long as a call may take, until this many replicas of the
    /// store have it; then answers how many do. Fewer than asked for is an answer, not a fault.
    fn confirm<'a>(&'a self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed>;
}

/// A store that can lose what it promised, and notices when that may have happened.
pub trait Reconnecting: fmt::Debug + Send + Sync {
    /// A number that changes whenever the store may have been reached anew: over a new connection,
    /// after a failover. Between two equal ones the store has not restarted, so what it promised
    /// before the first it still knows at the second. No message is sent.
    fn epoch(&self) -> u64;
}

/// A client that goes on with work after its caller has the answer.
pub trait Background: fmt::Debug + Send + Sync {
    /// Waits until that work is done, for as long as a call may take. A fault means that some of it
    /// is left.
    fn drain(&self) -> Pending<'_, ()>;
}

/// The optional traits of a [`Backend`](crate::Backend), and the address of its store. A store
/// without any of them returns the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extensions<'a> {
    /// Where the store is, for errors and logs: a host and port, or a path, without secrets.
    pub location: &'a str,
    /// Grants can be confirmed by replicas. [`Capabilities::durability`] says the same.
    ///
    /// [`Capabilities::durability`]: crate::Capabilities::durability
    pub replicated: Option<&'a dyn Replicated>,
    /// The store may lose its memory while this client lives.
    pub reconnecting: Option<&'a dyn Reconnecting>,
    /// Several keys can be taken in one step.
    pub many: Option<&'a dyn AcquireMany>,
    /// Calls may leave work behind that goes on by itself.
    pub background: Option<&'a dyn Background>,
}

impl<'a> Extensions<'a> {
    /// No optional trait, and the address of the store.
    pub fn at(location: &'a str) -> Self {
        Self { location, ..Self::default() }
    }

    /// [`Replicated::confirm`], or the fault that the store has no replicas.
    pub fn confirm(self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed> {
        match self.replicated {
            Some(store) => store.confirm(renewal, replicas),
            None => {
                Box::pin(async { Err(Fault::unsupported("durability: it confirms no replicas")) })
            }
        }
    }

    /// [`Reconnecting::epoch`], or a constant.
    pub fn epoch(self) -> u64 {
        self.reconnecting.map_or(0, Reconnecting::epoch)
    }

    /// [`Background::drain`], or nothing.
    pub fn drain(self) -> Pending<'a, ()> {
        match self.background {
            Some(client) => client.drain(),
            None => Box::pin(async { Ok(()) }),
        }
    }
}
