//! What is noted down, on the store in memory.

use std::sync::{Arc, Mutex};

use distlock::{Error, Event, FeedItem, HoldRecordState, Locks, Mode, NoteEvent, StartAt};
use futures_util::StreamExt;

use crate::support::*;

#[tokio::test]
async fn nothing_is_noted_unless_it_is_asked_for() {
    let locks = Locks::memory();
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    assert!(all(&locks).await.is_empty());
    let quiet = writing(&locks, "a").mutex("k").unwrap().configure(|o| o.journal(None)).unwrap();
    quiet.lock().await.unwrap().release().await.unwrap();
    assert!(all(&locks).await.is_empty(), "one lock can be left out");
}

#[tokio::test]
async fn a_journal_that_is_not_there_is_refused() {
    let store = distlock::backends::Memory::new();
    let locks = Locks::new(Arc::new(store));
    let refused = locks.configure(|o| o.journal(distlock::Retention::default())).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { what: "a journal" }), "{refused}");
    assert!(matches!(locks.history("k", 1).await, Err(Error::Unsupported { .. })));
    assert!(matches!(locks.feed(StartAt::Start).err(), Some(Error::Unsupported { .. })));
}

#[tokio::test]
async fn a_hand_over_is_told_from_the_wait_to_the_release() {
    let locks = Locks::memory();
    let (a, b) = (writing(&locks, "a"), writing(&locks, "b"));
    let guard = a.mutex("k").unwrap().lock().await.unwrap();
    let next = tokio::spawn({
        let mutex = b.mutex("k").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    until_waiting(&locks, "k", 1).await;
    let (first, second) = (guard.fence(), {
        guard.release().await.unwrap();
        next.await.unwrap()
    });
    let fence = second.fence();
    drop(second);
    locks.close().await.unwrap();
    let told = story(&locks, "k").await;
    let sorted = |mut told: Vec<String>| {
        told.sort();
        told
    };
    // Who tells first of the hand-over, the giver or the taker, is a matter of luck.
    let expected = ["a granted", "a released", "b granted", "b queued", "b released"];
    assert_eq!(sorted(told), expected);
    let entries = all(&locks).await;
    let fences: Vec<_> = entries.iter().filter_map(|entry| entry.note.fence).collect();
    assert!(fences.contains(&first) && fences.contains(&fence));
    let acquisition = |owner: &str| {
        let mut ids = entries.iter().filter(|e| e.note.owner.as_str() == owner);
        let first = ids.next().unwrap().note.acquisition.unwrap();
        assert!(ids.all(|entry| entry.note.acquisition == Some(first)), "{owner} is one visit");
        first
    };
    assert_ne!(acquisition("a"), acquisition("b"));
}

/// Waits until something was told.
async fn until_told(locks: &Locks, words: &str) {
    until(words, async || story(locks, "k").await.iter().any(|told| told == words)).await;
}

#[tokio::test]
async fn every_way_of_giving_up_has_a_word() {
    let locks = Locks::memory();
    let guard = writing(&locks, "holder").mutex("k").unwrap().lock().await.unwrap();
    let slow = writing(&locks, "slow").mutex("k").unwrap();
    assert!(slow.try_lock_for(ms(5)).await.is_err());
    let fickle = writing(&locks, "fickle").mutex("k").unwrap();
    let waiting = tokio::spawn(async move { fickle.lock().await.map(drop) });
    until_told(&locks, "fickle queued").await;
    waiting.abort();
    let _ = waiting.await;
    let open = writing(&locks, "open").mutex("k").unwrap();
    let waiting = tokio::spawn(async move { open.lock().await.map(drop) });
    until_told(&locks, "open queued").await;
    // A claim that is refused at once has not waited, and no client is told.
    assert!(writing(&locks, "curious").mutex("k").unwrap().try_lock().await.is_err());
    locks.close().await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    drop(guard);
    let told = story(&locks, "k").await;
    for expected in [
        "slow gave-up timeout",
        "fickle gave-up cancelled",
        "open gave-up closed",
        "holder lost closed",
    ] {
        assert!(told.iter().any(|told| told == expected), "{expected}: {told:?}");
    }
    assert!(!told.iter().any(|told| told.starts_with("curious")), "{told:?}");
}

#[tokio::test]
async fn modes_and_reasons_are_told() {
    let locks = writing(&Locks::memory(), "a").configure(|o| o.reason("release 1.9")).unwrap();
    drop(locks.mutex("mutex").unwrap().lock().await.unwrap());
    drop(locks.rwlock("rw").unwrap().read().await.unwrap());
    drop(locks.rwlock("rw").unwrap().write().await.unwrap());
    drop(locks.semaphore("sem", 5).unwrap().acquire_many(2).await.unwrap());
    let entries = all(&locks).await;
    assert!(entries.iter().all(|e| e.note.reason.as_ref().unwrap().as_str() == "release 1.9"));
    let granted = entries.iter().filter(|e| matches!(e.note.what, NoteEvent::Granted { .. }));
    let modes: Vec<_> = granted.map(|entry| entry.note.mode).collect();
    let permits = Mode::Permits { weight: 2, capacity: 5 };
    assert_eq!(modes, [Mode::Exclusive, Mode::Shared, Mode::Exclusive, permits]);
}

#[tokio::test]
async fn a_break_tells_who_did_it_and_why() {
    let locks = Locks::memory();
    let guard = writing(&locks, "holder").mutex("k").unwrap().lock().await.unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    locks.on_event({
        let events = Arc::clone(&events);
        move |event| events.lock().unwrap().push(event.clone())
    });
    let operator = writing(&locks, "anna").configure(|o| o.reason("stuck")).unwrap();
    operator.break_hold("k", guard.fence()).await.unwrap();
    guard.lost().await;
    // The loss is told before it is noted down.
    for note in ["holder broken by anna: stuck", "holder lost broken"] {
        until(note, async || story(&locks, "k").await.iter().any(|told| told == note)).await;
    }
    let past = locks.history("k", 10).await.unwrap();
    assert_eq!(past.len(), 1);
    assert!(matches!(&past[0].state, HoldRecordState::Broken { by, .. } if by.as_str() == "anna"));
    let broken = Event::Broken { key: guard.key().clone(), fence: guard.fence() };
    assert!(events.lock().unwrap().contains(&broken));
}

#[tokio::test]
async fn leases_are_told_although_nobody_keeps_them() {
    let locks = writing(&Locks::memory(), "a");
    let leases = locks.lease("k").unwrap();
    let mut lease = leases.acquire().await.unwrap();
    leases.release(&lease).await.unwrap();
    assert!(leases.extend(&mut lease).await.is_err());
    let id = "0123456789abcdef0123456789abcdef".parse().unwrap();
    let again = leases.acquire_or_extend(id).await.unwrap();
    assert_eq!(story(&locks, "k").await, ["a granted", "a released", "a lost gone", "a granted"]);
    assert_eq!(past(&locks, "k").await, ["a held", "a released"]);
    leases.release(&again).await.unwrap();
    assert_eq!(past(&locks, "k").await, ["a released", "a released"]);
}

#[tokio::test]
async fn claim_ids_are_in_no_entry() {
    let locks = writing(&Locks::memory(), "a");
    let leases = locks.lease("k").unwrap();
    let lease = leases.acquire().await.unwrap();
    leases.release(&lease).await.unwrap();
    let (shown, secret) = (format!("{:?}", all(&locks).await), lease.id().reveal());
    assert!(shown.contains("granted") || shown.contains("Granted"), "{shown}");
    assert!(!shown.contains(&secret) && !shown.contains(&secret[..12]), "{shown}");
}

#[tokio::test]
async fn a_feed_goes_on_where_it_was_left() {
    let locks = writing(&Locks::memory(), "a");
    let lock = async |key: &str| locks.mutex(key).unwrap().lock().await.unwrap().release().await;
    lock("one").await.unwrap();
    let mut feed = locks.feed(StartAt::Start).unwrap();
    let Some(FeedItem::Entry(first)) = feed.next().await else { panic!("no news") };
    assert_eq!(words(&first.note), "a granted");
    drop(feed);
    lock("two").await.unwrap();
    let mut feed = locks.feed(StartAt::After(first.id)).unwrap();
    for expected in ["one released", "two granted", "two released"] {
        let Some(FeedItem::Entry(entry)) = feed.next().await else { panic!("no news") };
        assert_eq!(format!("{} {}", entry.note.key, entry.note.what.name()), expected);
    }
    let mut late = locks.feed(StartAt::Now).unwrap();
    let (news, ()) = tokio::join!(late.next(), async {
        tokio::time::sleep(ms(50)).await;
        lock("three").await.unwrap();
    });
    let Some(FeedItem::Entry(entry)) = news else { panic!("no news") };
    assert_eq!(entry.note.key.as_str(), "three", "what was before is not told again");
    locks.close().await.unwrap();
    while let Some(news) = late.next().await {
        assert!(matches!(news, FeedItem::Entry(_)), "{news:?}");
    }
}

#[tokio::test]
async fn listeners_hear_of_waits() {
    let locks = Locks::memory();
    let mut events = locks.events();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert!(locks.mutex("k").unwrap().try_lock_for(ms(5)).await.is_err());
    drop(guard);
    assert!(matches!(events.next().await, Some(Event::Granted { .. })));
    assert!(matches!(events.next().await, Some(Event::Waiting { ahead: 0, .. })));
    let gave_up = events.next().await.unwrap();
    assert!(matches!(gave_up, Event::GaveUp { waited, .. } if waited >= ms(5)), "{gave_up:?}");
    assert!(matches!(events.next().await, Some(Event::Released { .. })));
}

#[tokio::test]
async fn an_adopted_lease_is_noted_in_the_mode_in_which_it_is_held() {
    let locks = writing(&Locks::memory(), "a");
    let leases = || locks.lease("k").unwrap();
    let cases = [
        (leases(), Mode::Exclusive),
        (leases().shared(), Mode::Shared),
        (leases().permits(2, 5).unwrap(), Mode::Permits { weight: 2, capacity: 5 }),
    ];
    for (leases, mode) in cases {
        let lease = leases.acquire().await.unwrap();
        let text = serde_json::to_string(&lease).unwrap();
        locks.adopt(&lease).await.unwrap().release().await.unwrap();
        let last = all(&locks).await.pop().unwrap().note;
        assert_eq!((last.what.name(), last.mode), ("released", mode));

        // The same after it was written down and read again.
        let again = leases.acquire_as(serde_json::from_str::<distlock::Lease>(&text).unwrap().id());
        let text = serde_json::to_string(&again.await.unwrap()).unwrap();
        let read: distlock::Lease = serde_json::from_str(&text).unwrap();
        locks.adopt(&read).await.unwrap().release().await.unwrap();
        let last = all(&locks).await.pop().unwrap().note;
        assert_eq!((last.what.name(), last.mode), ("released", mode), "{text}");
    }
    let read = locks.rwlock("k").unwrap().read().await.unwrap().into_lease();
    locks.adopt(&read).await.unwrap().release().await.unwrap();
    assert_eq!(all(&locks).await.pop().unwrap().note.mode, Mode::Shared);
}
