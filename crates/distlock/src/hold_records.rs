//! What the entries of a journal amount to: who waited and held, how long, and how it ended.

use std::collections::HashMap;
use std::time::Duration;

use distlock_core::{AcquisitionId, JournalEntry, Key, Label, Mode, Note, NoteEvent, Snapshot};

/// One acquisition from the first wait to the end of the hold, as far as the journal tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldRecord {
    /// The key.
    pub key: Key,
    /// Who.
    pub owner: Label,
    /// What for.
    pub reason: Option<Label>,
    /// How it held, or wanted to.
    pub mode: Mode,
    /// The fencing token, if it was granted.
    pub fence: Option<u64>,
    /// When it began to wait, or was granted without waiting; milliseconds since 1970.
    pub began_at_ms: u64,
    /// When it was granted, if it was.
    pub granted_at_ms: Option<u64>,
    /// When it ended, if that is known.
    pub ended_at_ms: Option<u64>,
    /// How long it waited, as far as is known.
    pub waited: Option<Duration>,
    /// How long it held, once that has ended.
    pub held: Option<Duration>,
    /// A renewal failed while it held.
    pub at_risk: bool,
    /// Where it stands, or how it ended.
    pub state: HoldRecordState,
}

/// Where a [`HoldRecord`] stands, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldRecordState {
    /// It waits.
    Waiting,
    /// It holds.
    Held,
    /// It ended as it should.
    Released,
    /// The hold was lost; why, in a word.
    Lost(Label),
    /// An operator took it away.
    Broken {
        /// Who did.
        by: Label,
        /// Why.
        why: Option<Label>,
    },
    /// The wait ended without the lock; why, in a word.
    GaveUp(Label),
    /// It is over without a recorded end: the program ended, or let the lease run out.
    Vanished,
}

impl HoldRecordState {
    /// The state in a word: `waiting`, `held`, `released`, `lost`, `broken`, `gave-up`, `vanished`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Released => "released",
            Self::Lost(_) => "lost",
            Self::Broken { .. } => "broken",
            Self::GaveUp(_) => "gave-up",
            Self::Vanished => "vanished",
        }
    }

    /// True if it neither waits nor holds.
    pub fn is_over(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Held)
    }
}

impl HoldRecord {
    /// Puts entries together, of any number of keys and oldest first. The records come out in the
    /// order in which they began, oldest first. An entry that is there twice counts once.
    pub fn fold<'a>(entries: impl IntoIterator<Item = &'a JournalEntry>) -> Vec<Self> {
        let mut book = HoldRecordIndex::default();
        entries.into_iter().for_each(|entry| book.add(entry));
        book.close_superseded();
        let mut records = book.records;
        records.sort_by_key(|record| record.began_at_ms);
        records
    }

    /// Corrects records of one key by what the store says of it now: a client that seems to wait or
    /// hold and does not has vanished.
    pub(crate) fn settle(records: &mut [Self], now: &Snapshot) {
        let all_shown = now.holders_total == now.holders.len() as u64;
        for record in records {
            let gone = match record.state {
                HoldRecordState::Held => {
                    let holds = now.holders.iter().any(|h| Some(h.fence) == record.fence);
                    all_shown && !holds
                }
                HoldRecordState::Waiting => now.waiters_total == 0,
                _ => false,
            };
            if gone {
                record.state = HoldRecordState::Vanished;
            }
        }
    }

    fn new(entry: &JournalEntry) -> Self {
        let Note { key, owner, reason, mode, fence, .. } = entry.note.clone();
        Self {
            key,
            owner,
            reason,
            mode,
            fence,
            began_at_ms: entry.at_ms,
            granted_at_ms: None,
            ended_at_ms: None,
            waited: None,
            held: None,
            at_risk: false,
            state: if fence.is_some() { HoldRecordState::Held } else { HoldRecordState::Waiting },
        }
    }

    fn learn(&mut self, entry: &JournalEntry) {
        self.fence = self.fence.or(entry.note.fence);
        match &entry.note.what {
            NoteEvent::Queued { .. } => self.go_on(HoldRecordState::Waiting),
            NoteEvent::GaveUp { waited, why } => {
                self.waited = Some(*waited);
                self.began_at_ms = self.began_at_ms.min(before(entry.at_ms, *waited));
                self.end(entry.at_ms, None, HoldRecordState::GaveUp(why.clone()));
            }
            NoteEvent::Granted { waited } => {
                // A call that repeats another is granted what the other waited for.
                self.waited = self.waited.max(Some(*waited));
                self.began_at_ms = self.began_at_ms.min(before(entry.at_ms, *waited));
                self.granted_at_ms.get_or_insert(entry.at_ms);
                self.go_on(HoldRecordState::Held);
            }
            NoteEvent::AtRisk { .. } => self.at_risk = true,
            NoteEvent::Released { held } => self.end(entry.at_ms, *held, HoldRecordState::Released),
            NoteEvent::Lost { held, why } => {
                self.end(entry.at_ms, *held, HoldRecordState::Lost(why.clone()));
            }
            NoteEvent::Broken { by, why } => {
                let (by, why) = (by.clone(), why.clone());
                // The holder may have told of its loss before the operator told why.
                if matches!(self.state, HoldRecordState::Lost(_)) {
                    self.state = HoldRecordState::Broken { by, why };
                } else {
                    self.end(entry.at_ms, None, HoldRecordState::Broken { by, why });
                }
            }
            // What a later version has to tell.
            _ => {}
        }
    }

    /// It waits or holds. A wait that failed goes on if the caller repeats the call.
    fn go_on(&mut self, state: HoldRecordState) {
        match self.state {
            HoldRecordState::Waiting => self.state = state,
            HoldRecordState::GaveUp(_) => {
                self.state = state;
                self.ended_at_ms = None;
            }
            _ => {}
        }
    }

    /// The first end counts.
    fn end(&mut self, at_ms: u64, held: Option<Duration>, state: HoldRecordState) {
        if self.state.is_over() {
            self.held = self.held.or(held);
            return;
        }
        if let Some(held) = held {
            self.granted_at_ms.get_or_insert(before(at_ms, held));
            self.began_at_ms = self.began_at_ms.min(before(at_ms, held));
        }
        let since = |granted: u64| Duration::from_millis(at_ms.saturating_sub(granted));
        self.held = held.or(self.granted_at_ms.map(since));
        self.ended_at_ms = Some(at_ms);
        self.state = state;
    }
}

