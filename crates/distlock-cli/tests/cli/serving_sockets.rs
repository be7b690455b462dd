//! `distlock serve --listen unix:PATH`: private, replaced when stale, removed at the end.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use rustix::process::Signal;

use crate::serving::Serving;
use crate::support::*;

fn health(path: &str) -> Done {
    curl(&["--unix-socket", path, "http://localhost/health"])
}

#[test]
fn a_unix_socket_serves_its_user_alone() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let path = folder.path("http.sock").display().to_string();
    let flags = format!("--listen unix:{path}");
    let serving = Serving::with(&locker, &folder, &flags);
    assert_eq!(serving.url, format!("unix:{path}"));
    let made = fs::symlink_metadata(&path).unwrap();
    assert!(made.file_type().is_socket());
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    health(&path).code(0).shows("distributed-lock");
    let lease = ["-X", "POST", "-H", "content-type: application/json", "-d", "{}"];
    let url = "http://localhost/api/v1/locks/over-unix/leases";
    let granted = curl(&[&["--unix-socket", &path][..], &lease, &[url]].concat()).code(0).json();
    assert!(granted["fence"].is_u64(), "{granted}");
    locker.run("status --exit-code over-unix").code(75);
    // The path is taken while the service runs.
    locker.run(&format!("serve {flags}")).code(78).says("another process listens there");
    health(&path).code(0);
    assert_eq!(serving.stop().0, Some(0));
    assert!(!fs::exists(&path).unwrap(), "the socket is still there");
    assert!(!folder.names().iter().any(|name| name.starts_with("http.sock")));
}

#[test]
fn a_stale_socket_is_replaced_and_any_other_file_is_not() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let path = folder.path("http.sock").display().to_string();
    let flags = format!("--listen unix:{path}");
    let mut killed = Serving::with(&locker, &folder, &flags);
    killed.signal(Signal::KILL);
    killed.child.wait().unwrap();
    assert!(fs::exists(&path).unwrap(), "a killed service leaves its socket");
    let serving = Serving::with(&locker, &folder, &flags);
    health(&path).code(0).shows("ok");
    assert_eq!(serving.stop().0, Some(0));

    fs::write(&path, "precious").unwrap();
    locker.run(&format!("serve {flags}")).code(78).says("no socket");
    assert_eq!(folder.read("http.sock"), "precious");
}
