//! What can happen next while clients wait to be woken.

use std::fmt;

use crate::models::book::Who;
use crate::models::lock::name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeStep {
    Ask(Who),
    Subscribe(Who),
    Look(Who),
    Release(Who),
    /// The store gets the next request of a client.
    Serve(Who),
    /// A client gets the next message of the store.
    Read(Who),
    Break(Who),
    Reconnect(Who),
    Crash(Who),
    /// The lease or the place of a crashed client ends.
    End(Who),
}

impl fmt::Display for WakeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(who) => write!(f, "{} asks", name(who)),
            Self::Subscribe(who) => write!(f, "{} subscribes", name(who)),
            Self::Look(who) => write!(f, "{} asks where it stands", name(who)),
            Self::Release(who) => write!(f, "{} releases", name(who)),
            Self::Serve(who) => write!(f, "the store serves {}", name(who)),
            Self::Read(who) => write!(f, "{} reads", name(who)),
            Self::Break(who) => write!(f, "{}'s connection breaks", name(who)),
            Self::Reconnect(who) => write!(f, "{} connects again", name(who)),
            Self::Crash(who) => write!(f, "{} crashes", name(who)),
            Self::End(who) => write!(f, "the lease or place of {} ends", name(who)),
        }
    }
}
