//! The last step before the command: a process that asks to die with its parent, then becomes the
//! command.
//!
//! The wish has to be made by the new process itself, between fork and exec, where Rust has no safe
//! place for it. So distlock starts itself once more, and this is what it does then. The check of
//! the parent closes the gap: a parent that died before the wish was made is no parent any more.
//!
//! Starting a process takes about as long as asking a store that is near. So both are done at once:
//! the launcher stands by until the lock is held, and only then is told what to run with.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::exit::{self, Failure};
use crate::out;

/// The first argument of a launcher. No command has this name.
const LAUNCH: &str = "__launch";

/// The launcher, as the kernel finds it even if its file was replaced meanwhile.
#[cfg(target_os = "linux")]
const SELF: &str = "/proc/self/exe";

/// In place of a pipe: no orders are to be waited for.
const AT_ONCE: &str = "-";

/// The end of the orders. Without it they are not whole, and not carried out.
const END: &[u8] = b"\0\0";

/// A command that is about to be run. Dropped before that, it is not run.
#[derive(Debug)]
pub(crate) struct Launcher<'a> {
    words: &'a [OsString],
    /// It is to lead a process group of its own.
    leads: bool,
    /// None where it could not be given orders: then it is started when its time comes.
    standing_by: Option<StandingBy>,
}

/// A process that waits for its orders.
#[derive(Debug)]
struct StandingBy {
    process: Child,
    orders: PipeWriter,
    /// Where the process finds its orders, so it has to be open until it has read them.
    read: PipeReader,
}

/// A command that was started, and what has to live as long as it.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) process: Child,
    _orders: Option<PipeReader>,
}

impl<'a> Launcher<'a> {
    /// Gets ready to run a command, in a group of its own or in ours.
    pub(crate) fn stand_by(words: &'a [OsString], leads: bool) -> Self {
        Self { words, leads, standing_by: StandingBy::start(words, leads) }
    }

    /// True if the command leads a process group of its own.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Runs the command, with some more environment.
    pub(crate) fn go(self, environment: &[(&str, String)]) -> Result<Launched, Failure> {
        let program = &self.words[0];
        self.start(environment).map_err(|error| not_run(program, &error))
    }

    fn start(mut self, environment: &[(&str, String)]) -> io::Result<Launched> {
        let standing_by = self.standing_by.take();
        if let Some(launched) = standing_by.and_then(|standing_by| standing_by.go(environment)) {
            return Ok(launched);
        }
        let mut command = command(self.words, self.leads, AT_ONCE);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Ok(Launched { process: command.spawn()?, _orders: None })
    }
}

impl Drop for Launcher<'_> {
    fn drop(&mut self) {
        if let Some(StandingBy { mut process, .. }) = self.standing_by.take() {
            // It has done nothing yet, and nobody else waits for it.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl StandingBy {
    #[cfg(target_os = "linux")]
    fn start(words: &[OsString], leads: bool) -> Option<Self> {
        use std::os::fd::AsRawFd;

        if !Path::new(SELF).exists() {
            return None;
        }
        let (read, orders) = io::pipe().ok()?;
        // Nobody may be there to read, so orders that do not fit are not waited for.
        rustix::io::ioctl_fionbio(&orders, true).ok()?;
        let pipe = read.as_raw_fd().to_string();
        let mut process = command(words, leads, &pipe).spawn().ok()?;
        // It opens the pipe by way of `/proc`. Both are the same program of the same user, so it
        // may do that if we may do the like.
        if std::fs::read_link(format!("/proc/{}/exe", process.id())).is_err() {
            let _ = process.kill();
            let _ = process.wait();
            return None;
        }
        Some(Self { process, orders, read })
    }

    #[cfg(not(target_os = "linux"))]
    fn start(_: &[OsString], _: bool) -> Option<Self> {
        None
    }

    /// Gives the orders; none if they do not fit into the pipe.
    fn go(mut self, environment: &[(&str, String)]) -> Option<Launched> {
        let entries = environment.iter().map(|(name, value)| format!("{name}={value}"));
        let text = entries.collect::<Vec<_>>().join("\0");
        if self.orders.write_all(&[text.as_bytes(), END].concat()).is_err() {
            // Without the end of its orders it does not run the command.
            let _ = self.process.kill();
            let _ = self.process.wait();
            return None;
        }
        Some(Launched { process: self.process, _orders: Some(self.read) })
    }
}

/// The command line of a launcher that finds its orders there; where there can be no launcher, that
/// of the command itself.
fn command(words: &[OsString], leads: bool, orders: &str) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    #[cfg(target_os = "linux")]
    if Path::new(SELF).exists() {
        command = Command::new(SELF);
        command.arg0("distlock").arg(LAUNCH).arg(std::process::id().to_string());
        command.arg(orders).args(words);
    }
    if leads {
        command.process_group(0);
    }
    command
}

/// Launches, if this process was started for that; returns only if it did not become the command.
pub(crate) fn requested() -> Option<u8> {
    let mut words = env::args_os().skip(1);
    if words.next()? != LAUNCH {
        return None;
    }
    let (parent, pipe) = (words.next()?, words.next()?);
    let words: Vec<_> = words.collect();
    let (program, arguments) = words.split_first()?;
    if !tie_to(&parent) {
        // The parent is dead, and so would the command be.
        return Some(exit::of_signal(9));
    }
    let environment = match orders(&parent, &pipe) {
        Ok(Some(environment)) => environment,
        Ok(None) => return Some(exit::of_signal(9)),
        Err(error) => {
            out::complain(format_args!("could not be told what to run: {error}"));
            return Some(exit::INTERNAL);
        }
    };
    let error = Command::new(program).args(arguments).envs(environment).exec();
    let failure = not_run(program, &error);
    if let Some(message) = failure.message() {
        out::complain(message);
    }
    Some(failure.code())
}

/// Waits for orders: the environment to run with. None if there are none, or not all of them.
fn orders(parent: &OsStr, pipe: &OsStr) -> io::Result<Option<Vec<(OsString, OsString)>>> {
    if pipe == AT_ONCE {
        return Ok(Some(Vec::new()));
    }
    let path = Path::new("/proc").join(parent).join("fd").join(pipe);
    let mut text = Vec::new();
    // Opened anew, it is closed when the command begins.
    File::open(path)?.read_to_end(&mut text)?;
    let Some(text) = text.strip_suffix(END) else { return Ok(None) };
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let entries = text.split(|byte| *byte == 0).filter_map(|entry| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        Some((owned(&entry[..equals]), owned(&entry[equals + 1..])))
    });
    Ok(Some(entries.collect()))
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
