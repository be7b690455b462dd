//! The token file of `distlock serve`: who may read it, what is refused, and reading it again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, getuid};

use crate::serving::Serving;
use crate::support::*;

pub(crate) const OLD: &str = "old-Tq0cF2kXv7hYw3Zr5Nd";
const NEW: &str = "new-m4pQ9sB1xUe6GtHj0Wa";

pub(crate) fn write(folder: &Folder, text: &str) -> String {
    let path = folder.path("tokens");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// The status of a request with a token.
pub(crate) fn status(serving: &Serving, token: &str) -> u16 {
    let url = format!("{}/api/v1/locks", serving.url);
    let header = format!("Authorization: Bearer {token}");
    let status = curl(&["-w", "%{http_code}", "-o", "/dev/null", "-H", &header, &url]).stdout;
    status.trim().parse().unwrap()
}

#[test]
fn a_hangup_reads_the_tokens_again_and_ends_nothing() {
    let folder = Folder::new();
    let file = write(&folder, &format!("{OLD} name=old admin\n"));
    let locker = on(&some()).inside(&folder);
    let flags = format!("--listen 127.0.0.1:0 --token-file {file}");
    let mut serving = Serving::with(&locker, &folder, &flags);
    assert_eq!((status(&serving, OLD), status(&serving, NEW)), (200, 401));
    write(&folder, &format!("{NEW} name=new admin\n"));
    serving.signal(Signal::HUP);
    serving.until_says("read 1 tokens again");
    assert_eq!((status(&serving, OLD), status(&serving, NEW)), (401, 200));
    // A file that cannot be used leaves everything as it was.
    write(&folder, "weak admin\n");
    serving.signal(Signal::HUP);
    let line = serving.until_says("unchanged");
    assert!(line.contains("line 1") && !line.contains("weak"), "{line}");
    assert_eq!((status(&serving, OLD), status(&serving, NEW)), (401, 200));
    let (code, said) = serving.stop();
    assert_eq!(code, Some(0), "{said}");
    // A wrong token was recorded with what is known of it, and without itself.
    assert!(said.contains("login refused: unknown token from=127.0.0.1"), "{said}");
    assert!(!said.contains(OLD), "{said}");
}

#[test]
fn a_hangup_without_a_token_file_changes_nothing() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let mut serving = Serving::start(&locker, &folder);
    serving.signal(Signal::HUP);
    serving.until_says("no token file");
    assert_eq!(serving.stop().0, Some(0));
}

#[test]
fn a_token_file_that_others_can_read_is_refused() {
    let folder = Folder::new();
    let file = write(&folder, &format!("{OLD} admin\n"));
    let line = format!("serve --listen 127.0.0.1:0 --token-file {file}");
    for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let refused = on(&some()).run(&line).code(77).says("chmod 600");
        assert!(!refused.stderr.contains(OLD), "{}", refused.stderr);
    }
    if !getuid().is_root() {
        return skipped("a token file of another user", "only root can give files away");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
    on(&some()).run(&line).code(77).says("chown");
}

#[test]
fn tokens_that_are_weak_or_stand_there_twice_are_refused() {
    let folder = Folder::new();
    for (text, why) in [
        (format!("{OLD} name=a read\n{OLD} name=b admin"), "line 2: the token is already"),
        (format!("{OLD} name=a read\n{NEW} name=a admin"), "line 2: the name is already"),
        ("aaaaaaaaaaaaaaaaaaaaaaaa read".to_owned(), "line 1: the token is easy to guess"),
        ("short read".to_owned(), "line 1: a token needs 16 bytes"),
        (format!("{OLD} write"), "line 1: a scope is"),
        (format!("{OLD} read expires=soon"), "line 1: expires="),
    ] {
        let file = write(&folder, &text);
        let line = format!("serve --listen 127.0.0.1:0 --token-file {file}");
        let refused = on(&some()).run(&line).code(78).says(why);
        assert!(!refused.stderr.contains("Tq0cF2"), "{}", refused.stderr);
    }
}
