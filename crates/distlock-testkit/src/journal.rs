//! What every journal promises, one async fn per promise.
//!
//! A driver proves itself with one test:
//!
//! ```ignore
//! let store = MyStore::start();
//! distlock_testkit::journal::conformance(&store.client(), &store.client()).await;
//! ```
//!
//! Both are clients of one journal that is empty and that no other test uses meanwhile.

use std::collections::HashSet;
use std::time::Duration;

use distlock_core::{
    AcquisitionId, EntryId, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Key, Label, Mode,
    Note, NoteEvent, Retention,
};

/// How many entries more than asked for a store may keep for a while.
const SLACK: usize = 200;

/// Runs every promise, one after the other, and prints each before it is tried. It waits for some
/// tens of milliseconds, since entries grow old by themselves only.
///
/// # Panics
///
/// If a promise is broken.
pub async fn conformance(a: &dyn Journal, b: &dyn Journal) {
    macro_rules! in_a_row {
        ($($promise:ident,)*) => {
            $(
                println!(stringify!($promise));
                Box::pin($promise(a, b)).await;
            )*
        };
    }
    in_a_row! {
        an_empty_journal_has_no_past,
        every_kind_of_note_reads_back,
        odd_keys_read_back,
        an_empty_batch_changes_nothing,
        pages_go_on_where_the_last_one_ended,
        a_reader_that_comes_late_gets_all_that_is_kept,
        the_past_of_a_key_is_its_own_and_newest_first,
        limits_are_kept,
        ages_become_times_of_the_store,
        writers_side_by_side_keep_their_order,
        an_id_of_another_journal_is_a_fault,
        the_oldest_go_when_there_are_too_many,
        a_reader_that_was_away_too_long_is_told,
        the_oldest_go_when_they_are_too_old,
    }
}

/// Nothing is read from a journal that no client has written.
pub async fn an_empty_journal_has_no_past(a: &dyn Journal, _: &dyn Journal) {
    assert_eq!(a.last().await.expect("it can be asked"), None);
    assert_eq!(page(a, None, 10).await, JournalPage::default());
    assert_eq!(a.past(&key("empty"), 10).await.expect("it can be read"), []);
}

/// Another client reads every note as it was written, in its order, under ids of their own.
pub async fn every_kind_of_note_reads_back(a: &dyn Journal, b: &dyn Journal) {
    let (span, why) = (Duration::from_micros(1_234_567), label("expired"));
    let whats = [
        NoteEvent::Queued { ahead: 3 },
        NoteEvent::GaveUp { waited: span, why: label("timeout") },
        NoteEvent::Granted { waited: Duration::ZERO },
        NoteEvent::AtRisk { remaining: span },
        NoteEvent::Released { held: Some(span) },
        NoteEvent::Released { held: None },
        NoteEvent::Lost { held: Some(span), why: why.clone() },
        NoteEvent::Lost { held: None, why },
        NoteEvent::Broken { by: label("anna"), why: Some(label("stuck since noon")) },
        NoteEvent::Broken { by: label("anna"), why: None },
    ];
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { weight: 2, capacity: 5 }];
    let each = |(at, what): (usize, NoteEvent)| Note {
        mode: modes[at % 3],
        reason: (at % 2 == 0).then(|| label("release 1.9 \u{1f680}")),
        fence: (at % 3 > 0).then_some((1 << 53) - 1),
        acquisition: (at % 4 > 0).then_some(AcquisitionId((1 << 53) - 1)),
        what,
        ..note("kinds", 0)
    };
    let notes: Vec<_> = whats.into_iter().enumerate().map(each).collect();
    let since = newest(a).await;
    append(a, &notes).await;
    let read = page(b, since.as_ref(), 100).await;
    assert_eq!(notes_of(&read.entries), notes);
    let ids: HashSet<_> = read.entries.iter().map(|entry| &entry.id).collect();
    assert_eq!(ids.len(), notes.len(), "two entries share an id");
    assert_eq!(newest(b).await.as_ref(), read.entries.last().map(|entry| &entry.id));
}

/// All bytes of a key count, whatever they are.
pub async fn odd_keys_read_back(a: &dyn Journal, b: &dyn Journal) {
    let odd = ["{", "}", "a\nb", "\0", "=", "'; --", "\u{202e}", " ", &"é".repeat(256)];
    let notes: Vec<_> = odd.iter().map(|key| note(key, 0)).collect();
    append(a, &notes).await;
    for (key, note) in odd.iter().zip(&notes) {
        let past = b.past(&self::key(key), 10).await.expect("it can be read");
        assert_eq!(notes_of(&past), std::slice::from_ref(note), "{key:?}");
    }
}

