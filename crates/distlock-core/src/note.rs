//! What the journal says about a lock: who, when, what happened. Claim ids are no part of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Ask, CAPACITY_MAX, ClaimId, FENCE_MAX, Invalid, Key, Label};

/// Something that happened to a lock, as it is written into a [`Journal`](crate::Journal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The key.
    pub key: Key,
    /// Who waits or holds; for a break, who held.
    pub owner: Label,
    /// What for.
    pub reason: Option<Label>,
    /// How it wants to hold.
    pub mode: Mode,
    /// The fencing token, from the grant on.
    pub fence: Option<u64>,
    /// The acquisition that this belongs to, as far as the writer knows it. The same number stands
    /// in all notes of one acquisition, from the first wait to the end of the hold.
    pub acquisition: Option<AcquisitionId>,
    /// What happened.
    pub what: NoteEvent,
}

/// The number of an acquisition: it tells acquisitions apart and is of no other use. Below 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcquisitionId(pub u64);

impl AcquisitionId {
    /// A new number; none if the operating system has no random bytes to give.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(u64::from_be_bytes(bytes) & FENCE_MAX))
    }

    /// The number of the acquisition under a claim id of the caller's: the same for every call
    /// under that id, so that calls which repeat one request or come back to a kept place are one
    /// acquisition. It shows 53 of the 128 bits of the secret at most, so the id stays a secret.
    pub fn of(id: &ClaimId) -> Self {
        let number = u128::from_be_bytes(*id.as_bytes());
        let [high, low] = [(number >> 64) as u64, number as u64];
        // The finalizer of SplitMix64: every bit of the id changes half of the number.
        let mut mixed = high.rotate_left(32) ^ low.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 31)) & FENCE_MAX)
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With other readers.
    Shared,
    /// Some permits of a semaphore.
    Permits {
        /// How many.
        weight: u32,
        /// How many there are.
        capacity: u32,
    },
}

impl Mode {
    /// The mode that an ask amounts to.
    pub fn of(ask: &Ask) -> Self {
        Self::of_shape(ask.weight, ask.capacity)
    }

    /// The mode of a claim of this weight out of this capacity.
    pub fn of_shape(weight: u32, capacity: u32) -> Self {
        match capacity {
            1 => Self::Exclusive,
            CAPACITY_MAX if weight == capacity => Self::Exclusive,
            CAPACITY_MAX => Self::Shared,
            _ => Self::Permits { weight, capacity },
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "exclusive" => Some(Self::Exclusive),
            "shared" => Some(Self::Shared),
            permits => {
                let (weight, capacity) = permits.split_once('/')?;
                let (weight, capacity) = (weight.parse().ok()?, capacity.parse().ok()?);
                Some(Self::Permits { weight, capacity })
            }
        }
    }
}

/// Reads what `Display` writes.
impl FromStr for Mode {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::read(text).ok_or_else(|| Invalid::new("mode", text, "must be a mode of a lock"))
    }
}

/// `exclusive`, `shared`, or permits as `2/5`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { weight, capacity } => write!(f, "{weight}/{capacity}"),
        }
    }
}

/// What happened to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteEvent {
    /// It was not free, and a client began to wait for it. Comes again for the same visit if a
    /// place in the queue was lost.
    Queued {
        /// How many were ahead.
        ahead: u64,
    },
    /// A wait ended without the lock.
    GaveUp {
        /// How long it lasted.
        waited: Duration,
        /// Why, in a word: `timeout`, `cancelled`, `closed`, `failed`.
        why: Label,
    },
    /// The lock was got.
    Granted {
        /// How long that took.
        waited: Duration,
    },
    /// A renewal failed; it is repeated until the lease ends.
    AtRisk {
        /// How much of the lease was left.
        remaining: Duration,
    },
    /// The lock was released.
    Released {
        /// How long it was held, if the client that released it knows.
        held: Option<Duration>,
    },
    /// The lock was lost.
    Lost {
        /// How long it was held.
        held: Option<Duration>,
        /// Why, in a word: `expired`, `unreachable`, `gone`, `broken`, `max-hold`, `closed`.
        why: Label,
    },
    /// An operator took it away.
    Broken {
        /// Who did.
        by: Label,
        /// Why, as the operator says.
        why: Option<Label>,
    },
    /// A program did something that concerns the key and is no part of any hold, such as deleting
    /// what the lock guards.
    Action {
        /// On whose behalf.
        by: Label,
        /// What it did, in a word.
        what: Label,
    },
}

impl NoteEvent {
    /// What happened, in a word: `queued`, `gave-up`, `granted`, `at-risk`, `released`, `lost`,
    /// `broken` or `action`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::GaveUp { .. } => "gave-up",
            Self::Granted { .. } => "granted",
            Self::AtRisk { .. } => "at-risk",
            Self::Released { .. } => "released",
            Self::Lost { .. } => "lost",
            Self::Broken { .. } => "broken",
            Self::Action { .. } => "action",
        }
    }
}

