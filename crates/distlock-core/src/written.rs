//! An entry of the journal as JSON and the like: one flat object.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::{AcquisitionId, JournalEntry, Mode, Note, NoteEvent};

/// `exclusive`, `shared`, or permits as `2/5`.
impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One flat object: `id`, `atMs`, `key`, `owner`, `reason`, `mode`, `fence`, `visit`, `what`, and
/// what belongs to that: `ahead`, `waitedMs`, `heldMs`, `remainingMs`, `by`, `why`. What is not
/// known is left out.
impl Serialize for JournalEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Note { key, owner, reason, mode, fence, acquisition, what } = &self.note;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id.as_str())?;
        map.serialize_entry("atMs", &self.at_ms)?;
        map.serialize_entry("what", what.name())?;
        map.serialize_entry("key", key.as_str())?;
        map.serialize_entry("owner", owner.as_str())?;
        if let Some(reason) = reason {
            map.serialize_entry("reason", reason.as_str())?;
        }
        map.serialize_entry("mode", mode)?;
        if let Some(fence) = fence {
            map.serialize_entry("fence", fence)?;
        }
        if let Some(AcquisitionId(acquisition)) = acquisition {
            map.serialize_entry("visit", acquisition)?;
        }
        match what {
            NoteEvent::Queued { ahead } => map.serialize_entry("ahead", ahead)?,
            NoteEvent::GaveUp { waited, why } => {
                map.serialize_entry("waitedMs", &millis(*waited))?;
                map.serialize_entry("why", why.as_str())?;
            }
            NoteEvent::Granted { waited } => map.serialize_entry("waitedMs", &millis(*waited))?,
            NoteEvent::AtRisk { remaining } => {
                map.serialize_entry("remainingMs", &millis(*remaining))?;
            }
            NoteEvent::Released { held } => held_ms(&mut map, *held)?,
            NoteEvent::Lost { held, why } => {
                held_ms(&mut map, *held)?;
                map.serialize_entry("why", why.as_str())?;
            }
            NoteEvent::Broken { by, why } => {
                map.serialize_entry("by", by.as_str())?;
                if let Some(why) = why {
                    map.serialize_entry("why", why.as_str())?;
                }
            }
            NoteEvent::Action { by, what } => {
                map.serialize_entry("by", by.as_str())?;
                map.serialize_entry("why", what.as_str())?;
            }
        }
        map.end()
    }
}

fn held_ms<M: SerializeMap>(map: &mut M, held: Option<Duration>) -> Result<(), M::Error> {
    held.map_or(Ok(()), |held| map.serialize_entry("heldMs", &millis(held)))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntryId, Key, Label};

    #[test]
    fn an_entry_is_one_flat_object() {
        let label = |text| Label::new("label", text).unwrap();
        let note = Note {
            key: Key::new("deploy/prod").unwrap(),
            owner: label("ci-7"),
            reason: None,
            mode: Mode::Permits { weight: 2, capacity: 5 },
            fence: Some(7),
            acquisition: Some(AcquisitionId(9)),
            what: NoteEvent::Lost {
                held: Some(Duration::from_millis(1500)),
                why: label("expired"),
            },
        };
        let entry = JournalEntry { id: EntryId::new("17-0").unwrap(), at_ms: 5, note };
        let written = serde_json::to_string(&entry).unwrap();
        assert_eq!(
            written,
            r#"{"id":"17-0","atMs":5,"what":"lost","key":"deploy/prod","owner":"ci-7","#.to_owned()
                + r#""mode":"2/5","fence":7,"visit":9,"heldMs":1500,"why":"expired"}"#
        );
    }
}
