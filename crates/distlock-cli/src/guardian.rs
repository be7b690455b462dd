//! The guardian: the parent of the command, which kills all of it if distlock dies.
//!
//! distlock cannot do that itself when it is killed, and the kernel does it for one process only.
//! So distlock starts itself once more. That process adopts what the command leaves behind, also
//! from sessions of its own, and holds the reading end of a pipe whose writing end only distlock
//! has: if the pipe ends before the guardian was dismissed, distlock is dead.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, wait};

use crate::{exit, launch, out, tree};

/// The first argument of a guardian. No command of the manual has this name.
pub(crate) const GUARD: &str = "__guard";

/// The first argument of a process that becomes the command, where there can be no guardian.
pub(crate) const LAUNCH: &str = "__launch";

/// The end of the orders. Without it they are not whole, and not carried out.
const ORDERS_END: &[u8] = b"\0\0";

/// Dismisses the guardian: what the command has left behind may go on.
pub(crate) const DISMISS: &[u8] = b".";

/// How long the guardian tries to kill what cannot be killed, such as a process of another user.
const KILL_MAX: Duration = Duration::from_secs(60);

/// The longest pause between two rounds of killing.
const ROUND_MAX: Duration = Duration::from_millis(20);

/// What a guardian reports to distlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardianReport {
    /// The command runs as this process.
    Started(Pid),
    /// The command could not be run; the number is the system's.
    NotRun(i32),
    /// The command ended by itself with this code.
    Code(i32),
    /// This signal ended the command.
    Signal(i32),
}

impl GuardianReport {
    /// The length of a report in bytes.
    pub(crate) const LEN: usize = 5;

    fn encode(self) -> [u8; Self::LEN] {
        let (kind, number) = match self {
            Self::Started(pid) => (b's', pid.as_raw_nonzero().get()),
            Self::NotRun(error) => (b'n', error),
            Self::Code(code) => (b'c', code),
            Self::Signal(signal) => (b'k', signal),
        };
        let mut bytes = [kind; Self::LEN];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::LEN]) -> Option<Self> {
        let [kind, number @ ..] = bytes;
        let number = i32::from_be_bytes(number);
        match kind {
            b's' => Pid::from_raw(number).map(Self::Started),
            b'n' => Some(Self::NotRun(number)),
            b'c' => Some(Self::Code(number)),
            b'k' => Some(Self::Signal(number)),
            _ => None,
        }
    }

    /// How a process ended; none if it did not.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        let code = status.exit_status().map(Self::Code);
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }
}

/// Orders: the environment that the command gets in addition to that of the guardian.
pub(crate) fn orders(environment: &[(&str, String)]) -> Vec<u8> {
    let entries = environment.iter().map(|(name, value)| format!("{name}={value}"));
    let text = entries.collect::<Vec<_>>().join("\0");
    [text.as_bytes(), ORDERS_END].concat()
}

/// Does the work of a guardian or a launcher if this process was started as one.
pub(crate) fn requested() -> Option<u8> {
    let mut words = env::args_os().skip(1);
    let purpose = words.next()?;
    if purpose == GUARD {
        let (parent, control, reports, group) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let group = group.to_str()?.parse().ok()?;
        let ends = Path::new("/proc").join(&parent).join("fd");
        let ends = (ends.join(control), ends.join(reports));
        return Some(guard(&parent, &ends, group, &words.collect::<Vec<_>>()));
    }
    if purpose == LAUNCH {
        return Some(launch(&words.next()?, &words.collect::<Vec<_>>()));
    }
    None
}

/// Guards a command from its start to its end. The code of the guardian itself says nothing.
fn guard(parent: &OsStr, ends: &(PathBuf, PathBuf), group: i32, words: &[OsString]) -> u8 {
    let killed = exit::of_signal(Signal::KILL.as_raw());
    // Before the command starts, so that none of its orphans is missed.
    tree::adopt_orphans();
    let Ok((mut control, mut reports)) = open(ends) else { return killed };
    if !is_child_of(parent) {
        return killed;
    }
    let Ok(Some(environment)) = read_orders(&mut control) else { return killed };
    let command = match spawn(words, &environment, group) {
        Ok(command) => command,
        Err(error) => {
            let number = error.raw_os_error().unwrap_or_else(|| Errno::IO.raw_os_error());
            let _ = reports.write_all(&GuardianReport::NotRun(number).encode());
            return exit::NOT_EXECUTABLE;
        }
    };
    // A report that finds no reader needs none: the watch sees that distlock is dead.
    let _ = reports.write_all(&GuardianReport::Started(command).encode());
    let Ok(watch) = thread::Builder::new().spawn(move || watch(&mut control)) else {
        kill_all();
        return exit::INTERNAL;
    };
    if let Some(report) = wait_for(command) {
        let _ = reports.write_all(&report.encode());
    }
    let _ = watch.join();
    0
}

