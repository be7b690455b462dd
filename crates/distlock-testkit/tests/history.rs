//! The history checker rejects every planted bad history and accepts the good ones.

use std::time::Duration;

use distlock_core::Moment;
use distlock_core::Order::{self, PreferReaders, PreferWriters};
use distlock_testkit::history::{AcquireSpec, History, HistoryEntry, Rule, Tally, ValidityEnd};

fn at(millis: u64) -> Moment {
    Moment::from_micros(millis * 1_000)
}

/// A claim asked and granted at `from` and released at `to`.
fn held(history: &History, wish: AcquireSpec, fence: u64, from: u64, to: u64) -> HistoryEntry {
    let entry = history.asks(wish, at(from));
    entry.granted(fence, at(from));
    entry.ended(ValidityEnd::Released, at(to));
    entry
}

/// A claim that waited under a ticket from `asked` on.
fn queued(history: &History, wish: AcquireSpec, ticket: u64, asked: u64) -> HistoryEntry {
    let entry = history.asks(wish, at(asked));
    entry.waits(ticket, at(asked));
    entry
}

fn finish(entry: &HistoryEntry, fence: u64, from: u64, to: u64) {
    entry.granted(fence, at(from));
    entry.ended(ValidityEnd::Released, at(to));
}

fn rules(write: impl FnOnce(&History)) -> Vec<Rule> {
    let history = History::new(1);
    write(&history);
    history.check().into_iter().map(|violation| violation.rule).collect()
}

fn group(name: &str) -> AcquireSpec {
    AcquireSpec { group: Some(name.into()), ..AcquireSpec::read("k", PreferReaders) }
}

fn thread(number: u64) -> AcquireSpec {
    AcquireSpec { thread: Some(number), ..AcquireSpec::mutex("k") }
}

type Case = (&'static str, fn(&History));

/// Checks that each history breaks this rule and no other.
fn rejects(rule: Rule, cases: &[Case]) {
    for (name, write) in cases {
        let found = rules(write);
        assert!(found.contains(&rule), "{name}: found {found:?}");
        assert!(found.iter().all(|other| *other == rule), "{name}: found {found:?}");
    }
}

#[test]
fn holding_together_what_must_not_is_rejected() {
    let cases: &[Case] = &[
        ("two mutexes", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10);
            held(h, AcquireSpec::mutex("k"), 2, 9, 20);
        }),
        ("a mutex inside a mutex", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 100);
            held(h, AcquireSpec::mutex("k"), 2, 40, 50);
        }),
        ("a live mutex that never ends", |h| {
            h.asks(AcquireSpec::mutex("k"), at(0)).granted(1, at(0));
            held(h, AcquireSpec::mutex("k"), 2, 500, 501);
        }),
        ("a reader beside a writer", |h| {
            held(h, AcquireSpec::write("k", PreferReaders), 1, 0, 10);
            held(h, AcquireSpec::read("k", PreferReaders), 2, 5, 20);
        }),
        ("a writer beside a reader", |h| {
            held(h, AcquireSpec::read("k", PreferReaders), 1, 0, 10);
            held(h, AcquireSpec::write("k", PreferReaders), 2, 5, 20);
        }),
        ("too many permits", |h| {
            held(h, AcquireSpec::permits("k", 2, 3), 1, 0, 10);
            held(h, AcquireSpec::permits("k", 2, 3), 2, 5, 20);
        }),
        ("too many permits, reported late", |h| {
            let first = h.asks(AcquireSpec::permits("k", 2, 3), at(0));
            held(h, AcquireSpec::permits("k", 2, 3), 2, 5, 20);
            finish(&first, 1, 6, 10);
        }),
        ("two groups", |h| {
            held(h, group("red"), 1, 0, 10);
            held(h, group("blue"), 2, 5, 20);
        }),
        ("two orders", |h| {
            held(h, AcquireSpec::read("k", PreferReaders), 1, 0, 10);
            held(h, AcquireSpec::read("k", PreferWriters), 2, 5, 20);
        }),
        ("two threads", |h| {
            held(h, thread(1), 1, 0, 10);
            held(h, thread(2), 2, 5, 20);
        }),
        ("a writer that was not lowered yet", |h| {
            let writer = h.asks(AcquireSpec::write("k", PreferReaders), at(0));
            writer.granted(1, at(0));
            writer.lowered(1, at(10));
            held(h, AcquireSpec::read("k", PreferReaders), 2, 9, 20);
        }),
    ];
    rejects(Rule::Exclusion, cases);
}

