//! The last step before the command: a process that asks to die with its parent, then becomes the
//! command.
//!
//! The wish has to be made by the new process itself, between fork and exec, where Rust has no safe
//! place for it. So distlock starts itself once more, and this is what it does then. The check of
//! the parent closes the gap: a parent that died before the wish was made is no parent any more.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{self, Failure};
use crate::out;

/// The first argument of a launcher. No command has this name.
const LAUNCH: &str = "__launch";

/// The launcher, as the kernel finds it even if its file was replaced meanwhile.
#[cfg(target_os = "linux")]
const SELF: &str = "/proc/self/exe";

/// The command line that runs `command` so that it dies with this process, where that can be had.
pub(crate) fn command(words: &[OsString]) -> Command {
    #[cfg(target_os = "linux")]
    if Path::new(SELF).exists() {
        let mut launcher = Command::new(SELF);
        launcher.arg0("distlock").arg(LAUNCH).arg(std::process::id().to_string()).args(words);
        return launcher;
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Launches, if this process was started for that; returns only if it could not.
pub(crate) fn requested() -> Option<u8> {
    let mut words = env::args_os().skip(1);
    if words.next()? != LAUNCH {
        return None;
    }
    let parent = words.next()?;
    let words: Vec<_> = words.collect();
    let (program, arguments) = words.split_first()?;
    if !tie_to(&parent) {
        // The parent is dead, and so would the command be.
        return Some(exit::of_signal(9));
    }
    let error = Command::new(program).args(arguments).exec();
    let failure = not_run(program, &error);
    if let Some(message) = failure.message() {
        out::complain(message);
    }
    Some(failure.code())
}

/// Asks to be killed when the parent dies. False if it is dead already.
#[cfg(target_os = "linux")]
fn tie_to(parent: &OsStr) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    // Where the kernel refuses, the command runs all the same, as it does on other systems.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    now.is_some_and(|now| parent == OsStr::new(&now))
}

#[cfg(not(target_os = "linux"))]
fn tie_to(_: &OsStr) -> bool {
    true
}

/// Sees whether a command can be run, before anything is asked of anybody.
pub(crate) fn find(program: &OsStr) -> Result<(), Failure> {
    if program.as_bytes().contains(&b'/') {
        return runnable(Path::new(program)).map_err(|error| not_run(program, &error));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut found = io::Error::from(io::ErrorKind::NotFound);
    for folder in env::split_paths(&path) {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        match runnable(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found = error,
        }
    }
    Err(not_run(program, &found))
}

fn runnable(path: &Path) -> io::Result<()> {
    let about = path.metadata()?;
    if about.is_dir() || about.permissions().mode() & 0o111 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// The failure to run a command.
pub(crate) fn not_run(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::new(exit::NOT_FOUND, format!("could not run {program:?}: not found"));
    }
    Failure::new(exit::NOT_EXECUTABLE, format!("could not run {program:?}: {error}"))
}
