//! What entries amount to.

use std::time::Duration;

use distlock::{
    AcquisitionId, EntryId, HoldRecord, HoldRecordState, JournalEntry, Key, Label, Locks, Mode,
    Note, NoteEvent,
};

use crate::support::*;

fn label(text: &str) -> Label {
    Label::new("label", text).unwrap()
}

/// An entry: when, the number of the visit (0 for none), the fence (0 for none), what.
fn entry(at_ms: u64, acquisition: u64, fence: u64, what: NoteEvent) -> JournalEntry {
    let note = Note {
        key: Key::new("k").unwrap(),
        owner: label(&format!("v{acquisition}")),
        reason: None,
        mode: Mode::Exclusive,
        fence: (fence > 0).then_some(fence),
        acquisition: (acquisition > 0).then_some(AcquisitionId(acquisition)),
        what,
    };
    JournalEntry { id: EntryId::new(at_ms.to_string()).unwrap(), at_ms, note }
}

const fn granted(waited: u64) -> NoteEvent {
    NoteEvent::Granted { waited: ms(waited) }
}

const fn released(held: u64) -> NoteEvent {
    NoteEvent::Released { held: Some(ms(held)) }
}

#[test]
fn a_wait_and_a_hold_are_one_visit() {
    let visits = HoldRecord::fold(&[
        entry(1000, 1, 0, NoteEvent::Queued { ahead: 2 }),
        entry(1400, 1, 7, granted(410)),
        entry(2000, 1, 7, NoteEvent::AtRisk { remaining: ms(100) }),
        entry(2400, 1, 7, released(1000)),
    ]);
    assert_eq!(visits.len(), 1);
    let acquisition = &visits[0];
    assert_eq!(
        (acquisition.began_at_ms, acquisition.granted_at_ms, acquisition.ended_at_ms),
        (990, Some(1400), Some(2400))
    );
    assert_eq!(
        (acquisition.waited, acquisition.held, acquisition.fence),
        (Some(ms(410)), Some(ms(1000)), Some(7))
    );
    assert!(acquisition.at_risk && acquisition.state == HoldRecordState::Released);
}

#[test]
fn an_entry_that_is_there_twice_counts_once() {
    let once = [
        entry(1000, 1, 0, NoteEvent::Queued { ahead: 0 }),
        entry(1400, 1, 7, granted(400)),
        entry(2400, 1, 7, released(1000)),
    ];
    let twice: Vec<_> = once.iter().chain(&once).cloned().collect();
    assert_eq!(HoldRecord::fold(&twice), HoldRecord::fold(&once));
}

#[test]
fn somebody_else_may_end_a_hold() {
    let lost = |why: &str| NoteEvent::Lost { held: None, why: label(why) };
    let broken = || NoteEvent::Broken { by: label("anna"), why: Some(label("stuck")) };
    for (ends, state) in [
        (vec![NoteEvent::Released { held: None }], HoldRecordState::Released),
        (vec![lost("gone")], HoldRecordState::Lost(label("gone"))),
        (
            vec![broken(), lost("broken")],
            HoldRecordState::Broken { by: label("anna"), why: Some(label("stuck")) },
        ),
        (
            vec![lost("broken"), broken()],
            HoldRecordState::Broken { by: label("anna"), why: Some(label("stuck")) },
        ),
        (
            vec![lost("expired"), NoteEvent::Released { held: None }],
            HoldRecordState::Lost(label("expired")),
        ),
    ] {
        let mut entries = vec![entry(1000, 1, 7, granted(0))];
        entries.extend(ends.into_iter().map(|what| entry(1500, 0, 7, what)));
        let visits = HoldRecord::fold(&entries);
        assert_eq!(visits.len(), 1, "{visits:?}");
        assert_eq!((&visits[0].state, visits[0].held), (&state, Some(ms(500))));
        assert_eq!(visits[0].owner.as_str(), "v1");
    }
}

