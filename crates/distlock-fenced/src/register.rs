//! The rule of fenced writes, as pure code. SQL and Lua restate it and are compared with it.

use crate::{FENCE_MAX, Refused};

/// The largest fence that a resource has seen.
///
/// A resource has one register. A holder *raises* it before it reads, and *checks* it when it
/// writes. A write is accepted only if no newer holder has read since.
///
/// ```
/// use distlock_fenced::{FenceRegister, Refused};
///
/// let mut register = FenceRegister::default();
/// register.raise(7)?;              // holder A reads, and is then paused for too long
/// register.raise(8)?;              // holder B reads
/// assert_eq!(register.check(7), Err(Refused::Stale { fence: 7, newest: 8 }));
/// register.check(8)?;              // B writes
/// # Ok::<(), Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceRegister {
    newest: u64,
}

impl FenceRegister {
    /// A register that has seen `newest`. 0 stands for no fence.
    pub fn starting_at(newest: u64) -> Self {
        Self { newest }
    }

    /// The largest fence so far, or 0.
    pub fn newest(self) -> u64 {
        self.newest
    }

    /// Raises the register to `fence`: the first step of a read that a write will depend on, and
    /// the only step of a blind write. An equal fence belongs to the same holder and is accepted.
    ///
    /// # Errors
    ///
    /// [`Refused::Stale`] if the register has seen a larger fence.
    pub fn raise(&mut self, fence: u64) -> Result<(), Refused> {
        valid(fence)?;
        if fence < self.newest {
            return Err(Refused::Stale { fence, newest: self.newest });
        }
        self.newest = fence;
        Ok(())
    }

    /// Checks a write that depends on an earlier read. Asks for equality, so that a holder that
    /// skipped [`raise`](Self::raise) writes nothing.
    ///
    /// # Errors
    ///
    /// [`Refused::Stale`] if a newer holder has read, [`Refused::NotRaised`] if this one has not.
    pub fn check(self, fence: u64) -> Result<(), Refused> {
        valid(fence)?;
        match self.newest {
            newest if newest > fence => Err(Refused::Stale { fence, newest }),
            newest if newest < fence => Err(Refused::NotRaised { fence, newest }),
            _ => Ok(()),
        }
    }
}

/// Which of the two steps a statement or script restates.
#[cfg(any(feature = "redis", feature = "rusqlite", feature = "tokio-postgres"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum FenceStep {
    Raise,
    Check,
}

#[cfg(any(feature = "redis", feature = "rusqlite", feature = "tokio-postgres"))]
impl FenceStep {
    /// Why a resource refused `fence`, after the largest fence that it has seen. Never an approval:
    /// the resource has decided already.
    pub(crate) fn refusal(self, fence: u64, newest: u64) -> Refused {
        let mut register = FenceRegister::starting_at(newest);
        let decided = match self {
            Self::Raise => register.raise(fence),
            Self::Check => register.check(fence),
        };
        decided.err().unwrap_or(Refused::Stale { fence, newest })
    }
}

/// Refuses what no lock hands out.
pub(crate) fn valid(fence: u64) -> Result<(), Refused> {
    if fence == 0 || fence > FENCE_MAX { Err(Refused::Invalid { fence }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_accepted_only_from_the_newest_reader() {
        let mut register = FenceRegister::starting_at(5);
        assert_eq!(register.raise(4), Err(Refused::Stale { fence: 4, newest: 5 }));
        assert_eq!(register.check(6), Err(Refused::NotRaised { fence: 6, newest: 5 }));
        assert_eq!(register.raise(6), Ok(()));
        assert_eq!(register.raise(6), Ok(()), "an equal fence is the same holder");
        assert_eq!(register.check(6), Ok(()));
        assert_eq!(register.check(5), Err(Refused::Stale { fence: 5, newest: 6 }));
    }

    #[test]
    fn a_number_that_no_lock_hands_out_is_refused() {
        for fence in [0, FENCE_MAX + 1, u64::MAX] {
            let mut register = FenceRegister::default();
            assert_eq!(register.raise(fence), Err(Refused::Invalid { fence }));
            assert_eq!(register.check(fence), Err(Refused::Invalid { fence }));
            assert_eq!(register.newest(), 0);
        }
    }
}
