//! One hold as a row.

use std::borrow::Cow;

use super::cells::{
    self, BadRow, as_column, as_number, attempts_column, optional_label, order_name, part,
};
use crate::law::HeldClaim;
use crate::{ClaimId, ClientId, Label, Moment, ReentryId};

/// The columns of a holder, but for its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderRow<'a> {
    /// The secret of this acquisition.
    pub claim: &'a [u8],
    /// The order it asked for.
    pub queueing: &'a str,
    /// The client.
    pub client: &'a [u8],
    /// The label of its owner.
    pub owner: &'a str,
    /// What for.
    pub reason: Option<&'a str>,
    /// How much it holds.
    pub weight: i64,
    /// Out of how much.
    pub capacity: i64,
    /// Its group of readers.
    pub readers: Option<&'a str>,
    /// Its thread of work.
    pub reentry: Option<&'a [u8]>,
    /// The fencing token.
    pub fence: i64,
    /// When it was granted.
    pub since_us: i64,
    /// When its lease ends.
    pub until_us: i64,
    /// Released, but kept until then.
    pub kept: bool,
    /// The calls that stand behind it, 16 bytes each.
    pub attempts: Option<Cow<'a, [u8]>>,
}

impl<'a> HolderRow<'a> {
    /// A hold as a row.
    pub fn of(id: &'a ClaimId, held: &'a HeldClaim) -> Self {
        Self {
            claim: id.as_bytes(),
            queueing: order_name(held.order),
            client: held.client.as_bytes(),
            owner: held.owner.as_str(),
            reason: held.reason.as_ref().map(Label::as_str),
            weight: i64::from(held.weight),
            capacity: i64::from(held.capacity),
            readers: held.group.as_ref().map(Label::as_str),
            reentry: held.reentry.as_ref().map(|id| id.as_bytes().as_slice()),
            fence: as_column(held.fence),
            since_us: as_column(held.since.as_micros()),
            until_us: as_column(held.until.as_micros()),
            kept: held.kept,
            attempts: attempts_column(&held.attempts),
        }
    }

    /// The hold that a row describes.
    ///
    /// # Errors
    ///
    /// [`BadRow`] if a column holds what distlock does not write.
    pub fn read(&self) -> Result<(ClaimId, HeldClaim), BadRow> {
        let reentry = self.reentry.map(|id| cells::id("reentry", id)).transpose()?;
        let held = HeldClaim {
            client: ClientId::from_bytes(cells::id("client", self.client)?),
            owner: cells::label("owner", self.owner)?,
            reason: optional_label("reason", self.reason)?,
            weight: part("weight", self.weight)?,
            capacity: part("capacity", self.capacity)?,
            order: cells::order("queueing", self.queueing)?,
            group: optional_label("readers", self.readers)?,
            reentry: reentry.map(ReentryId::from_bytes),
            fence: as_number(self.fence),
            since: Moment::from_micros(as_number(self.since_us)),
            until: Moment::from_micros(as_number(self.until_us)),
            kept: self.kept,
            attempts: cells::attempts("attempts", self.attempts.as_deref())?,
        };
        Ok((ClaimId::from_bytes(cells::id("claim", self.claim)?), held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Attempts;
    use crate::{AttemptId, CAPACITY_MAX, Order};

    fn label(text: &str) -> Label {
        Label::new("label", text).unwrap()
    }

    fn held() -> HeldClaim {
        HeldClaim {
            client: ClientId::from_bytes([2; 16]),
            owner: label("ann"),
            reason: Some(label("release")),
            weight: 1,
            capacity: CAPACITY_MAX,
            order: Order::PreferWriters,
            group: Some(label("blue")),
            reentry: Some(ReentryId::from_bytes([3; 16])),
            fence: crate::FENCE_MAX,
            since: Moment::from_micros(5),
            until: Moment::from_micros(9),
            kept: true,
            attempts: Attempts::of(Some(AttemptId::from_bytes([4; 16]))),
        }
    }

    #[test]
    fn a_hold_is_read_as_it_was_written() {
        let id = ClaimId::from_bytes([1; 16]);
        let full = held();
        let bare = HeldClaim {
            reason: None,
            group: None,
            reentry: None,
            attempts: Attempts::default(),
            ..held()
        };
        for held in [full, bare] {
            assert_eq!(HolderRow::of(&id, &held).read(), Ok((id, held)));
        }
    }

    #[test]
    fn the_end_of_time_is_the_largest_number() {
        let held = HeldClaim { until: Moment::from_micros(u64::MAX), ..held() };
        assert_eq!(HolderRow::of(&ClaimId::from_bytes([1; 16]), &held).until_us, i64::MAX);
    }

    #[test]
    fn what_another_program_wrote_names_its_column() {
        let (id, held) = (ClaimId::from_bytes([1; 16]), held());
        let good = || HolderRow::of(&id, &held);
        for (row, column) in [
            (HolderRow { claim: b"x", ..good() }, "claim"),
            (HolderRow { queueing: "lifo", ..good() }, "queueing"),
            (HolderRow { owner: "", ..good() }, "owner"),
            (HolderRow { weight: -1, ..good() }, "weight"),
            (HolderRow { attempts: Some(b"half".into()), ..good() }, "attempts"),
        ] {
            assert_eq!(row.read().unwrap_err().column, column);
        }
    }
}
