//! The folder of sockets beside the file: nothing is removed from it but our own dead sockets.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use distlock_core::Backend;

use crate::support::{Place, ask, granted, until};

/// Where the sockets of a place are.
fn folder(place: &Place) -> PathBuf {
    place.folder.path().join("locks.db-sockets")
}

/// Makes something old: the sweep leaves alone what is new.
fn age(path: &Path) {
    let touch = Command::new("touch").args(["-h", "-d", "1 hour ago"]).arg(path).status();
    assert!(touch.unwrap().success());
}

/// A folder with an old plain file and an old dead socket in it.
fn bait(folder: &Path, mode: u32) -> [PathBuf; 2] {
    fs::create_dir(folder).unwrap();
    let files = [folder.join("precious"), folder.join("socket")];
    fs::write(&files[0], "precious").unwrap();
    drop(UnixDatagram::bind(&files[1]).unwrap());
    files.iter().for_each(|file| age(file));
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    files
}

/// A client that listens finds the folder not its own: it says so, works on, and removes nothing.
async fn is_refused(place: &Place, kept: &[PathBuf]) {
    let here = place.client();
    let _pushes = here.pushes();
    granted(&here, &ask("k")).await;
    let warnings = here.probe().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("FILE-sockets")), "{warnings:?}");
    for file in kept {
        assert!(fs::symlink_metadata(file).is_ok(), "{} was removed", file.display());
    }
}

#[tokio::test]
async fn a_link_in_place_of_the_folder_is_not_followed() {
    let place = Place::new();
    let elsewhere = place.folder.path().join("elsewhere");
    let kept = bait(&elsewhere, 0o700);
    symlink(&elsewhere, folder(&place)).unwrap();
    is_refused(&place, &kept).await;
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), kept.len(), "no socket was made there");
}

#[tokio::test]
async fn a_folder_that_others_can_enter_is_not_used() {
    for mode in [0o777, 0o750, 0o701] {
        let place = Place::new();
        let kept = bait(&folder(&place), mode);
        is_refused(&place, &kept).await;
    }
}

#[tokio::test]
async fn a_folder_of_another_user_is_not_used() {
    let place = Place::new();
    let kept = bait(&folder(&place), 0o700);
    if chown(folder(&place), Some(65_534), Some(65_534)).is_err() {
        eprintln!("SKIPPED: only root can make a folder of another user");
        return;
    }
    is_refused(&place, &kept).await;
}

#[tokio::test]
async fn only_dead_sockets_are_removed() {
    let place = Place::new();
    let [precious, dead] = bait(&folder(&place), 0o700);
    let (link, live) = (folder(&place).join("link"), folder(&place).join("live"));
    symlink(&dead, &link).unwrap();
    let _listener = UnixDatagram::bind(&live).unwrap();
    [&link, &live].into_iter().for_each(|path| age(path));
    let theirs = folder(&place).join("theirs");
    drop(UnixDatagram::bind(&theirs).unwrap());
    age(&theirs);
    let is_theirs = chown(&theirs, Some(65_534), Some(65_534)).is_ok();
    let here = place.client();
    let _pushes = here.pushes();
    granted(&here, &ask("k")).await;
    until("the dead socket goes", || fs::symlink_metadata(&dead).is_err()).await;
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(fs::symlink_metadata(&link).is_ok() && fs::symlink_metadata(&live).is_ok());
    assert_eq!(fs::symlink_metadata(&theirs).is_ok(), is_theirs, "a socket of another user");
}
