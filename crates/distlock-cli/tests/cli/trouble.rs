//! Bad input and bad places: a clear message, the documented code, and nothing left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::*;

/// True if this user may read everything, and so cannot show what it is like not to.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command as a user who owns nothing, where this user can.
fn as_nobody(folder: &Folder, line: &str, url: &str) -> (i32, String) {
    let binary = folder.path("distlock");
    fs::copy(env!("CARGO_BIN_EXE_distlock"), &binary).unwrap();
    run_as_nobody(&binary, line, url)
}

fn run_as_nobody(binary: &Path, line: &str, url: &str) -> (i32, String) {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
        command
    } else {
        Command::new(binary)
    };
    command.args(line.split(' ')).env("DISTLOCK_URL", url).env("HOME", "/nonexistent");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), errors)
}

#[test]
fn a_file_that_may_not_be_read_is_not_authorised() {
    let folder = Folder::new();
    let file = folder.path("locks.db");
    let url = format!("sqlite:{}", file.display());
    at(&url).run("run k -- true").code(0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let (code, errors) = as_nobody(&folder, "run -n k -- true", &url);
    assert_eq!(code, 77, "{errors}");
    assert!(errors.contains("locks.db"), "{errors}");
}

#[test]
fn a_program_that_may_be_run_and_not_read_runs_commands_without_a_guardian() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let url = format!("sqlite:{}", folder.path("locks.db").display());
    let binary = folder.path("distlock");
    fs::copy(env!("CARGO_BIN_EXE_distlock"), &binary).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o111)).unwrap();
    // Words are split at spaces, so the script has none.
    let script = "grep\t-c\t[_]_guard\t/proc/$PPID/cmdline>&2;exit\t7";
    let (code, errors) = run_as_nobody(&binary, &format!("run -n k -- sh -c {script}"), &url);
    assert_eq!((code, errors.as_str()), (7, "0\n"));
}

#[test]
fn a_folder_that_may_not_be_written_is_not_authorised() {
    let folder = Folder::new();
    let closed = folder.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let url = format!("sqlite:{}", closed.join("locks.db").display());
    let (code, errors) = as_nobody(&folder, "run -n k -- true", &url);
    assert_eq!(code, 77, "{errors}");
    assert!(errors.contains("locks.db"), "{errors}");
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let folder = Folder::new();
    fs::write(folder.path("notes.txt"), "x".repeat(5_000)).unwrap();
    let url = format!("sqlite:{}", folder.path("notes.txt").display());
    at(&url).run("run -n k -- true").code(78).says("notes.txt");
    assert_eq!(folder.read("notes.txt"), "x".repeat(5_000));
}

/// Fills a small disk, and sees what is said and whether it works again when there is room.
const FULL: &str = "mkdir disk && mount -t tmpfs -o size=256k tmpfs disk || exit
    echo mounted
    \"$0\" run -n k -- true || exit
    head -c 1000000 /dev/zero > disk/full 2> /dev/null
    for n in $(seq 60); do
        \"$0\" acquire -n full-$n -t 60s > /dev/null 2> said && continue
        echo $?
        break
    done
    rm disk/full
    \"$0\" run -n k -- true && echo again";

#[test]
fn a_full_disk_is_said_to_be_full() {
    // In a space of its own whatever is mounted goes when the commands end.
    let outcome = [&["-m"][..], &["-m", "-r"]].into_iter().find_map(|flags| {
        let folder = Folder::new();
        let url = format!("sqlite:{}", folder.path("disk/locks.db").display());
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", FULL, env!("CARGO_BIN_EXE_distlock")]);
        let output = command.current_dir(folder.path("")).env("DISTLOCK_URL", url).output().ok()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = folder.read("said") + &String::from_utf8_lossy(&output.stderr);
        printed.starts_with("mounted").then_some((printed, said))
    });
    let Some((printed, said)) = outcome else {
        return skipped(
            "a full disk",
            "this user may mount nothing, not even in a space of its own",
        );
    };
    assert_eq!(printed, "mounted\n78\nagain\n", "{said}");
    assert!(said.contains("is full: make room"), "{said}");
}

#[test]
fn a_file_that_may_not_grow_is_said_so() {
    // What a limit on files refuses, a disk that fails refuses in the same way.
    let script = "trap '' XFSZ; \"$0\" run -n k -- true; ulimit -f 100
        for n in $(seq 60); do
            \"$0\" acquire -n grow-$n -t 60s > /dev/null 2> said && continue
            echo $?
            break
        done";
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.path("locks.db").display());
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_distlock")]).current_dir(folder.path(""));
    let output = command.env("DISTLOCK_URL", &url).output().unwrap();
    let said = folder.read("said");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "69\n", "{said}");
    assert!(said.contains("locks.db: disk I/O error; see"), "{said}");
    at(&url).run("run -n k -- true").code(0);
}

#[test]
fn a_report_that_cannot_be_written_is_found_out_before_the_command_runs() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    locker.run("run --report no/such/folder k -- touch ran").code(78).says("no/such/folder");
    assert_eq!(folder.names(), Vec::<String>::new());
}

#[test]
fn nobody_reading_is_no_failure() {
    let script = "\"$0\" run -v k -- true 2>&- >&-; echo $?; \
        \"$0\" ls -b memory: | true; \"$0\" completions bash | head -c 1 > /dev/null; echo $?";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_distlock")]).env("DISTLOCK_URL", some().url());
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n0\n");
}

#[test]
fn passwords_in_urls_are_never_repeated() {
    for url in [
        "redis://:s3ntinel-pw@127.0.0.1:1/",
        "redis://user:s3ntinel-pw@127.0.0.1:1/?pass=s3ntinel-pw",
        "redis://:s3ntinel-pw@[::1/",
        "nonsense://:s3ntinel-pw@h",
        "redis://127.0.0.1:1/?pass=s3ntinel-pw&nope=1",
    ] {
        for line in ["run -n k -- true", "doctor", "ls", "run --help"] {
            let done = at(url).run(line);
            let all = format!("{}{}", done.stdout, done.stderr);
            assert!(!all.contains("s3ntinel"), "{line} on {url}: {all}");
        }
    }
}
