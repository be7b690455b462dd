//! Calls that share a claim id because their caller chose it and repeats them.

use std::collections::HashMap;

use distlock_core::ClaimId;

/// How many calls are under way under each id, and what came of those that have ended.
///
/// The claim is given up with the last of them, and only if none of them got it: a repeated call
/// must not take away what the first has just been granted.
#[derive(Debug, Default)]
pub(super) struct Callers(HashMap<ClaimId, Shared>);

#[derive(Debug, Default)]
struct Shared {
    calls: usize,
    /// Some call has left something at the store.
    out: bool,
    /// Some call has it, or has left it to the caller.
    taken: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the claim, or with the claim in doubt: it is the caller's now.
    Taken,
    /// Without it; something may be left at the store.
    Out,
    /// Without it, and nothing is left.
    Clean,
}

impl Callers {
    pub(super) fn begin(&mut self, id: ClaimId) {
        self.0.entry(id).or_default().calls += 1;
    }

    /// True if a call is under way under this id.
    pub(super) fn any(&self, id: &ClaimId) -> bool {
        self.0.contains_key(id)
    }

    /// True if at most one call is under way under the id, and none has left it to the caller.
    pub(super) fn is_only(&self, id: ClaimId) -> bool {
        self.0.get(&id).is_none_or(|shared| shared.calls == 1 && !shared.taken)
    }

    /// True if the claim is to be given up.
    pub(super) fn end(&mut self, id: ClaimId, ending: Ending) -> bool {
        let Some(shared) = self.0.get_mut(&id) else { return ending == Ending::Out };
        shared.calls -= 1;
        shared.out |= ending == Ending::Out;
        shared.taken |= ending == Ending::Taken;
        if shared.calls > 0 {
            return false;
        }
        let give_up = shared.out && !shared.taken;
        self.0.remove(&id);
        give_up
    }
}

#[cfg(test)]
mod tests {
    use super::Ending::{Clean, Out, Taken};
    use super::*;

    #[test]
    fn a_claim_is_given_up_with_the_last_call_and_only_if_nobody_got_it() {
        let table: [(&[Ending], bool); 7] = [
            (&[Out], true),
            (&[Clean], false),
            (&[Taken], false),
            (&[Out, Clean], true),
            (&[Out, Taken], false),
            (&[Taken, Out], false),
            (&[Clean, Clean], false),
        ];
        for (endings, expected) in table {
            let (mut callers, id) = (Callers::default(), ClaimId::from_bytes([7; 16]));
            endings.iter().for_each(|_| callers.begin(id));
            let verdicts: Vec<_> = endings.iter().map(|ending| callers.end(id, *ending)).collect();
            assert_eq!(verdicts.last(), Some(&expected), "{endings:?}");
            assert!(verdicts.iter().rev().skip(1).all(|give_up| !give_up), "{endings:?}");
            assert!(callers.0.is_empty());
        }
    }
}