#[test]
fn fences_that_repeat_or_go_back_are_rejected() {
    let cases: &[Case] = &[
        ("one fence twice", |h| {
            held(h, AcquireSpec::read("k", PreferReaders), 1, 0, 10);
            held(h, AcquireSpec::read("k", PreferReaders), 1, 5, 20);
        }),
        ("a fence that goes back", |h| {
            held(h, AcquireSpec::mutex("k"), 5, 0, 10);
            held(h, AcquireSpec::mutex("k"), 4, 10, 20);
        }),
        ("a reader behind a writer", |h| {
            held(h, AcquireSpec::write("k", PreferReaders), 5, 0, 10);
            held(h, AcquireSpec::read("k", PreferReaders), 4, 10, 20);
        }),
        ("a reader asked after another was done", |h| {
            held(h, AcquireSpec::read("k", PreferReaders), 5, 0, 10);
            held(h, AcquireSpec::read("k", PreferReaders), 4, 11, 20);
        }),
    ];
    rejects(Rule::Fence, cases);
}

#[test]
fn overtaking_is_rejected() {
    let cases: &[Case] = &[
        ("a later ticket first", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10);
            let (first, second) = (
                queued(h, AcquireSpec::mutex("k"), 2, 1),
                queued(h, AcquireSpec::mutex("k"), 3, 2),
            );
            finish(&second, 4, 10, 20);
            finish(&first, 5, 20, 30);
        }),
        ("a one-shot past the queue", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10);
            let waiter = queued(h, AcquireSpec::mutex("k"), 2, 1);
            held(h, AcquireSpec::mutex("k"), 3, 10, 20);
            finish(&waiter, 4, 20, 30);
        }),
        ("a reader past a waiting writer", |h| {
            held(h, AcquireSpec::read("k", PreferWriters), 1, 0, 10);
            let writer = queued(h, AcquireSpec::write("k", PreferWriters), 2, 1);
            held(h, AcquireSpec::read("k", PreferWriters), 3, 5, 8);
            finish(&writer, 4, 10, 20);
        }),
        ("a queued reader past a later writer", |h| {
            held(h, AcquireSpec::write("k", PreferWriters), 1, 0, 10);
            let reader = queued(h, AcquireSpec::read("k", PreferWriters), 2, 1);
            let writer = queued(h, AcquireSpec::write("k", PreferWriters), 3, 2);
            finish(&reader, 4, 10, 20);
            finish(&writer, 5, 20, 30);
        }),
        ("a writer past a waiting reader", |h| {
            held(h, AcquireSpec::write("k", PreferReaders), 1, 0, 10);
            let writer = queued(h, AcquireSpec::write("k", PreferReaders), 2, 1);
            let reader = queued(h, AcquireSpec::read("k", PreferReaders), 3, 2);
            finish(&writer, 4, 10, 20);
            finish(&reader, 5, 20, 30);
        }),
        ("a reader past a writer that gave up", |h| {
            held(h, AcquireSpec::read("k", PreferWriters), 1, 0, 100);
            let writer = queued(h, AcquireSpec::write("k", PreferWriters), 2, 1);
            [20, 40, 60].into_iter().for_each(|when| writer.waits(2, at(when)));
            held(h, AcquireSpec::read("k", PreferWriters), 3, 10, 15);
        }),
    ];
    rejects(Rule::Order, cases);
}

#[test]
fn ends_and_grants_out_of_turn_are_rejected() {
    let cases: &[Case] = &[
        ("ended twice", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10).ended(ValidityEnd::Lost, at(11));
        }),
        ("held again after its loss", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10).granted(1, at(11));
        }),
        ("ended and never granted", |h| {
            h.asks(AcquireSpec::mutex("k"), at(0)).ended(ValidityEnd::Lost, at(1));
        }),
    ];
    rejects(Rule::Accounting, cases);
}

