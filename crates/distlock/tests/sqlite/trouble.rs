//! Busy, full, read-only, damaged, foreign, deleted: each says what it is and whether to try again.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use distlock::backends::{Memory, Sqlite};
use distlock_core::{
    Answer, Backend, FENCE_MAX, Fault, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};
use futures_util::{FutureExt, StreamExt};

use crate::support::{LONG, Place, ask, granted, open, release};

async fn fault_of(file: &Path) -> Fault {
    open(file).acquire(&ask("k")).await.unwrap_err()
}

fn is_permanent(fault: &Fault, says: &str) {
    assert!(!fault.is_transient(), "{fault}");
    assert!(fault.to_string().contains(says), "{fault}");
}

#[tokio::test]
async fn a_writer_that_does_not_finish_is_a_transient_fault_after_the_deadline() {
    let place = Place::new();
    granted(&place.client(), &ask("first")).await;
    let url = format!("sqlite:{}?response_timeout_ms=200", place.file.display());
    let here = Sqlite::open(&url).unwrap();
    let shell = place.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = std::time::Instant::now();
    let fault = here.acquire(&ask("k")).await.unwrap_err();
    assert!(fault.is_transient() && began.elapsed() >= Duration::from_millis(150), "{fault}");
    // Looking needs no turn.
    assert!(here.inspect(&ask("k").claim.key).await.unwrap().is_free());
    shell.execute_batch("ROLLBACK").unwrap();
    granted(&here, &ask("k")).await;
}

#[tokio::test]
async fn files_that_are_not_ours_are_left_alone() {
    let place = Place::new();
    let path = |name: &str| place.folder.path().join(name);
    std::fs::write(
        path("text"),
        "not a database at all, but long enough to be read as one\n".repeat(20),
    )
    .unwrap();
    is_permanent(&fault_of(&path("text")).await, "some other file");
    let shell = rusqlite::Connection::open(path("foreign")).unwrap();
    shell.execute_batch("CREATE TABLE things (name TEXT)").unwrap();
    is_permanent(&fault_of(&path("foreign")).await, "another program");
    granted(&place.client(), &ask("k")).await;
    place.shell().pragma_update(None, "user_version", 99).unwrap();
    is_permanent(&fault_of(&place.file).await, "newer version");
}

#[tokio::test]
async fn an_empty_file_becomes_a_file_of_locks() {
    let place = Place::new();
    std::fs::write(&place.file, "").unwrap();
    granted(&place.client(), &ask("k")).await;
}

#[tokio::test]
async fn a_damaged_file_says_what_to_do() {
    let place = Place::new();
    granted(&place.client(), &ask("k")).await;
    place.shell().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let mut bytes = std::fs::read(&place.file).unwrap();
    bytes[4096..].fill(0x5a);
    std::fs::write(&place.file, bytes).unwrap();
    is_permanent(&fault_of(&place.file).await, "damaged");
}

#[tokio::test]
async fn places_where_no_file_can_be_made_say_so() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("file"), "").unwrap();
    for (path, says) in [
        (place.folder.path().join("missing/locks.db"), "make its folder first"),
        (place.folder.path().join("file/locks.db"), "locks.db"),
        // No user may make files there, not even root.
        ("/sys/locks.db".into(), "must be able to write"),
    ] {
        is_permanent(&fault_of(&path).await, says);
    }
}

#[tokio::test]
async fn a_full_disk_says_so_and_heals_when_there_is_room() {
    let place = Place::new();
    let disk = place.folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |args: &[&str]| Command::new("mount").args(args).arg(&disk).output();
    let mounted = mount(&["-t", "tmpfs", "-o", "size=1m", "distlock-test"]);
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: this user may not mount a small disk");
        return;
    }
    let here = open(&disk.join("locks.db"));
    let held = ask("held");
    granted(&here, &held).await;
    // Fills what is left, to the last byte.
    let filler = disk.join("filler");
    let _ = std::fs::write(&filler, vec![0; 2 << 20]);
    let mut fault = None;
    for n in 0..1_000 {
        if let Err(refused) = here.acquire(&ask(&format!("k{n}"))).await {
            fault = Some(refused);
            break;
        }
    }
    let fault = fault.map(|fault| (fault.is_transient(), fault.to_string()));
    std::fs::remove_file(&filler).unwrap();
    let healed = here.acquire(&ask("after")).await;
    let outcome = release(&here, &held).await;
    drop(here);
    let _ = Command::new("umount").arg("-l").arg(&disk).output();
    let (is_transient, text) = fault.expect("a disk of 1 MiB is full some time");
    assert!(!is_transient && text.contains("make room"), "{text}");
    assert!(matches!(healed, Ok(Answer::Granted { .. })), "{healed:?}");
    assert_eq!(outcome, ReleaseOutcome::WasHeld);
}

#[tokio::test]
async fn a_file_that_was_deleted_does_not_keep_two_worlds_apart() {
    let place = Place::new();
    let here = place.client();
    let holder = ask("k");
    granted(&here, &holder).await;
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        std::fs::remove_file(place.folder.path().join(name)).unwrap();
    }
    let there = place.client();
    granted(&there, &ask("k")).await;
    let renewal = [Renewal::hold(holder.claim.clone(), LONG)];
    let standing = here.renew(&renewal).next().await.unwrap().1.unwrap();
    assert_eq!(standing, Standing::Gone);
    assert!(matches!(here.acquire(&ask("k")).await.unwrap(), Answer::Busy(_)));
}

#[tokio::test]
async fn the_release_of_a_call_that_was_dropped_comes_after_it() {
    let place = Place::new();
    let here = place.client();
    granted(&here, &ask("warm")).await;
    for round in 0..50 {
        let dropped = ask(&format!("k{round}"));
        // Polled once, so it is on its way, and may even be answered already.
        let _ = here.acquire(&dropped).now_or_never();
        let target = Target::Claim(dropped.claim.clone());
        here.release(&target, ReleaseOptions::default()).await.unwrap();
        assert!(here.inspect(&dropped.claim.key).await.unwrap().is_free(), "round {round}");
    }
}

/// Brings the counter of a store to its end, and asks twice more.
async fn spend(store: &dyn Backend) {
    let first = ask("first");
    assert!(matches!(store.acquire(&first).await.unwrap(), Answer::Granted { .. }));
    let floor = Some(FENCE_MAX - 1);
    let batch = [Renewal { fence_floor: floor, ..Renewal::hold(first.claim.clone(), LONG) }];
    let (_, raised) = store.renew(&batch).next().await.unwrap();
    assert_eq!(raised.unwrap(), Standing::Held { fence: FENCE_MAX - 1 });
    assert_eq!(
        store.release(&Target::Claim(first.claim), ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::WasHeld
    );
    let (last, next) = (ask("first"), ask("first"));
    assert_eq!(store.acquire(&last).await.unwrap(), Answer::Granted { fence: FENCE_MAX });
    store.release(&Target::Claim(last.claim), ReleaseOptions::default()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(store.acquire(&next).await.unwrap(), Answer::Spent);
        assert!(store.inspect(&next.claim.key).await.unwrap().is_free());
    }
}

#[tokio::test]
async fn at_the_end_of_the_counter_an_ask_is_refused_and_no_fence_is_given_twice() {
    let place = Place::new();
    spend(&place.client()).await;
    spend(&Memory::new()).await;
}