/// Opens the two pipes by way of the parent, without waiting for a parent that is dead.
fn open(ends: &(PathBuf, PathBuf)) -> io::Result<(File, File)> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let control = OpenOptions::new().read(true).custom_flags(flags).open(&ends.0)?;
    rustix::io::ioctl_fionbio(&control, false)?;
    let reports = OpenOptions::new().write(true).custom_flags(flags).open(&ends.1)?;
    Ok((control, reports))
}

fn is_child_of(parent: &OsStr) -> bool {
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    now.is_some_and(|now| parent == OsStr::new(&now))
}

/// Waits for orders. None if they never came, or not all of them.
fn read_orders(control: &mut File) -> io::Result<Option<Vec<(OsString, OsString)>>> {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while !text.ends_with(ORDERS_END) {
        match control.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(len) => text.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let entries = text.split(|byte| *byte == 0).filter_map(|entry| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        Some((owned(&entry[..equals]), owned(&entry[equals + 1..])))
    });
    Ok(Some(entries.collect()))
}

/// Starts the command in a process group; 0 is one of its own.
fn spawn(words: &[OsString], environment: &[(OsString, OsString)], group: i32) -> io::Result<Pid> {
    let start = |program: &OsStr, arguments: &[OsString]| {
        let mut command = Command::new(program);
        command.args(arguments).process_group(group);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.spawn().map(|child| Pid::from_child(&child))
    };
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::NotFound)?;
    match start(program, arguments) {
        // A script without a first line that names its shell: as execvp(3) does.
        Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            let file = launch::find(program).map_err(|_| error)?;
            let script = [&[file.into_os_string()], arguments].concat();
            start(OsStr::new("/bin/sh"), &script)
        }
        started => started,
    }
}

/// Waits until the guardian is dismissed, or kills the command and all that it has started.
fn watch(control: &mut File) {
    let mut byte = [0];
    loop {
        match control.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(1) => return,
            _ => return kill_all(),
        }
    }
}

/// Waits for the end of the command. Orphans are reaped on the way. None if it was killed and
/// reaped by the watch.
fn wait_for(command: Pid) -> Option<GuardianReport> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(report) = GuardianReport::of(status) {
                    return Some(report);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Kills everything below this process until nothing is left of it.
///
/// Orphans become children of this process, so that having no child means that all are dead. One
/// round is not enough: a process may start another one between the look and the signal.
fn kill_all() {
    let (started, mut pause) = (Instant::now(), Duration::from_micros(100));
    while started.elapsed() < KILL_MAX {
        for pid in tree::descendants(getpid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(ROUND_MAX);
    }
}

/// Becomes the command, after asking the kernel to kill it with its parent; returns only if that
/// did not work out.
fn launch(parent: &OsStr, words: &[OsString]) -> u8 {
    #[cfg(target_os = "linux")]
    {
        // Where the kernel refuses, the command runs all the same, as it does on other systems.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    let Some((program, arguments)) = words.split_first() else { return exit::USAGE };
    if !is_child_of(parent) {
        // The parent died before the wish was made.
        return exit::of_signal(Signal::KILL.as_raw());
    }
    let error = Command::new(program).args(arguments).exec();
    let failure = launch::not_run(program, &error);
    if let Some(message) = failure.message() {
        out::complain(message);
    }
    failure.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_arrives_as_it_was_sent() {
        let pid = Pid::from_raw(4_194_303).unwrap();
        for report in [
            GuardianReport::Started(pid),
            GuardianReport::NotRun(13),
            GuardianReport::Code(255),
            GuardianReport::Signal(9),
        ] {
            assert_eq!(GuardianReport::decode(report.encode()), Some(report));
        }
        assert_eq!(GuardianReport::decode(*b"x\0\0\0\x01"), None);
        assert_eq!(GuardianReport::decode(*b"s\0\0\0\0"), None);
    }
}