/// A writer with nothing to say says nothing.
pub async fn an_empty_batch_changes_nothing(a: &dyn Journal, _: &dyn Journal) {
    let since = newest(a).await;
    append(a, &[]).await;
    assert_eq!(newest(a).await, since);
}

/// Reading on after the last entry of a page gets the next one, nothing twice and nothing left out.
pub async fn pages_go_on_where_the_last_one_ended(a: &dyn Journal, b: &dyn Journal) {
    let notes: Vec<_> = (0..25).map(|n| note("pages", n)).collect();
    let mut since = newest(a).await;
    append(a, &notes).await;
    let mut read = Vec::new();
    loop {
        let page = page(b, since.as_ref(), 10).await;
        assert!(!page.missed, "nothing was dropped");
        let Some(last) = page.entries.last() else { break };
        since = Some(last.id.clone());
        read.extend(page.entries);
    }
    assert_eq!(notes_of(&read), notes);
    for (at, entry) in read.iter().enumerate() {
        let next = page(a, Some(&entry.id), 1).await;
        assert!(!next.missed, "entry {at} is still there");
        assert_eq!(next.entries.first(), read.get(at + 1), "after entry {at}");
    }
}

/// A client that reads from the start gets everything that is kept.
pub async fn a_reader_that_comes_late_gets_all_that_is_kept(a: &dyn Journal, b: &dyn Journal) {
    append(a, &[note("late", 1)]).await;
    let (mut read, mut since) = (Vec::new(), None);
    loop {
        let page = page(b, since.as_ref(), 7).await;
        assert!(!page.missed, "nothing was dropped");
        let Some(last) = page.entries.last() else { break };
        since = Some(last.id.clone());
        read.extend(page.entries);
    }
    assert!(read.len() > 7, "earlier promises have written more");
    assert_eq!(read.last().map(|entry| &entry.note), Some(&note("late", 1)));
    assert_eq!(newest(b).await, since);
}

/// The past of a key has no entry of another, and begins with the newest.
pub async fn the_past_of_a_key_is_its_own_and_newest_first(a: &dyn Journal, b: &dyn Journal) {
    let notes: Vec<_> = (0..30).map(|n| note(["mine", "mine/too", "min"][n % 3], n)).collect();
    append(a, &notes).await;
    let past = b.past(&key("mine"), 100).await.expect("it can be read");
    let mut mine: Vec<_> = notes.into_iter().step_by(3).collect();
    mine.reverse();
    assert_eq!(notes_of(&past), mine);
    let few = b.past(&key("mine"), 4).await.expect("it can be read");
    assert_eq!(few, past[..4]);
}

/// No client gets more than asked for, or more than a page.
pub async fn limits_are_kept(a: &dyn Journal, _: &dyn Journal) {
    for chunk in 0..5 {
        let notes: Vec<_> = (0..250).map(|n| note("limits", 250 * chunk + n)).collect();
        append(a, &notes).await;
    }
    for (limit, expected) in [(0, 0), (1, 1), (usize::MAX, JOURNAL_PAGE_MAX)] {
        assert_eq!(page(a, None, limit).await.entries.len(), expected);
        let past = a.past(&key("limits"), limit).await.expect("it can be read");
        assert_eq!(past.len(), expected);
    }
}

/// An entry says when it happened by the clock of the store, not when it was written.
pub async fn ages_become_times_of_the_store(a: &dyn Journal, b: &dyn Journal) {
    let hour = Duration::from_secs(60 * 60);
    let notes = [(note("ages", 0), hour), (note("ages", 1), Duration::ZERO)];
    a.append(&notes, Retention::default()).await.expect("it can be written");
    let past = b.past(&key("ages"), 2).await.expect("it can be read");
    let [new, old] = &past[..] else { panic!("two entries: {past:?}") };
    let apart = new.at_ms.saturating_sub(old.at_ms);
    assert!(apart.abs_diff(3_600_000) <= 1_000, "{apart} ms apart");
    assert!(new.at_ms > 1_600_000_000_000, "no time of day: {}", new.at_ms);
}

