//! What is on its way between clients and store, and what can happen next.

use std::fmt;

use crate::models::book::{BookReply, Number, Who};

/// What a renewal asks for: a waiter its place, a holder its ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RenewalSpan {
    /// The life of a place.
    Place,
    /// The full lease.
    Ttl,
}

/// A message on its way. `heard` is false once its client has stopped waiting for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LockMessage {
    /// A client asks.
    Acquire {
        /// Who.
        who: Who,
        /// A client waits for the answer.
        heard: bool,
    },
    /// A client keeps a claim alive.
    Renew {
        /// Who.
        who: Who,
        /// How long it asks for.
        span: RenewalSpan,
        /// A client waits for the answer.
        heard: bool,
    },
    /// A client gives up.
    Release {
        /// Who.
        who: Who,
        /// The claim id shall stay dead.
        bury: bool,
        /// The client believed that it was waiting.
        waited: bool,
    },
    /// The store answers.
    Answer {
        /// Whom.
        who: Who,
        /// What.
        reply: BookReply,
    },
    /// The store tells a waiter that it holds.
    Push {
        /// Whom.
        who: Who,
        /// The place it had.
        ticket: Number,
        /// The fence it has.
        fence: Number,
    },
}

impl LockMessage {
    /// The client it comes from or goes to.
    pub(super) fn who(&self) -> Who {
        match *self {
            Self::Acquire { who, .. }
            | Self::Renew { who, .. }
            | Self::Release { who, .. }
            | Self::Answer { who, .. }
            | Self::Push { who, .. } => who,
        }
    }

    /// True if the world also lets a second copy of it arrive. A second copy of an ask is what a
    /// client sends when it asks again, and answers are matched with what they answer.
    pub(super) fn may_repeat(&self) -> bool {
        matches!(self, Self::Renew { .. } | Self::Release { .. } | Self::Push { .. })
    }

    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(&mut Number)) {
        match self {
            Self::Push { ticket, fence, .. } => {
                visit(ticket);
                visit(fence);
            }
            Self::Answer { reply: BookReply::Held { fence }, .. } => visit(fence),
            Self::Answer { reply: BookReply::Waiting { ticket, .. }, .. } => visit(ticket),
            _ => {}
        }
    }
}

impl fmt::Display for LockMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = name(self.who());
        match *self {
            Self::Acquire { .. } => write!(f, "{who}'s ask"),
            Self::Renew { span: RenewalSpan::Place, .. } => write!(f, "{who}'s heartbeat"),
            Self::Renew { span: RenewalSpan::Ttl, .. } => write!(f, "{who}'s renewal"),
            Self::Release { bury: true, .. } => write!(f, "{who}'s release, which buries the id"),
            Self::Release { .. } => write!(f, "{who}'s release"),
            Self::Answer { reply, .. } => write!(f, "the answer to {who}: {reply}"),
            Self::Push { ticket, fence, .. } => {
                write!(f, "the push to {who}: ticket {ticket} holds under fence {fence}")
            }
        }
    }
}

/// Something that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockStep {
    /// A client asks for the first time.
    Ask(Who),
    /// A client has waited long enough for the answer and asks again.
    AskAgain(Who),
    /// A client sends a heartbeat or a renewal.
    Renew(Who),
    /// A client no longer waits for the answer to it.
    Forget(Who),
    /// A client releases or cancels.
    GiveUp(Who),
    /// A client has heard nothing of its release and sends it again.
    GiveUpAgain(Who),
    /// A message arrives.
    Arrive(LockMessage),
    /// A copy of a message arrives, and the message itself is still on its way.
    ArriveTwice(LockMessage),
    /// A message is lost.
    Lose(LockMessage),
    /// Time passes.
    Tick,
    /// The store's clock runs ahead.
    Leap,
}

impl fmt::Display for LockStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(who) => write!(f, "{} asks", name(who)),
            Self::AskAgain(who) => write!(f, "{} asks again", name(who)),
            Self::Renew(who) => write!(f, "{} sends a renewal", name(who)),
            Self::Forget(who) => write!(f, "{} stops waiting for the answer", name(who)),
            Self::GiveUp(who) => write!(f, "{} gives up", name(who)),
            Self::GiveUpAgain(who) => write!(f, "{} sends its release again", name(who)),
            Self::Arrive(message) => write!(f, "arrives: {message}"),
            Self::ArriveTwice(message) => write!(f, "a copy arrives: {message}"),
            Self::Lose(message) => write!(f, "lost: {message}"),
            Self::Tick => f.write_str("time passes"),
            Self::Leap => f.write_str("the store's clock runs ahead"),
        }
    }
}

/// Clients are called A, B and so on.
pub(in crate::models) fn name(who: Who) -> char {
    char::from(b'A' + who)
}
