//! What can happen next over a quorum.

use std::fmt;

use crate::models::lock::name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuorumStep {
    Start {
        who: usize,
        least: u8,
    },
    /// A node gets a client's ask and the client its answer.
    Vote {
        who: usize,
        at: usize,
    },
    /// A client has a majority and takes the highest vote.
    Decide {
        who: usize,
    },
    WriteBack {
        who: usize,
        at: usize,
    },
    /// A client gives up, releases, or reaches the end of its validity.
    End {
        who: usize,
    },
    /// A lease ends at a node.
    Vanish {
        at: usize,
    },
    /// A node starts again with nothing in memory.
    Forget {
        at: usize,
    },
    Reseed {
        at: usize,
        from: usize,
    },
    Rejoin {
        at: usize,
    },
}

impl fmt::Display for QuorumStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called = |who: usize| name(u8::try_from(who).unwrap_or_default());
        match *self {
            Self::Start { who, least: 0 } => write!(f, "{} starts", called(who)),
            Self::Start { who, least } => write!(f, "{} starts, proposing {least}", called(who)),
            Self::Vote { who, at } => write!(f, "node {} answers {}", at + 1, called(who)),
            Self::Decide { who } => write!(f, "{} takes the highest vote", called(who)),
            Self::WriteBack { who, at } => {
                write!(f, "{} writes it to node {}", called(who), at + 1)
            }
            Self::End { who } => write!(f, "{} is through", called(who)),
            Self::Vanish { at } => write!(f, "the lease at node {} ends", at + 1),
            Self::Forget { at } => write!(f, "node {} starts again and has forgotten all", at + 1),
            Self::Reseed { at, from } => {
                write!(f, "node {} learns the counter of node {}", at + 1, from + 1)
            }
            Self::Rejoin { at } => write!(f, "node {} votes again", at + 1),
        }
    }
}
