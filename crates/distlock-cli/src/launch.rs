//! Starting the command under the care of a guardian process.
//!
//! distlock starts itself once more as the guardian, which waits for the lock to be held, starts
//! the command as its child and kills the whole tree if this process dies: see `guardian.rs`.
//! Starting a process takes about as long as asking a store that is near, so both are done at once.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::exit::{self, Failure};
use crate::guardian;

/// This program, as the kernel finds it even if its file was replaced meanwhile.
#[cfg(target_os = "linux")]
const SELF: &str = "/proc/self/exe";

/// A command that is about to be run. Dropped before that, it is not run.
#[derive(Debug)]
pub(crate) struct Launcher<'a> {
    words: &'a [OsString],
    /// It is to lead a process group of its own.
    leads: bool,
    /// None where there can be no guardian.
    standing_by: Option<StandingBy>,
}

/// A guardian that waits for its orders.
#[derive(Debug)]
struct StandingBy {
    process: Child,
    link: GuardianPipes,
}

/// The two pipes between this process and the guardian.
#[derive(Debug)]
pub(crate) struct GuardianPipes {
    /// Orders and the dismissal go in here. Its end, without a dismissal, kills the command.
    pub(crate) control: PipeWriter,
    /// What the guardian reports.
    pub(crate) reports: PipeReader,
    pub(crate) far_ends: FarEnds,
}

/// The guardian's ends of the pipes: it opens them by way of this process, so they stay open here.
pub(crate) type FarEnds = (PipeReader, PipeWriter);

/// A process that was started: the guardian if there is a link to it, else the command itself.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) process: Child,
    pub(crate) link: Option<GuardianPipes>,
}

impl<'a> Launcher<'a> {
    /// Gets ready to run a command, in a group of its own or in ours.
    pub(crate) fn stand_by(words: &'a [OsString], leads: bool) -> Self {
        Self { words, leads, standing_by: StandingBy::start(words, leads, &[]) }
    }

    /// True if the command leads a process group of its own.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// The program to be run.
    pub(crate) fn program(&self) -> &'a OsStr {
        &self.words[0]
    }

    /// Runs the command, with some more environment.
    pub(crate) fn go(self, environment: &[(&str, String)]) -> Result<Launched, Failure> {
        let program = self.program();
        self.start(environment).map_err(|error| not_run(program, &error))
    }

    fn start(mut self, environment: &[(&str, String)]) -> io::Result<Launched> {
        let standing_by = self.standing_by.take();
        if let Some(launched) = standing_by.and_then(|guardian| guardian.go(environment)) {
            return Ok(launched);
        }
        // An environment that does not fit into a pipe is given to a new guardian as its own.
        let late = StandingBy::start(self.words, self.leads, environment);
        if let Some(launched) = late.and_then(|guardian| guardian.go(&[])) {
            return Ok(launched);
        }
        let mut command = unguarded(self.words);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if self.leads {
            command.process_group(0);
        }
        Ok(Launched { process: command.spawn()?, link: None })
    }
}

impl Drop for Launcher<'_> {
    fn drop(&mut self) {
        if let Some(mut guardian) = self.standing_by.take() {
            guardian.end();
        }
    }
}

impl StandingBy {
    #[cfg(target_os = "linux")]
    fn start(words: &[OsString], leads: bool, environment: &[(&str, String)]) -> Option<Self> {
        use std::os::fd::AsRawFd;

        if !Path::new(SELF).exists() {
            return None;
        }
        let (orders, control) = io::pipe().ok()?;
        let (reports, told) = io::pipe().ok()?;
        // The guardian may have died, so orders that do not fit are not waited for.
        rustix::io::ioctl_fionbio(&control, true).ok()?;
        let group = if leads { 0 } else { rustix::process::getpgrp().as_raw_nonzero().get() };
        let mut command = ourselves(guardian::GUARD);
        command.arg(orders.as_raw_fd().to_string()).arg(told.as_raw_fd().to_string());
        command.arg(group.to_string()).args(words);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        // Signals to our group, from a terminal or by hand, must not reach the guardian.
        command.process_group(0);
        let link = GuardianPipes { control, reports, far_ends: (orders, told) };
        let mut guardian = Self { process: command.spawn().ok()?, link };
        // It opens the pipes by way of `/proc`. Both are the same program of the same user, so it
        // may do that if we may do the like.
        if std::fs::read_link(format!("/proc/{}/exe", guardian.process.id())).is_err() {
            guardian.end();
            return None;
        }
        Some(guardian)
    }

    #[cfg(not(target_os = "linux"))]
    fn start(_: &[OsString], _: bool, _: &[(&str, String)]) -> Option<Self> {
        None
    }

    /// Gives the orders; none if they do not fit into the pipe.
    fn go(mut self, environment: &[(&str, String)]) -> Option<Launched> {
        let orders = guardian::orders(environment);
        if self.link.control.write_all(&orders).is_err() {
            // Without the end of its orders it does not run the command.
            self.end();
            return None;
        }
        Some(Launched { process: self.process, link: Some(self.link) })
    }

    /// Ends a guardian that has started nothing yet.
    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The command without a guardian: it dies with this process where the kernel can do that.
fn unguarded(words: &[OsString]) -> Command {
    #[cfg(target_os = "linux")]
    if Path::new(SELF).exists() {
        let mut command = ourselves(guardian::LAUNCH);
        command.args(words);
        return command;
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// This program once more, for a purpose of its own.
#[cfg(target_os = "linux")]
fn ourselves(purpose: &str) -> Command {
    let mut command = Command::new(SELF);
    command.arg0("distlock").arg(purpose).arg(std::process::id().to_string());
    command
}

/// Sees whether a command can be run, before anything is asked of a store; returns its file.
pub(crate) fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return runnable(&path).map(|()| path).map_err(|error| not_run(program, &error));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut found = io::Error::from(io::ErrorKind::NotFound);
    for folder in env::split_paths(&path) {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let path = folder.join(program);
        match runnable(&path) {
            Ok(()) => return Ok(path),
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