#[test]
fn good_histories_are_accepted() {
    let cases: [Case; 11] = [
        ("one after the other", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10);
            held(h, AcquireSpec::mutex("k"), 2, 10, 20);
        }),
        ("all at one moment", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 5, 5);
            held(h, AcquireSpec::mutex("k"), 2, 5, 5);
        }),
        ("two keys", |h| {
            held(h, AcquireSpec::mutex("k"), 1, 0, 10);
            held(h, AcquireSpec::mutex("other"), 1, 0, 10);
        }),
        ("a lease that ran out unnoticed", |h| {
            let first = h.asks(AcquireSpec::mutex("k"), at(0));
            first.granted(1, at(0));
            first.valid_until(at(10));
            held(h, AcquireSpec::mutex("k"), 2, 12, 20);
            first.ended(ValidityEnd::Lost, at(15));
        }),
        ("readers together", |h| {
            held(h, AcquireSpec::read("k", PreferReaders), 1, 0, 10);
            held(h, AcquireSpec::read("k", PreferReaders), 2, 5, 20);
        }),
        ("a reader that learned of its grant late", |h| {
            let first = h.asks(AcquireSpec::read("k", PreferReaders), at(0));
            held(h, AcquireSpec::read("k", PreferReaders), 2, 5, 6);
            finish(&first, 1, 8, 10);
        }),
        ("capacities that differ, each counted by its own", |h| {
            let small = h.asks(AcquireSpec::permits("k", 3, 4), at(0));
            held(h, AcquireSpec::permits("k", 5, 10), 2, 5, 20);
            finish(&small, 1, 6, 10);
        }),
        ("a thread that enters again", |h| {
            held(h, thread(1), 1, 0, 10);
            held(h, thread(1), 1, 2, 5);
            held(h, thread(1), 1, 6, 12);
        }),
        ("a writer lowered to a reader", |h| {
            let writer = h.asks(AcquireSpec::write("k", PreferReaders), at(0));
            writer.granted(1, at(0));
            writer.lowered(1, at(10));
            held(h, AcquireSpec::read("k", PreferReaders), 2, 10, 20);
        }),
        ("a reader past a writer, as readers may", |h| {
            held(h, AcquireSpec::read("k", PreferReaders), 1, 0, 10);
            let writer = queued(h, AcquireSpec::write("k", PreferReaders), 2, 1);
            held(h, AcquireSpec::read("k", PreferReaders), 3, 5, 8);
            finish(&writer, 4, 10, 20);
        }),
        ("a writer past a queued reader, as writers may", |h| {
            held(h, AcquireSpec::write("k", PreferWriters), 1, 0, 10);
            let reader = queued(h, AcquireSpec::read("k", PreferWriters), 2, 1);
            let writer = queued(h, AcquireSpec::write("k", PreferWriters), 3, 2);
            finish(&writer, 4, 10, 20);
            finish(&reader, 5, 20, 30);
        }),
    ];
    for (name, write) in cases {
        let history = History::new(1);
        write(&history);
        assert_eq!(history.check(), [], "{name}");
    }
}

#[test]
fn a_failure_shows_the_seed() {
    let history = History::new(0xbeef);
    held(&history, AcquireSpec::mutex("k"), 1, 0, 10);
    held(&history, AcquireSpec::mutex("k"), 2, 5, 20);
    let check = std::panic::AssertUnwindSafe(|| history.assert_ok());
    let panic = std::panic::catch_unwind(check).expect_err("must fail");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.contains("0xbeef") && text.contains("exclusion at \"k\""), "{text}");
}

#[test]
fn a_long_history_is_checked_in_no_time() {
    let history = History::new(1);
    for number in 0..100_000 {
        held(&history, AcquireSpec::read("k", Order::Fifo), number + 1, number, number + 500);
    }
    let began = std::time::Instant::now();
    history.assert_ok();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let tally = Tally { granted: 100_000, released: 100_000, ..Tally::default() };
    assert_eq!(history.tally(), tally);
}
