//! A record taken apart, for stores that keep it in rows and read no more of them than they must.

use std::collections::BTreeMap;

use super::holders::HeldClaim;
use super::queue::WaitingClaim;
use super::record::Record;
use crate::{ClaimId, ClientId, Moment, Ticket};

/// A record as rows: all of it, or an excerpt that is enough for one verb.
///
/// Neither a long queue nor a crowd of readers need be read to serve one claim. An excerpt has
///
/// - the holders that are exclusive, or past their time, or that the verb is about, the two whose
///   lease ends first and the one whose lease ends last;
/// - the first few of each line, so that the verb sees who is next;
/// - the places of the claim that the verb is about, and of every client that is past its time;
/// - the places that share a reentry id with any of these;
/// - the heartbeats of all clients that appear, and of the one that calls;
/// - the graves of the claim and of the attempt, if they have any.
///
/// [`OmittedRows`] and [`OmittedSharers`] say what was left out. If a verb lets in all of the first
/// few, the excerpt was too short ([`Record::knows_its_head`]): the verb has to be decided again on
/// the whole record.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The last fence or ticket.
    pub counter: u64,
    /// Those who hold.
    pub holders: BTreeMap<ClaimId, HeldClaim>,
    /// The sharers that were left out.
    pub crowd: OmittedSharers,
    /// Those who wait, in any sequence.
    pub places: BTreeMap<Ticket, WaitingClaim>,
    /// Until when each waiting client lives, and whether it has places that were left out.
    pub clients: Vec<(ClientId, Moment, bool)>,
    /// Claims that cannot hold any more, and until when.
    pub tombstones: Vec<(ClaimId, Moment)>,
    /// What was left out of the line of exclusive places.
    pub exclusive: OmittedRows,
    /// What was left out of the line of shared places.
    pub shared: OmittedRows,
}

/// Sharers that an excerpt leaves out. They are of the same group as those that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedSharers {
    /// How many.
    pub count: usize,
    /// How much they hold together.
    pub weight: u64,
}

/// What an excerpt leaves out of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedRows {
    /// How many places.
    pub count: usize,
    /// All of them are behind this one.
    pub after: Ticket,
    /// The place that the verb is about, if it waits already; else zero.
    pub own: Ticket,
    /// How many of those left out are before that place.
    pub before_own: usize,
}

impl OmittedRows {
    /// How many of those left out are before a ticket that is the verb's own, or a new one.
    pub(super) fn before(&self, ticket: Ticket) -> usize {
        if ticket <= self.own { self.before_own } else { self.count }
    }
}

/// What became of the rows: the new state of each that changed, none if it is gone.
#[derive(Clone, Debug, Default)]
pub struct Changes<'a> {
    /// Holders that came, changed or left.
    pub holders: Vec<(ClaimId, Option<&'a HeldClaim>)>,
    /// Places that were taken, left, moved to another client or got other attempts.
    pub places: Vec<(Ticket, Option<&'a WaitingClaim>)>,
    /// Heartbeats.
    pub clients: Vec<(ClientId, Option<Moment>)>,
    /// Graves.
    pub tombstones: Vec<(ClaimId, Option<Moment>)>,
}

impl Record {
    /// A record from its parts.
    pub fn from_parts(parts: Parts) -> Self {
        let mut record = Self::new(parts.counter);
        for (id, held) in parts.holders {
            record.holders.insert(id, held);
        }
        record.holders.leave_out(parts.crowd);
        for (client, until, has_more) in parts.clients {
            record.queue.note(client, until, has_more);
        }
        for (ticket, place) in parts.places {
            record.queue.push(ticket, place, Moment::ORIGIN);
        }
        record.queue.leave_out(parts.exclusive, parts.shared);
        for (id, until) in parts.tombstones {
            record.bury(id, until);
        }
        record
    }

    /// True if no claim that was left out can have become first in line. If not, the verb that this
    /// excerpt has just served must be decided on the whole record instead.
    pub fn knows_its_head(&self) -> bool {
        self.queue.knows_its_head()
    }

    /// How this record differs from what it was before.
    pub fn changes_since<'a>(&'a self, before: &'a Self) -> Changes<'a> {
        let until = |beat: &super::queue::Heartbeat| beat.until;
        Changes {
            holders: changed(&before.holders.by_id, &self.holders.by_id, |a, b| a == b).collect(),
            places: changed(&before.queue.by_ticket, &self.queue.by_ticket, |a, b| {
                a.client == b.client && a.attempts == b.attempts
            })
            .collect(),
            clients: changed(&before.queue.clients, &self.queue.clients, |a, b| a.until == b.until)
                .map(|(client, beat)| (client, beat.map(until)))
                .collect(),
            tombstones: changed(&before.tombstones, &self.tombstones, |a, b| a == b)
                .map(|(id, until)| (id, until.copied()))
                .collect(),
        }
    }
}

/// The entries that are not the same in both maps, as they are now.
fn changed<'a, K: Ord + Copy, V>(
    before: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool + 'a,
) -> impl Iterator<Item = (K, Option<&'a V>)> {
    let gone = before.keys().filter(|key| !now.contains_key(key)).map(|key| (*key, None));
    let new = now
        .iter()
        .filter(move |(key, value)| before.get(key).is_none_or(|before| !same(before, value)));
    gone.chain(new.map(|(key, value)| (*key, Some(value))))
}