impl Note {
    /// The note as names and values, for stores that keep text: `key`, `owner`, `reason`, `mode`,
    /// `fence`, `visit`, `what`, `us` (the duration that belongs to it, in microseconds), `ahead`,
    /// `by`, `why`. What is not known is left out.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let micros = |d: &Duration| d.as_micros().to_string();
        let mut fields = vec![
            ("key", self.key.to_string()),
            ("owner", self.owner.to_string()),
            ("mode", self.mode.to_string()),
            ("what", self.what.name().to_owned()),
        ];
        let mut add = |name, value: Option<String>| fields.extend(value.map(|value| (name, value)));
        add("reason", self.reason.as_ref().map(Label::to_string));
        add("fence", self.fence.map(|fence| fence.to_string()));
        add("visit", self.acquisition.map(|AcquisitionId(acquisition)| acquisition.to_string()));
        match &self.what {
            NoteEvent::Queued { ahead } => add("ahead", Some(ahead.to_string())),
            NoteEvent::GaveUp { waited, why } => {
                add("us", Some(micros(waited)));
                add("why", Some(why.to_string()));
            }
            NoteEvent::Granted { waited } => add("us", Some(micros(waited))),
            NoteEvent::AtRisk { remaining } => add("us", Some(micros(remaining))),
            NoteEvent::Released { held } => add("us", held.as_ref().map(micros)),
            NoteEvent::Lost { held, why } => {
                add("us", held.as_ref().map(micros));
                add("why", Some(why.to_string()));
            }
            NoteEvent::Broken { by, why } => {
                add("by", Some(by.to_string()));
                add("why", why.as_ref().map(Label::to_string));
            }
            NoteEvent::Action { by, what } => {
                add("by", Some(by.to_string()));
                add("why", Some(what.to_string()));
            }
        }
        fields
    }

    /// Reads the [fields](Self::fields) back; `field` finds a value by its name. None if something
    /// is missing or makes no sense, as may be what a later version wrote.
    pub fn from_fields<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let label = |name| field(name).map(|text| Label::new("label", text).ok());
        let number = |name| field(name).map(|text| text.parse::<u64>().ok());
        let span = || number("us").map(|micros| micros.map(Duration::from_micros));
        let what = match field("what")? {
            "queued" => NoteEvent::Queued { ahead: number("ahead")?? },
            "gave-up" => NoteEvent::GaveUp { waited: span()??, why: label("why")?? },
            "granted" => NoteEvent::Granted { waited: span()?? },
            "at-risk" => NoteEvent::AtRisk { remaining: span()?? },
            "released" => NoteEvent::Released { held: span().flatten() },
            "lost" => NoteEvent::Lost { held: span().flatten(), why: label("why")?? },
            "broken" => NoteEvent::Broken { by: label("by")??, why: label("why").flatten() },
            "action" => NoteEvent::Action { by: label("by")??, what: label("why")?? },
            _ => return None,
        };
        Some(Self {
            key: Key::new(field("key")?).ok()?,
            owner: label("owner")??,
            reason: label("reason").flatten(),
            mode: Mode::read(field("mode")?)?,
            fence: number("fence").flatten(),
            acquisition: number("visit").flatten().map(AcquisitionId),
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> Label {
        Label::new("label", text).unwrap()
    }

    #[test]
    fn a_note_reads_back_as_it_was_written() {
        let span = Duration::from_micros(1_500);
        let whats = [
            NoteEvent::Queued { ahead: 3 },
            NoteEvent::GaveUp { waited: span, why: label("timeout") },
            NoteEvent::Granted { waited: Duration::ZERO },
            NoteEvent::AtRisk { remaining: span },
            NoteEvent::Released { held: Some(span) },
            NoteEvent::Released { held: None },
            NoteEvent::Lost { held: None, why: label("expired") },
            NoteEvent::Broken { by: label("anna"), why: None },
            NoteEvent::Action { by: label("ci"), what: label("unlock") },
            NoteEvent::Broken { by: label("anna"), why: Some(label("stuck since noon")) },
        ];
        let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { weight: 2, capacity: 5 }];
        for (at, what) in whats.into_iter().enumerate() {
            let note = Note {
                key: Key::new("a\n=\0{b}").unwrap(),
                owner: label("ann@host:7"),
                reason: (at % 2 == 0).then(|| label("release 1.9")),
                mode: modes[at % modes.len()],
                fence: (at % 3 > 0).then_some(FENCE_MAX),
                acquisition: (at % 4 > 0).then_some(AcquisitionId(at as u64)),
                what,
            };
            let fields = note.fields();
            let find = |name: &str| fields.iter().find(|(n, _)| *n == name).map(|(_, v)| &v[..]);
            assert_eq!(Note::from_fields(find).as_ref(), Some(&note));
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_read() {
        let good =
            [("key", "k"), ("owner", "o"), ("mode", "shared"), ("what", "queued"), ("ahead", "0")];
        let read = |fields: &[(&str, &'static str)]| {
            Note::from_fields(|name| fields.iter().find(|(n, _)| *n == name).map(|(_, v)| *v))
        };
        assert!(read(&good).is_some());
        for (name, bad) in
            [("key", ""), ("owner", "a\nb"), ("mode", "x"), ("what", "?"), ("ahead", "-1")]
        {
            let odd = good.map(|(n, v)| (n, if n == name { bad } else { v }));
            assert!(read(&odd).is_none(), "{name}={bad}");
            let less: Vec<_> = good.iter().copied().filter(|(n, _)| *n != name).collect();
            assert!(read(&less).is_none(), "without {name}");
        }
    }
}
