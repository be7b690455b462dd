//! Loss: whatever happens to the store, no command works on while another client holds its key.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use distlock_testkit::servers::{Flow, Proxy};

use crate::support::*;

/// A command that ignores TERM, with a tree of children: in the group, in the background, and one
/// that has left for a session of its own.
const TREE: &str = "trap \"\" TERM; sleep 100 & echo $! > pids.new; \
    sh -c \"sleep 101 & echo \\$! > deep; wait\" & echo $! >> pids.new; \
    setsid sleep 102 & echo $! >> pids.new; echo $$ >> pids.new; \
    while ! test -s deep; do sleep 0.01; done; cat deep >> pids.new; mv pids.new pids; \
    while :; do wait; done";

/// What the next holder reports when it enters: whether the command of the former holder still
/// lives.
fn next(locker: &Distlock, key: &str) -> Running {
    // The dead may not have been buried yet.
    let script = "for p in $(cat pids); do \
        grep -qs \"^State:.[^ZX]\" /proc/$p/status && echo alive $p; done; echo in";
    locker.start(&format!("run -q -w 60s {key} -- sh -c '{script}'"))
}

const FLAGS: &str = "-t 4s --kill-after 1s";

#[test]
fn a_holder_cut_off_from_its_store_is_dead_before_the_next_enters() {
    let store = Store::redis();
    let Store::Redis(server) = &store else { unreachable!() };
    let round = |number: usize| {
        let (proxy, folder) = (Proxy::to(server.port()), Folder::new());
        // A key of its own also if the round is played again.
        let key = format!("cut-{number}-{}", proxy.url().replace([':', '/'], ""));
        let cut_off = at(&proxy.url()).inside(&folder);
        let holder = cut_off.start(&format!("run {FLAGS} {key} -- sh -c '{TREE}'"));
        until("the command runs", || !folder.read("pids").is_empty());
        let next = next(&on(&store).inside(&folder), &key);
        until("a client waits", || {
            on(&store).run(&format!("status --json {key}")).json()["waitersTotal"] == 1
        });
        proxy.requests(Flow::Swallow);
        proxy.replies(Flow::Swallow);
        next.end().code(0).prints("in");
        let done = holder.end().code(79);
        done.says(&format!("LOST {key}")).says("SIGTERM").says("SIGKILL");
    };
    play(round, rounds(2, 20));
}

#[test]
fn a_holder_whose_store_stands_still_is_dead_before_the_next_enters() {
    let round = |_: usize| {
        let (store, folder) = (Store::redis(), Folder::new());
        let locker = on(&store).inside(&folder);
        let holder = locker.start(&format!("run {FLAGS} still -- sh -c '{TREE}'"));
        until("the command runs", || !folder.read("pids").is_empty());
        let next = next(&locker, "still");
        until("a client waits", || {
            on(&store).run("status --json still").json()["waitersTotal"] == 1
        });
        let Store::Redis(server) = &store else { unreachable!() };
        server.pause();
        let done = holder.end().code(79);
        done.says("LOST still").says("SIGKILL");
        server.resume();
        next.end().code(0).prints("in");
    };
    play(round, rounds(1, 20));
}

#[test]
fn a_holder_whose_file_is_locked_away_is_dead_before_the_next_enters() {
    let round = |_: usize| {
        let (store, folder) = (Store::sqlite(), Folder::new());
        let Store::Sqlite(files) = &store else { unreachable!() };
        let locker = on(&store).inside(&folder);
        let holder = locker.start(&format!("run {FLAGS} filed -- sh -c '{TREE}'"));
        until("the command runs", || !folder.read("pids").is_empty());
        let next = next(&locker, "filed");
        until("a client waits", || {
            on(&store).run("status --json filed").json()["waitersTotal"] == 1
        });
        let locked = rusqlite::Connection::open(files.path("locks.db")).unwrap();
        locked.busy_timeout(Duration::from_secs(20)).unwrap();
        locked.execute_batch("BEGIN IMMEDIATE").unwrap();
        let done = holder.end().code(79);
        done.says("LOST filed").says("SIGKILL");
        locked.execute_batch("ROLLBACK").unwrap();
        next.end().code(0).prints("in");
    };
    play(round, rounds(1, 20));
}

#[test]
fn a_key_that_is_deleted_ends_the_command() {
    let (store, folder) = (Store::redis(), Folder::new());
    let locker = on(&store).inside(&folder);
    let holder = hold(&locker, &folder, FLAGS, "deleted");
    let Store::Redis(server) = &store else { unreachable!() };
    server.command(&["FLUSHALL"]);
    holder.end().code(79).says("LOST deleted: the store no longer knows the hold");
    assert!(!lives(&folder.read("held")));
}

