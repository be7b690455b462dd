//! What entries amount to.

use std::time::Duration;

use distlock::{Entry, EntryId, Key, Label, Locks, Mode, Note, Visit, VisitId, VisitState, What};

use crate::support::*;

fn label(text: &str) -> Label {
    Label::new("label", text).unwrap()
}

/// An entry: when, the number of the visit (0 for none), the fence (0 for none), what.
fn entry(at_ms: u64, visit: u64, fence: u64, what: What) -> Entry {
    let note = Note {
        key: Key::new("k").unwrap(),
        owner: label(&format!("v{visit}")),
        reason: None,
        mode: Mode::Exclusive,
        fence: (fence > 0).then_some(fence),
        visit: (visit > 0).then_some(VisitId(visit)),
        what,
    };
    Entry { id: EntryId::new(at_ms.to_string()).unwrap(), at_ms, note }
}

const fn granted(waited: u64) -> What {
    What::Granted { waited: ms(waited) }
}

const fn released(held: u64) -> What {
    What::Released { held: Some(ms(held)) }
}

#[test]
fn a_wait_and_a_hold_are_one_visit() {
    let visits = Visit::fold(&[
        entry(1000, 1, 0, What::Queued { ahead: 2 }),
        entry(1400, 1, 7, granted(410)),
        entry(2000, 1, 7, What::AtRisk { remaining: ms(100) }),
        entry(2400, 1, 7, released(1000)),
    ]);
    assert_eq!(visits.len(), 1);
    let visit = &visits[0];
    assert_eq!(
        (visit.began_at_ms, visit.granted_at_ms, visit.ended_at_ms),
        (990, Some(1400), Some(2400))
    );
    assert_eq!((visit.waited, visit.held, visit.fence), (Some(ms(410)), Some(ms(1000)), Some(7)));
    assert!(visit.at_risk && visit.state == VisitState::Released);
}

#[test]
fn an_entry_that_is_there_twice_counts_once() {
    let once = [
        entry(1000, 1, 0, What::Queued { ahead: 0 }),
        entry(1400, 1, 7, granted(400)),
        entry(2400, 1, 7, released(1000)),
    ];
    let twice: Vec<_> = once.iter().chain(&once).cloned().collect();
    assert_eq!(Visit::fold(&twice), Visit::fold(&once));
}

#[test]
fn somebody_else_may_end_a_hold() {
    let lost = |why: &str| What::Lost { held: None, why: label(why) };
    let broken = || What::Broken { by: label("anna"), why: Some(label("stuck")) };
    for (ends, state) in [
        (vec![What::Released { held: None }], VisitState::Released),
        (vec![lost("gone")], VisitState::Lost(label("gone"))),
        (
            vec![broken(), lost("broken")],
            VisitState::Broken { by: label("anna"), why: Some(label("stuck")) },
        ),
        (
            vec![lost("broken"), broken()],
            VisitState::Broken { by: label("anna"), why: Some(label("stuck")) },
        ),
        (vec![lost("expired"), What::Released { held: None }], VisitState::Lost(label("expired"))),
    ] {
        let mut entries = vec![entry(1000, 1, 7, granted(0))];
        entries.extend(ends.into_iter().map(|what| entry(1500, 0, 7, what)));
        let visits = Visit::fold(&entries);
        assert_eq!(visits.len(), 1, "{visits:?}");
        assert_eq!((&visits[0].state, visits[0].held), (&state, Some(ms(500))));
        assert_eq!(visits[0].owner.as_str(), "v1");
    }
}

#[test]
fn whoever_was_followed_without_a_word_has_vanished() {
    let visits = Visit::fold(&[
        entry(1000, 1, 7, granted(0)),
        entry(1100, 2, 0, What::Queued { ahead: 0 }),
        entry(9000, 2, 8, granted(7900)),
    ]);
    let states: Vec<_> = visits.iter().map(|visit| visit.state.name()).collect();
    assert_eq!(states, ["vanished", "held"]);
}

#[test]
fn sharers_follow_each_other_without_vanishing() {
    let shared = |at, visit, fence| {
        let mut entry = entry(at, visit, fence, granted(0));
        entry.note.mode = Mode::Shared;
        entry
    };
    let visits = Visit::fold(&[shared(1, 1, 7), shared(2, 2, 8), shared(3, 3, 8)]);
    assert!(visits.iter().all(|visit| visit.state == VisitState::Held) && visits.len() == 3);
    let visits = Visit::fold(&[shared(1, 1, 7), entry(5, 2, 9, granted(4))]);
    assert_eq!(visits[0].state, VisitState::Vanished);
}

#[test]
fn a_visit_whose_beginning_was_dropped_is_still_one() {
    let visits = Visit::fold(&[entry(5000, 1, 7, released(4000))]);
    assert_eq!(visits[0].granted_at_ms, Some(1000));
    assert_eq!(visits[0].state, VisitState::Released);
    let gave_up = What::GaveUp { waited: ms(300), why: label("timeout") };
    let visits = Visit::fold(&[entry(5000, 1, 0, gave_up)]);
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
    let visits = Visit::fold(&[
        entry(1000, 1, 7, granted(0)),
        entry(1500, 0, 7, What::Broken { by: label("anna"), why: Some(label("stuck")) }),
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
