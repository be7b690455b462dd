//! What of a record a verb has to see, and what was left out.

use std::collections::BTreeMap;

use crate::law::{OmittedRows, OmittedSharers, Parts, WaitingClaim};
use crate::{AttemptId, ClaimId, ClientId, Target, Ticket};

/// How many of each line a verb gets to see. If it admits all of them it is decided once more on
/// the whole record, so a larger number only helps locks that let in many at once. In debug builds
/// excerpts are as short as can be, so that tests meet their edges.
pub const EXCERPT_LEN: u64 = if cfg!(debug_assertions) { 2 } else { 8 };

/// How many holders are read as they are. If there are more, they are a crowd of sharers of which a
/// verb gets to see those that matter.
pub const HOLDERS_MAX: u64 = if cfg!(debug_assertions) { 1 } else { 16 };

/// What a verb is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbSubject {
    /// A claim that holds, waits, or asks to.
    Claim(ClaimId),
    /// The same in one call for it, which may be dead by itself.
    Attempt(ClaimId, AttemptId),
    /// The holds with this fence.
    Fence(u64),
}

impl VerbSubject {
    /// A claim, and the attempt for it if there is one.
    pub fn claim_in(claim: ClaimId, attempt: Option<AttemptId>) -> Self {
        attempt.map_or(Self::Claim(claim), |attempt| Self::Attempt(claim, attempt))
    }

    /// What a release takes away.
    pub fn target(target: &Target) -> Self {
        match target {
            Target::Claim(claim) => Self::Claim(claim.id),
            Target::Attempt { claim, attempt } => Self::Attempt(claim.id, *attempt),
            Target::Fence { fence, .. } => Self::Fence(*fence),
        }
    }

    /// The claim, if it is about one.
    pub fn claim(self) -> Option<ClaimId> {
        match self {
            Self::Claim(claim) | Self::Attempt(claim, _) => Some(claim),
            Self::Fence(_) => None,
        }
    }

    /// The ids under which the claim may be dead.
    pub fn tombstones(self) -> impl Iterator<Item = ClaimId> {
        let attempt = match self {
            Self::Attempt(claim, attempt) => Some(attempt.tombstone(&claim)),
            Self::Claim(_) | Self::Fence(_) => None,
        };
        [self.claim(), attempt].into_iter().flatten()
    }
}

/// How much of a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Enough for one verb of this client.
    For(ClientId, VerbSubject),
    /// All of it but the tombstones, of which only those of the subject matter.
    Whole(Option<VerbSubject>),
}

/// The sharers that an excerpt leaves out, of so many that hold so much together. The excerpt has
/// the sharers that it needs, and no other holder.
pub fn crowd(parts: &Parts, sharers: usize, weight: u64) -> OmittedSharers {
    let seen: u64 = parts.holders.values().map(|held| u64::from(held.weight)).sum();
    OmittedSharers {
        count: sharers.saturating_sub(parts.holders.len()),
        weight: weight.saturating_sub(seen),
    }
}

/// What an excerpt leaves out of one line, which has `length` places. `after` is the last of those
/// that were read as its head, `own` the ticket of the place that the verb is about or zero, and
/// `before_own` counts the places of the line before that one; it is asked only if it matters.
///
/// # Errors
///
/// Those of `before_own`.
pub fn rest<E>(
    parts: &Parts,
    exclusive: bool,
    length: usize,
    (after, own): (Ticket, Ticket),
    before_own: impl FnOnce() -> Result<usize, E>,
) -> Result<OmittedRows, E> {
    let read = || {
        let in_line = move |place: &WaitingClaim| place.ask.is_exclusive() == exclusive;
        parts.places.iter().filter(move |(_, place)| in_line(place))
    };
    let count = length.saturating_sub(read().count());
    if count == 0 || own == 0 {
        return Ok(OmittedRows { count, after, own, before_own: 0 });
    }
    let read_before = read().filter(|(ticket, _)| **ticket < own).count();
    Ok(OmittedRows { count, after, own, before_own: before_own()?.saturating_sub(read_before) })
}

/// The clients whose heartbeats belong to an excerpt, with how many places of each were read: those
/// of the places, and the one that calls.
pub fn clients_of(parts: &Parts, caller: Option<ClientId>) -> BTreeMap<ClientId, usize> {
    let mut clients: BTreeMap<ClientId, usize> = BTreeMap::new();
    for place in parts.places.values() {
        *clients.entry(place.client).or_default() += 1;
    }
    if let Some(caller) = caller {
        clients.entry(caller).or_default();
    }
    clients
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;
    use crate::law::Attempts;
    use crate::{Ask, Claim, Key, Label, Moment};

    fn place(client: u8) -> WaitingClaim {
        let claim = Claim::new(Key::new("k").unwrap(), ClaimId::from_bytes([client; 16]));
        let owner = Label::new("owner", "ann").unwrap();
        let ask = Ask::new(claim, owner, Duration::from_secs(1));
        let client = ClientId::from_bytes([client; 16]);
        WaitingClaim { ask, client, since: Moment::ORIGIN, attempts: Attempts::default() }
    }

    fn parts(tickets: &[Ticket]) -> Parts {
        let places = tickets.iter().map(|ticket| (*ticket, place(*ticket as u8)));
        Parts { places: places.collect(), ..Parts::default() }
    }

    #[test]
    fn what_was_read_is_not_left_out() {
        let count = |before| move || Ok::<_, Infallible>(before);
        // A line of nine: the first two were read, and the seventh, which the verb is about.
        let Ok(rest_of_line) = rest(&parts(&[1, 2, 7]), true, 9, (2, 7), count(6));
        assert_eq!(rest_of_line, OmittedRows { count: 6, after: 2, own: 7, before_own: 4 });
        let Ok(other_line) = rest(&parts(&[1, 2, 7]), false, 3, (0, 7), count(3));
        assert_eq!(other_line, OmittedRows { count: 3, after: 0, own: 7, before_own: 3 });
    }

    #[test]
    fn nothing_is_counted_where_nothing_was_left_out() {
        let asked = || -> Result<usize, &str> { Err("counted for nothing") };
        assert!(rest(&parts(&[1, 2]), true, 2, (2, 2), asked).is_ok());
        assert!(rest(&parts(&[1, 2]), true, 9, (2, 0), asked).is_ok());
    }

    #[test]
    fn the_caller_is_a_client_of_every_excerpt() {
        let caller = ClientId::from_bytes([9; 16]);
        let clients = clients_of(&parts(&[1, 2]), Some(caller));
        assert_eq!(clients.len(), 3);
        assert_eq!(clients[&caller], 0);
    }

    #[test]
    fn an_attempt_may_be_dead_by_itself() {
        let (claim, attempt) = (ClaimId::from_bytes([1; 16]), AttemptId::from_bytes([2; 16]));
        let both: Vec<_> = VerbSubject::claim_in(claim, Some(attempt)).tombstones().collect();
        assert_eq!(both, [claim, attempt.tombstone(&claim)]);
        assert_eq!(VerbSubject::claim_in(claim, None).tombstones().count(), 1);
        assert_eq!(VerbSubject::Fence(3).tombstones().count(), 0);
    }
}
