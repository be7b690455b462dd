//! The unit files in `examples/`, as systemd reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::*;

/// An example with the command under test in the place of the installed one.
fn unit(folder: &Folder, name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = fs::read_to_string(examples.join(name)).unwrap();
    let text = text.replace("/usr/bin/distlock", env!("CARGO_BIN_EXE_distlock"));
    let path = folder.path(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_unit_of_the_service_is_valid_and_has_few_rights() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skipped("the systemd unit", "there is no systemd-analyze");
    }
    let folder = Folder::new();
    let unit = unit(&folder, "distlock.service");
    let analyze = |arguments: &[&str]| {
        let done = Command::new("systemd-analyze").args(arguments).arg(&unit).output().unwrap();
        let said =
            [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (done.status.success(), said)
    };
    // What it does not know it mentions, and goes on.
    let (valid, [_, complaints]) = analyze(&["verify", "--man=no"]);
    assert!(valid && complaints.is_empty(), "{complaints}");
    // 10 is a service without any limit; the threshold counts tenths.
    let (limited, [table, complaints]) =
        analyze(&["security", "--offline=true", "--no-pager", "--threshold=20"]);
    assert!(limited, "{table}{complaints}");
}

/// A `sqlite:` store reads the id of the boot, which `ProcSubset=pid` would hide.
#[test]
fn the_unit_of_the_service_leaves_a_store_what_it_needs() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = fs::read_to_string(examples.join("distlock.service")).unwrap();
    assert!(!text.lines().any(|line| line.starts_with("ProcSubset=")), "{text}");
}