#[test]
fn a_command_may_be_spared_or_killed_without_a_word() {
    let (store, folder) = (Store::redis(), Folder::new());
    let Store::Redis(server) = &store else { unreachable!() };
    let locker = on(&store).inside(&folder);
    let script = "trap \"\" TERM; while ! test -e over; do sleep 0.05; done; exit 6";
    let spared = locker.start(&format!("run -q -t 2s --on-lost warn spared -- sh -c '{script}'"));
    let killed = locker.start("run -q -t 2s --on-lost kill killed -- sleep 100");
    until("both run", || {
        ["spared", "killed"]
            .iter()
            .all(|key| locker.run(&format!("status --exit-code {key}")).status.code() == Some(75))
    });
    server.pause();
    // The banner is never suppressed.
    let done = killed.end().code(79).says("LOST killed").says("SIGKILL");
    assert!(!done.stderr.contains("SIGTERM"), "{}", done.stderr);
    // The other lease is as old and ends a moment later; its command ends long after that.
    thread::sleep(Duration::from_secs(3));
    std::fs::write(folder.path("over"), "").unwrap();
    spared.end().code(6).says("LOST spared").says("goes on");
    server.resume();
}

#[test]
fn a_fault_that_heals_in_time_is_no_loss() {
    let (store, folder) = (Store::redis(), Folder::new());
    let Store::Redis(server) = &store else { unreachable!() };
    let locker = on(&store).inside(&folder);
    let script = "echo > mark; while ! test -e over; do sleep 0.05; done; echo done";
    let holder = locker.start(&format!("run -t 18s --kill-after 500ms healed -- sh -c '{script}'"));
    until("it runs", || !folder.read("mark").is_empty());
    server.pause();
    // Longer than it takes until a renewal is due and fails; the next one comes well in time.
    thread::sleep(Duration::from_millis(8_500));
    server.resume();
    let held = || locker.run("status --json healed").json()["holders"][0]["expiresInMs"].as_u64();
    until("the lease is renewed", || held() > Some(14_000));
    std::fs::write(folder.path("over"), "").unwrap();
    holder.end().code(0).prints("done").says("could not renew \"healed\" at redis://");
}

#[test]
fn after_a_loss_the_command_line_returns_soon_and_does_not_say_released() {
    let (store, folder) = (Store::redis(), Folder::new());
    let Store::Redis(server) = &store else { unreachable!() };
    let locker = on(&store).inside(&folder);
    let holder = hold(&locker, &folder, "-v -t 2s --on-lost kill", "lingers");
    let child = folder.read("held");
    server.pause();
    until("the command is dead", || !lives(&child));
    let died = Instant::now();
    let done = holder.end().code(79).says("LOST lingers").says("lost lingers after");
    let lingered = died.elapsed();
    assert!(lingered < Duration::from_millis(1_500), "it lingered for {lingered:?}");
    assert!(!done.stderr.contains("released"), "{}", done.stderr);
    server.resume();
}

/// Plays rounds, four at a time.
fn play(round: impl Fn(usize) + Sync, rounds: usize) {
    for first in (0..rounds).step_by(4) {
        thread::scope(|scope| {
            for number in first..rounds.min(first + 4) {
                let round = &round;
                scope.spawn(move || fairly(|| round(number)));
            }
        });
    }
}

/// How late this machine may wake a sleeping process: less than what a command has to die in.
const LATE_MAX: Duration = Duration::from_millis(100);

/// Plays a round; once or twice more if it was lost while the machine was too busy to keep any
/// promise about time. A round that is lost again is lost.
fn fairly(round: impl Fn()) {
    for _ in 0..2 {
        let (over, late) = (AtomicBool::new(false), AtomicU64::new(0));
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let (slept, nap) = (Instant::now(), Duration::from_millis(10));
                    thread::sleep(nap);
                    let by = slept.elapsed().saturating_sub(nap).as_millis();
                    late.fetch_max(by.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
                }
            });
            let outcome = catch_unwind(AssertUnwindSafe(&round));
            over.store(true, Ordering::Relaxed);
            outcome
        });
        match outcome {
            Ok(()) => return,
            Err(lost) if Duration::from_millis(late.into_inner()) < LATE_MAX => resume_unwind(lost),
            Err(_) => {}
        }
    }
    round();
}
