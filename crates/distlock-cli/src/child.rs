//! The command as a process: started, signalled with all that it started, and reaped.

use std::io::{self, IsTerminal, PipeWriter, Write, stderr, stdin, stdout};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpid, kill_process, kill_process_group,
};
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::Signal as Stream;

use crate::exit::{self, Failure};
use crate::guardian::{self, GuardianReport};
use crate::launch::{self, FarEnds, GuardianPipes, Launched, Launcher};
use crate::{signals, tree};

/// How long to look for survivors after the command itself has ended.
const SWEEP_MAX: Duration = Duration::from_secs(2);

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// It leads a process group of its own. On a terminal it stays in ours, or it could not read.
    leads: bool,
    ended: Stream,
    /// None where there can be no guardian: then the command is a child of this process.
    guardian: Option<Guardian>,
}

/// The process between this one and the command.
#[derive(Debug)]
struct Guardian {
    pid: Pid,
    control: PipeWriter,
    reports: Receiver,
    /// The ends of the pipes that belong to the guardian.
    _link: FarEnds,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl CommandEnd {
    /// The exit code that tells so.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => exit::of_signal(signal),
        }
    }
}

impl Child {
    /// Starts the command with its own standard streams and some more environment.
    pub(crate) async fn start(
        launcher: Launcher<'_>,
        environment: &[(&str, String)],
    ) -> Result<Self, Failure> {
        // Before the start, or its end could be missed.
        let ended = signals::stream(Signal::CHILD)?;
        tree::adopt_orphans();
        let (leads, program) = (launcher.leads(), launcher.program());
        let Launched { process, link } = launcher.go(environment)?;
        let pid = Pid::from_child(&process);
        let guardian = link.map(|link| Guardian::new(pid, link)).transpose()?;
        let mut child = Self { pid, leads, ended, guardian };
        if child.guardian.is_some() {
            match child.report().await? {
                GuardianReport::Started(pid) => child.pid = pid,
                GuardianReport::NotRun(number) => {
                    return Err(launch::not_run(program, &io::Error::from_raw_os_error(number)));
                }
                report => return Err(unexpected(&format!("reported {report:?}"))),
            }
        }
        Ok(child)
    }

    /// The process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// True if a terminal sends its signals to the command, too.
    pub(crate) fn hears_the_terminal(&self) -> bool {
        !self.leads
    }

    /// Waits for the end of the command. Orphans that it left to us are reaped on the way.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an end is taken out only when it is returned.
    pub(crate) async fn wait(&mut self) -> Result<CommandEnd, Failure> {
        match self.report().await? {
            GuardianReport::Code(code) => {
                Ok(CommandEnd::Code(u8::try_from(code & 0xff).unwrap_or(exit::INTERNAL)))
            }
            GuardianReport::Signal(signal) => Ok(CommandEnd::Signal(signal)),
            report => Err(unexpected(&format!("reported {report:?}"))),
        }
    }

    /// The next report about the command.
    async fn report(&mut self) -> Result<GuardianReport, Failure> {
        loop {
            if let Some(report) = self.take_report() {
                return Ok(report);
            }
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => match (&self.guardian, GuardianReport::of(status)) {
                    (None, Some(report)) if pid == self.pid => return Ok(report),
                    (Some(guardian), Some(report)) if pid == guardian.pid => {
                        // Its last report may have come after the look above.
                        let last = self.take_report();
                        return last.ok_or_else(|| unexpected(&format!("ended ({report:?})")));
                    }
                    _ => {}
                },
                Err(Errno::INTR) => {}
                Ok(None) => self.news().await,
                Err(error) => {
                    let message = format!("could not wait for the command: {error}");
                    return Err(Failure::new(exit::INTERNAL, message));
                }
            }
        }
    }

    /// A report of the guardian that has come in. Reports are shorter than what a pipe may divide.
    fn take_report(&self) -> Option<GuardianReport> {
        let mut bytes = [0; GuardianReport::LEN];
        let guardian = self.guardian.as_ref()?;
        let len = guardian.reports.try_read(&mut bytes).ok()?;
        if len == bytes.len() { GuardianReport::decode(bytes) } else { None }
    }

    /// Waits until a child has ended or the guardian has reported something.
    async fn news(&mut self) {
        let Some(guardian) = &self.guardian else {
            self.ended.recv().await;
            return;
        };
        tokio::select! {
            _ = self.ended.recv() => {}
            _ = guardian.reports.readable() => {}
        }
    }

    /// After the command has ended by itself: what it has left behind may go on.
    pub(crate) fn dismiss_guardian(&mut self) {
        if let Some(guardian) = &mut self.guardian {
            // A guardian that is dead needs no dismissal.
            let _ = guardian.control.write_all(guardian::DISMISS);
        }
    }

    /// Passes a signal on, to the command's group if it has one of its own.
    pub(crate) fn forward(&self, signal: Signal) {
        // A process that has ended needs no signal.
        let _ = if self.leads {
            kill_process_group(self.pid, signal)
        } else {
            kill_process(self.pid, signal)
        };
    }

    /// Signals everything that the command has started, wherever it hides, and each process once:
    /// some take a second SIGTERM for "at once".
    pub(crate) fn signal_all(&self, signal: Signal) {
        let all = tree::descendants(getpid());
        self.forward(signal);
        let guardian = self.guardian.as_ref().map(|guardian| guardian.pid);
        for pid in all {
            let has_it = match self.leads {
                true => getpgid(Some(pid)).is_ok_and(|group| group == self.pid),
                false => pid == self.pid,
            };
            if !has_it && Some(pid) != guardian {
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// After the command itself has ended: ends what it has left behind, and sees it die.
    pub(crate) async fn sweep(&self) {
        let started = Instant::now();
        while started.elapsed() < SWEEP_MAX {
            // The guardian is killed as well, and all that is left comes to us. So having no child
            // means that all are dead.
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(_) => return,
            }
            for pid in tree::descendants(getpid()) {
                let _ = kill_process(pid, Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Guardian {
    fn new(pid: Pid, link: GuardianPipes) -> Result<Self, Failure> {
        let GuardianPipes { control, reports, far_ends } = link;
        let reports = Receiver::from_owned_fd(reports.into()).map_err(|error| {
            Failure::new(exit::INTERNAL, format!("could not listen to the guardian: {error}"))
        })?;
        Ok(Self { pid, control, reports, _link: far_ends })
    }
}

/// The guardian did what it never does by itself.
fn unexpected(what: &str) -> Failure {
    let message = format!(
        "the guardian of the command {what}, so the command was stopped: see whether something \
         killed it (out of memory?) and run it again"
    );
    Failure::new(exit::INTERNAL, message)
}

/// True if a person uses the terminal: then the command must stay in the group that the terminal
/// knows, to read from it and to hear its signals.
pub(crate) fn on_terminal() -> bool {
    stdin().is_terminal() || stdout().is_terminal() || stderr().is_terminal()
}
