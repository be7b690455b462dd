//! The file itself: who may read it, what it shows, and which paths lead to it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use distlock::Locks;
use distlock_core::Backend;

use crate::other_process::Peer;
use crate::support::{Place, ask, granted, open, queued, release, shared, until, waits};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn nobody_else_can_read_the_file_or_reach_the_sockets() {
    let place = Place::new();
    let here = place.client();
    let _pushes = here.pushes();
    granted(&here, &ask("k")).await;
    let folder = place.folder.path();
    for (name, expected) in [
        ("locks.db", 0o600),
        ("locks.db-wal", 0o600),
        ("locks.db-shm", 0o600),
        ("locks.db-sockets", 0o700),
    ] {
        assert_eq!(mode(&folder.join(name)), expected, "{name}");
    }
    assert!(here.probe().await.unwrap().warnings.is_empty());
    std::fs::set_permissions(&place.file, PermissionsExt::from_mode(0o644)).unwrap();
    let warnings = here.probe().await.unwrap().warnings;
    assert!(warnings[0].contains("chmod 600"), "{warnings:?}");
}

#[tokio::test]
async fn the_users_own_file_is_made_with_its_folder() {
    let place = Place::new();
    let state = place.folder.path().join("state");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("XDG_STATE_HOME", &state);
    let peer = Peer::start_as(command, "".as_ref(), None);
    granted(&*peer.client(), &ask("k")).await;
    assert_eq!(mode(&state.join("distlock")), 0o700);
    assert_eq!(mode(&state.join("distlock/locks.db")), 0o600);
}

#[tokio::test]
async fn a_file_is_opened_ahead_of_the_first_call() {
    let place = Place::new();
    let locks = Locks::new(shared(place.client()));
    assert!(!place.file.exists());
    locks.warm_up();
    until("the file is there", || place.file.exists()).await;
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn every_path_to_a_file_leads_to_the_same_store() {
    let place = Place::new();
    let other = place.folder.path().join("other.db");
    let here = place.client();
    let holder = ask("k");
    granted(&here, &holder).await;
    symlink(&place.file, &other).unwrap();
    let there = open(&other);
    let (one, two) = (here.probe().await.unwrap(), there.probe().await.unwrap());
    assert_eq!((&one.identity, &one.incarnation), (&two.identity, &two.incarnation));
    assert!(one.persistent);
    assert!(!there.inspect(&holder.claim.key).await.unwrap().is_free());
    let elsewhere = Place::new().client().probe().await;
    assert_ne!(elsewhere.unwrap().identity, one.identity);
}

#[tokio::test]
async fn a_person_can_read_the_locks_with_a_shell() {
    let place = Place::new();
    let here = place.client();
    let (holder, waiter) = (ask("deploy"), queued("deploy"));
    let fence = granted(&here, &holder).await;
    let ticket = waits(&here, &waiter).await;
    let shell = place.shell();
    let mut rows = shell.prepare("SELECT key, standing, owner, number FROM locks").unwrap();
    let rows: Vec<(String, String, String, i64)> = rows
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let row = |standing: &str, number: u64| {
        (
            "deploy".to_owned(),
            standing.to_owned(),
            "tester".to_owned(),
            i64::try_from(number).unwrap(),
        )
    };
    assert_eq!(rows, [row("holds", fence), row("waits", ticket)]);
}

#[tokio::test]
async fn nothing_is_left_of_keys_that_are_free() {
    let place = Place::new();
    let here = place.client();
    for round in 0..20 {
        let (holder, waiter) = (ask(&format!("k{round}")), queued(&format!("k{round}")));
        granted(&here, &holder).await;
        waits(&here, &waiter).await;
        release(&here, &holder).await;
        release(&here, &waiter).await;
    }
    for table in ["holders", "crowds", "waiters", "queues", "clients", "graves"] {
        let count = format!("SELECT count(*) FROM {table}");
        let rows = place.number(&count);
        assert_eq!(rows, 0, "{table}");
    }
}

#[tokio::test]
async fn a_folder_with_a_very_long_name_has_sockets_too() {
    let place = Place::new();
    let deep = place.folder.path().join("x".repeat(200));
    std::fs::create_dir(&deep).unwrap();
    let file = deep.join("locks.db");
    let [here, there] = [open(&file), open(&file)];
    let mut pushes = there.pushes();
    let (holder, waiter) = (ask("k"), queued("k"));
    granted(&here, &holder).await;
    waits(&there, &waiter).await;
    release(&here, &holder).await;
    assert!(futures_util::StreamExt::next(&mut pushes).await.is_some());
    assert!(shared(here).capabilities().push);
    drop(there);
    let sockets = deep.join("locks.db-sockets");
    until("the socket goes", || std::fs::read_dir(&sockets).unwrap().count() == 0).await;
}