/// What is written at once is all there, and each writer's notes are in its own order.
pub async fn writers_side_by_side_keep_their_order(a: &dyn Journal, b: &dyn Journal) {
    let write = async |journal: &dyn Journal, name: &str| {
        for batch in 0..20 {
            let notes: Vec<_> = (0..5).map(|n| note(name, 5 * batch + n)).collect();
            append(journal, &notes).await;
        }
    };
    tokio::join!(write(a, "writer/a"), write(b, "writer/b"));
    for name in ["writer/a", "writer/b"] {
        let mut past = a.past(&key(name), 1000).await.expect("it can be read");
        past.reverse();
        let expected: Vec<_> = (0..100).map(|n| note(name, n)).collect();
        assert_eq!(notes_of(&past), expected);
    }
}

/// An id that this journal cannot have given out is refused for good.
pub async fn an_id_of_another_journal_is_a_fault(a: &dyn Journal, _: &dyn Journal) {
    for odd in ["zzz", "-", "9.9.9"] {
        let id = EntryId::new(odd).expect("it has the form of an id");
        let fault = a.page(Some(&id), 10).await.expect_err("it is no id of this journal");
        assert!(!fault.is_transient(), "{odd}: {fault}");
    }
}

/// No more is kept than the retention says, but for some slack, and never less.
pub async fn the_oldest_go_when_there_are_too_many(a: &dyn Journal, b: &dyn Journal) {
    let few = Retention { entries: 100, ..Retention::default() };
    for n in 0..6 {
        let notes: Vec<_> = (0..100).map(|m| (note("many", 100 * n + m), Duration::ZERO)).collect();
        a.append(&notes, few).await.expect("it can be written");
    }
    let kept = page(b, None, JOURNAL_PAGE_MAX).await;
    let count = kept.entries.len();
    assert!((100..=100 + SLACK).contains(&count), "{count} are kept");
    assert!(!kept.missed, "no client asked for what is gone");
    let expected: Vec<_> = (600 - count..600).map(|n| note("many", n)).collect();
    assert_eq!(notes_of(&kept.entries), expected);
}

/// Reading on after an entry that is gone says so; reading on after one that is kept does not.
pub async fn a_reader_that_was_away_too_long_is_told(a: &dyn Journal, b: &dyn Journal) {
    append(a, &[note("away", 0)]).await;
    let since = newest(b).await.expect("just written");
    let few = Retention { entries: 10, ..Retention::default() };
    for n in 1..=6 {
        let notes: Vec<_> = (0..100).map(|m| (note("away", 100 * n + m), Duration::ZERO)).collect();
        a.append(&notes, few).await.expect("it can be written");
    }
    let read = page(b, Some(&since), JOURNAL_PAGE_MAX).await;
    assert!(read.missed, "it was dropped");
    let first = read.entries.first().expect("some are kept");
    assert!(!page(b, Some(&first.id), 10).await.missed);
}

/// What is too old goes with the next write.
pub async fn the_oldest_go_when_they_are_too_old(a: &dyn Journal, b: &dyn Journal) {
    append(a, &[note("old", 0)]).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let brief = Retention { age: Duration::from_millis(30), ..Retention::default() };
    a.append(&[(note("old", 1), Duration::ZERO)], brief).await.expect("it can be written");
    let past = b.past(&key("old"), 10).await.expect("it can be read");
    let kept = notes_of(&past);
    assert!(!kept.contains(&note("old", 0)), "it is too old: {past:?}");
}

async fn append(journal: &dyn Journal, notes: &[Note]) {
    let notes: Vec<_> = notes.iter().map(|note| (note.clone(), Duration::ZERO)).collect();
    journal.append(&notes, Retention::default()).await.expect("it can be written");
}

async fn page(journal: &dyn Journal, after: Option<&EntryId>, limit: usize) -> JournalPage {
    journal.page(after, limit).await.expect("it can be read")
}

async fn newest(journal: &dyn Journal) -> Option<EntryId> {
    journal.last().await.expect("it can be read")
}

fn notes_of(entries: &[JournalEntry]) -> Vec<Note> {
    entries.iter().map(|entry| entry.note.clone()).collect()
}

fn key(name: &str) -> Key {
    Key::new(name).expect("a valid key")
}

fn label(text: &str) -> Label {
    Label::new("label", text).expect("a valid label")
}

/// A note that can be told from others by its number.
fn note(key: &str, number: usize) -> Note {
    Note {
        key: self::key(key),
        owner: label("ann@host:7"),
        reason: None,
        mode: Mode::Exclusive,
        fence: None,
        acquisition: None,
        what: NoteEvent::Queued { ahead: number as u64 },
    }
}
