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

/// What a package installs beside the command, written by the command under test.
fn packaged(folder: &Folder) -> std::path::PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/package.sh");
    let out = folder.path("package");
    let done =
        Command::new("sh").arg(script).arg(env!("CARGO_BIN_EXE_distlock")).arg(&out).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

#[test]
fn a_package_has_a_page_for_every_command() {
    let folder = Folder::new();
    let pages = fs::read_dir(packaged(&folder).join("man")).unwrap();
    let mut names: Vec<_> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for command in ["", "-run", "-acquire", "-elect", "-serve", "-doctor", "-history", "-break"] {
        let page = format!("distlock{command}.1.gz");
        assert!(names.contains(&page), "no {page} among {names:?}");
    }
}

#[test]
fn the_completions_of_a_package_complete() {
    let folder = Folder::new();
    let completions = packaged(&folder).join("completions");
    // What a shell does at the tab key: sets the words, calls the function, reads the answers.
    let pressed = r#"source "$1"
        complete -p distlock >/dev/null || exit 9
        COMP_WORDS=(distlock his) COMP_CWORD=1 COMP_LINE="distlock his" COMP_POINT=12
        _distlock distlock his distlock
        echo "${COMPREPLY[@]}""#;
    let done = Command::new("bash")
        .args(["--norc", "-c", pressed, "bash"])
        .arg(completions.join("distlock.bash"))
        .output()
        .unwrap();
    let (answers, complaints) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(answers.trim(), "history", "{complaints}");
    for (shell, file) in [("zsh", "_distlock"), ("fish", "distlock.fish")] {
        let script = completions.join(file);
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(done) => assert!(done.status.success(), "{shell}: {done:?}"),
            Err(_) => skipped("completions", &format!("there is no {shell}")),
        }
        assert!(fs::read_to_string(script).unwrap().contains("history"));
    }
}