#[test]
fn whoever_was_followed_without_a_word_has_vanished() {
    let visits = HoldRecord::fold(&[
        entry(1000, 1, 7, granted(0)),
        entry(1100, 2, 0, NoteEvent::Queued { ahead: 0 }),
        entry(9000, 2, 8, granted(7900)),
    ]);
    let states: Vec<_> = visits.iter().map(|acquisition| acquisition.state.name()).collect();
    assert_eq!(states, ["vanished", "held"]);
}

#[test]
fn sharers_follow_each_other_without_vanishing() {
    let shared = |at, acquisition, fence| {
        let mut entry = entry(at, acquisition, fence, granted(0));
        entry.note.mode = Mode::Shared;
        entry
    };
    let visits = HoldRecord::fold(&[shared(1, 1, 7), shared(2, 2, 8), shared(3, 3, 8)]);
    assert!(
        visits.iter().all(|acquisition| acquisition.state == HoldRecordState::Held)
            && visits.len() == 3
    );
    let visits = HoldRecord::fold(&[shared(1, 1, 7), entry(5, 2, 9, granted(4))]);
    assert_eq!(visits[0].state, HoldRecordState::Vanished);
}

#[test]
fn a_visit_whose_beginning_was_dropped_is_still_one() {
    let visits = HoldRecord::fold(&[entry(5000, 1, 7, released(4000))]);
    assert_eq!(visits[0].granted_at_ms, Some(1000));
    assert_eq!(visits[0].state, HoldRecordState::Released);
    let gave_up = NoteEvent::GaveUp { waited: ms(300), why: label("timeout") };
    let visits = HoldRecord::fold(&[entry(5000, 1, 0, gave_up)]);
    assert_eq!((visits[0].began_at_ms, visits[0].waited), (4700, Some(ms(300))));
}

#[tokio::test]
async fn history_shows_who_came_last_first() {
    let locks = Locks::memory();
    for owner in ["a", "b", "c"] {
        drop(writing(&locks, owner).mutex("k").unwrap().lock().await.unwrap());
    }
    let guard = writing(&locks, "d").mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(past(&locks, "k").await, ["d held", "c released", "b released", "a released"]);
    let two = locks.history("k", 2).await.unwrap();
    assert_eq!((two.len(), of(&two, "d").fence), (2, Some(guard.fence())));
    assert!(locks.history("other", 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn history_knows_from_the_store_who_is_gone() {
    let store = distlock::backends::Memory::new();
    let clients: Vec<_> = (0..2)
        .map(|_| {
            Locks::new(std::sync::Arc::new(store.client()))
                .with_journal(std::sync::Arc::new(store.client()))
        })
        .collect();
    let short = |o: distlock::Options| o.ttl(Duration::from_millis(50));
    let leases = writing(&clients[0], "a").configure(short).unwrap().lease("k").unwrap();
    let lease = leases.acquire().await.unwrap();
    assert_eq!(past(&clients[0], "k").await, ["a held"]);
    until("the lease has run out", async || clients[1].inspect("k").await.unwrap().is_free()).await;
    assert_eq!(past(&clients[1], "k").await, ["a vanished"]);
    drop(lease);
}

#[cfg(feature = "serde")]
#[test]
fn a_visit_is_written_as_one_flat_object() {
    let visits = HoldRecord::fold(&[
        entry(1000, 1, 7, granted(0)),
        entry(1500, 0, 7, NoteEvent::Broken { by: label("anna"), why: Some(label("stuck")) }),
    ]);
    assert_eq!(
        serde_json::to_value(&visits[0]).unwrap(),
        serde_json::json!({
            "key": "k", "owner": "v1", "mode": "exclusive", "fence": 7, "state": "broken",
            "by": "anna", "why": "stuck", "beganAtMs": 1000, "grantedAtMs": 1000,
            "endedAtMs": 1500, "waitedMs": 0, "heldMs": 500, "atRisk": false,
        })
    );
}
