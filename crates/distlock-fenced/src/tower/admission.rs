//! Which request may run, as pure code.

use crate::{FenceRegister, Refused};

/// The requests of one resource that are being answered, and the largest fence so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Admissions {
    register: FenceRegister,
    /// All that run have the same fence.
    running: usize,
    running_fence: u64,
}

/// What becomes of a request for the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Run,
    /// Requests of older holders are still being answered: ask again when one of them ends.
    Wait,
}

impl Admissions {
    pub(super) fn starting_at(newest: u64) -> Self {
        Self { register: FenceRegister::starting_at(newest), ..Self::default() }
    }

    /// Decides on a request, whether it is new or has waited.
    pub(super) fn admit(&mut self, fence: u64) -> Result<Admission, Refused> {
        self.register.raise(fence)?;
        if self.running > 0 && self.running_fence != fence {
            return Ok(Admission::Wait);
        }
        self.running += 1;
        self.running_fence = fence;
        Ok(Admission::Run)
    }

    /// A request that ran has been answered or dropped.
    pub(super) fn leave(&mut self) {
        self.running -= 1;
    }

    pub(super) fn newest(&self) -> u64 {
        self.register.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_holder_waits_for_older_requests_and_no_older_one_is_admitted_meanwhile() {
        let mut resource = Admissions::default();
        assert_eq!(resource.admit(7), Ok(Admission::Run));
        assert_eq!(resource.admit(7), Ok(Admission::Run), "the same holder");
        assert_eq!(resource.admit(8), Ok(Admission::Wait));
        assert_eq!(resource.admit(7), Err(Refused::Stale { fence: 7, newest: 8 }));
        resource.leave();
        assert_eq!(resource.admit(8), Ok(Admission::Wait));
        resource.leave();
        assert_eq!(resource.admit(8), Ok(Admission::Run));
        assert_eq!(resource.newest(), 8);
    }

    #[test]
    fn a_request_that_waits_is_refused_when_a_still_newer_one_comes() {
        let mut resource = Admissions::default();
        assert_eq!(resource.admit(7), Ok(Admission::Run));
        assert_eq!(resource.admit(8), Ok(Admission::Wait));
        assert_eq!(resource.admit(9), Ok(Admission::Wait));
        resource.leave();
        assert_eq!(resource.admit(8), Err(Refused::Stale { fence: 8, newest: 9 }));
        assert_eq!(resource.admit(9), Ok(Admission::Run));
    }
}