/// Visits and how to find them.
#[derive(Default)]
struct HoldRecordIndex {
    records: Vec<HoldRecord>,
    by_id: HashMap<AcquisitionId, usize>,
    by_fence: HashMap<(Key, u64), usize>,
}

impl HoldRecordIndex {
    fn add(&mut self, entry: &JournalEntry) {
        let note = &entry.note;
        // It says nothing about a wait or a hold.
        if matches!(note.what, NoteEvent::Action { .. }) {
            return;
        }
        let by_id = note.acquisition.and_then(|id| self.by_id.get(&id));
        // A hold may be ended by another client than its owner: an operator, another process. A
        // grant is always the beginning of a record of its own: a sharer can have the same fence.
        let ends = !matches!(note.what, NoteEvent::Granted { .. });
        let by_fence = || {
            let fence = note.fence.filter(|_| ends)?;
            self.by_fence.get(&(note.key.clone(), fence))
        };
        let at = by_id.or_else(by_fence).copied().unwrap_or_else(|| {
            self.records.push(HoldRecord::new(entry));
            self.records.len() - 1
        });
        if let Some(id) = note.acquisition {
            self.by_id.entry(id).or_insert(at);
        }
        if let Some(fence) = note.fence {
            self.by_fence.insert((note.key.clone(), fence), at);
        }
        self.records[at].learn(entry);
    }

    /// A hold has ended once a client has got what excludes it.
    fn close_superseded(&mut self) {
        let mut latest: HashMap<Key, (u64, u64)> = HashMap::new();
        for record in &self.records {
            let Some(fence) = record.fence else { continue };
            let (any, exclusive) = latest.entry(record.key.clone()).or_default();
            *any = fence.max(*any);
            if record.mode == Mode::Exclusive {
                *exclusive = fence.max(*exclusive);
            }
        }
        for record in self.records.iter_mut().filter(|record| record.state == HoldRecordState::Held)
        {
            let Some((any, exclusive)) = latest.get(&record.key) else { continue };
            let newer = if record.mode == Mode::Exclusive { any } else { exclusive };
            if record.fence.is_some_and(|fence| fence < *newer) {
                record.state = HoldRecordState::Vanished;
            }
        }
    }
}

fn before(at_ms: u64, span: Duration) -> u64 {
    at_ms.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// A record as JSON and the like: one flat object, without what is not known.
#[cfg(feature = "serde")]
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct HoldRecordJson<'a> {
    key: &'a str,
    owner: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    mode: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    began_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
    at_risk: bool,
}

/// One flat object: `key`, `owner`, `reason`, `mode`, `fence`, `state`, `by`, `why`, `beganAtMs`,
/// `grantedAtMs`, `endedAtMs`, `waitedMs`, `heldMs`, `atRisk`. What is not known is left out.
#[cfg(feature = "serde")]
impl serde::Serialize for HoldRecord {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (by, why) = match &self.state {
            HoldRecordState::Broken { by, why } => (Some(by.as_str()), why.as_ref()),
            HoldRecordState::Lost(why) | HoldRecordState::GaveUp(why) => (None, Some(why)),
            _ => (None, None),
        };
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let written = HoldRecordJson {
            key: self.key.as_str(),
            owner: self.owner.as_str(),
            reason: self.reason.as_ref().map(Label::as_str),
            mode: self.mode,
            fence: self.fence,
            state: self.state.name(),
            by,
            why: why.map(Label::as_str),
            began_at_ms: self.began_at_ms,
            granted_at_ms: self.granted_at_ms,
            ended_at_ms: self.ended_at_ms,
            waited_ms: self.waited.map(millis),
            held_ms: self.held.map(millis),
            at_risk: self.at_risk,
        };
        written.serialize(serializer)
    }
}
