//! The optional part of the seam: several keys in one step.

use crate::{Answer, Ask, Pending};

/// A store that takes several keys in one step, all or none.
///
/// Optional: [`Extensions::many`](crate::Extensions::many) says whether a store offers it. Without
/// it the same keys are taken one after the other.
///
/// # Contract
///
/// - **All or none.** One indivisible step grants every ask, or changes nothing but what any verb
///   clears away on the way, and says which ask was refused first.
/// - **One-shot.** No ask queues ([`Ask::wait`] is none) and none overtakes: each is decided by the
///   [law](crate::law) as if it came alone.
/// - **Idempotent by claim**, as [`Backend::acquire`](crate::Backend::acquire): asked again, the
///   same claims get the same fences.
/// - The asks are for different keys, sorted by key. Deadlines, cancellation and faults are those
///   of any call to a backend; after a fault the caller releases each claim with
///   [`How::bury`](crate::ReleaseOptions::bury) set.
pub trait AcquireMany: std::fmt::Debug + Send + Sync {
    /// Tries once to get all that is asked.
    fn acquire_all<'a>(&'a self, asks: &'a [Ask]) -> Pending<'a, ManyAnswer>;
}

/// The answer to asks for several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManyAnswer {
    /// Every claim holds.
    Granted {
        /// The fences, in the sequence of the asks.
        fences: Vec<u64>,
    },
    /// Nothing was taken.
    Refused {
        /// The index of the ask that was refused first.
        at: usize,
        /// The answer to it.
        answer: Answer,
    },
}
