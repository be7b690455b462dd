//! One place in the queue as a row.

use std::borrow::Cow;
use std::time::Duration;

use super::cells::{
    self, BadRow, as_column, as_number, attempts_column, optional_label, order_name, part,
};
use crate::law::WaitingClaim;
use crate::{Ask, Claim, ClaimId, ClientId, Key, Label, Moment, ReentryId, Ticket};

/// The columns of a waiter, but for its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterRow<'a> {
    /// Which of the two lines of the key it stands in.
    pub exclusive: bool,
    /// Its place in that line.
    pub ticket: i64,
    /// The secret of this acquisition.
    pub claim: &'a [u8],
    /// The order it asked for.
    pub queueing: &'a str,
    /// The client whose heartbeats keep the place.
    pub client: &'a [u8],
    /// The label of its owner.
    pub owner: &'a str,
    /// What for.
    pub reason: Option<&'a str>,
    /// How much it asks for.
    pub weight: i64,
    /// Out of how much.
    pub capacity: i64,
    /// Its group of readers.
    pub readers: Option<&'a str>,
    /// Its thread of work.
    pub reentry: Option<&'a [u8]>,
    /// The least fence it wants.
    pub fence_floor: Option<i64>,
    /// Since when it waits.
    pub since_us: i64,
    /// How long it asks to hold.
    pub ttl_us: i64,
    /// The calls that stand behind it, 16 bytes each.
    pub attempts: Option<Cow<'a, [u8]>>,
}

impl<'a> WaiterRow<'a> {
    /// A place as a row.
    pub fn of(ticket: Ticket, place: &'a WaitingClaim) -> Self {
        let WaitingClaim { ask, client, since, attempts } = place;
        Self {
            exclusive: ask.is_exclusive(),
            ticket: as_column(ticket),
            claim: ask.claim.id.as_bytes(),
            queueing: order_name(ask.order),
            client: client.as_bytes(),
            owner: ask.owner.as_str(),
            reason: ask.reason.as_ref().map(Label::as_str),
            weight: i64::from(ask.weight),
            capacity: i64::from(ask.capacity),
            readers: ask.group.as_ref().map(Label::as_str),
            reentry: ask.reentry.as_ref().map(|id| id.as_bytes().as_slice()),
            fence_floor: ask.fence_floor.map(as_column),
            since_us: as_column(since.as_micros()),
            ttl_us: i64::try_from(ask.ttl.as_micros()).unwrap_or(i64::MAX),
            attempts: attempts_column(attempts),
        }
    }

    /// The place that a row of this key describes.
    ///
    /// # Errors
    ///
    /// [`BadRow`] if a column holds what distlock does not write.
    pub fn read(&self, key: &Key) -> Result<(Ticket, WaitingClaim), BadRow> {
        let claim = ClaimId::from_bytes(cells::id("claim", self.claim)?);
        let reentry = self.reentry.map(|id| cells::id("reentry", id)).transpose()?;
        let ask = Ask {
            claim: Claim::new(key.clone(), claim),
            attempt: None,
            owner: cells::label("owner", self.owner)?,
            reason: optional_label("reason", self.reason)?,
            weight: part("weight", self.weight)?,
            capacity: part("capacity", self.capacity)?,
            order: cells::order("queueing", self.queueing)?,
            group: optional_label("readers", self.readers)?,
            reentry: reentry.map(ReentryId::from_bytes),
            ttl: Duration::from_micros(as_number(self.ttl_us)),
            witness: None,
            fence_floor: self.fence_floor.map(as_number),
            wait: None,
        };
        if ask.is_exclusive() != self.exclusive {
            return Err(BadRow::new("exclusive", "the place stands in the wrong line"));
        }
        let place = WaitingClaim {
            ask,
            client: ClientId::from_bytes(cells::id("client", self.client)?),
            since: Moment::from_micros(as_number(self.since_us)),
            attempts: cells::attempts("attempts", self.attempts.as_deref())?,
        };
        Ok((as_number(self.ticket), place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Attempts;
    use crate::{AttemptId, Order};

    fn place() -> WaitingClaim {
        let claim = Claim::new(Key::new("k").unwrap(), ClaimId::from_bytes([1; 16]));
        let owner = Label::new("owner", "ann").unwrap();
        let ask = Ask {
            capacity: 5,
            weight: 2,
            order: Order::PreferReaders,
            fence_floor: Some(77),
            ..Ask::new(claim, owner, Duration::from_millis(1500))
        };
        let attempts = Attempts::of(Some(AttemptId::from_bytes([4; 16])));
        let client = ClientId::from_bytes([2; 16]);
        WaitingClaim { ask, client, since: Moment::from_micros(5), attempts }
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = place();
        let row = WaiterRow::of(7, &place);
        let (ticket, read) = row.read(&place.ask.claim.key).unwrap();
        assert_eq!(ticket, 7);
        assert_eq!(WaiterRow::of(7, &read), row);
    }

    #[test]
    fn a_place_in_the_wrong_line_is_refused() {
        let place = place();
        let row = WaiterRow { exclusive: true, ..WaiterRow::of(7, &place) };
        assert_eq!(row.read(&place.ask.claim.key).unwrap_err().column, "exclusive");
    }
}
