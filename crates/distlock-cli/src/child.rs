//! The command as a process: started, signalled with all that it started, and reaped.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group,
};
use tokio::signal::unix::Signal as Stream;

use crate::exit::{self, Failure};
use crate::launch::{Launched, Launcher};
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
    _launched: Launched,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Ended {
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
    pub(crate) fn start(
        launcher: Launcher<'_>,
        environment: &[(&str, String)],
    ) -> Result<Self, Failure> {
        // Before the start, or its end could be missed.
        let ended = signals::stream(Signal::CHILD)?;
        tree::adopt_orphans();
        let leads = launcher.leads();
        let launched = launcher.go(environment)?;
        Ok(Self { pid: Pid::from_child(&launched.process), leads, ended, _launched: launched })
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
    pub(crate) async fn wait(&mut self) -> Result<Ended, Failure> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    if let Some(ended) = how(status) {
                        return Ok(ended);
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => {
                    self.ended.recv().await;
                }
                Err(error) => {
                    let message = format!("could not wait for the command: {error}");
                    return Err(Failure::new(exit::INTERNAL, message));
                }
            }
        }
    }

    /// Passes a signal on, to the command's group if it has one of its own.
    pub(crate) fn forward(&self, signal: Signal) {
        // Whoever has gone needs no signal.
        let _ = if self.leads {
            kill_process_group(self.pid, signal)
        } else {
            kill_process(self.pid, signal)
        };
    }

    /// Signals everything that the command has started, wherever it hides, and each process once:
    /// some take a second SIGTERM for "at once".
    pub(crate) fn signal_all(&self, signal: Signal) {
        let everybody = tree::descendants(getpid());
        self.forward(signal);
        for pid in everybody {
            let was_told = match self.leads {
                true => getpgid(Some(pid)).is_ok_and(|group| group == self.pid),
                false => pid == self.pid,
            };
            if !was_told {
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// After the command itself has ended: ends what it has left behind, and sees it die.
    pub(crate) async fn sweep(&self) {
        let started = Instant::now();
        while started.elapsed() < SWEEP_MAX {
            // All that is left has come to us, so that nobody being there means that all are dead.
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

fn how(status: WaitStatus) -> Option<Ended> {
    if let Some(code) = status.exit_status() {
        return Some(Ended::Code(u8::try_from(code & 0xff).unwrap_or(exit::INTERNAL)));
    }
    status.terminating_signal().map(Ended::Signal)
}

/// True if somebody sits before us: then the command must stay in the group that the terminal
/// knows, to read from it and to hear its signals.
pub(crate) fn on_terminal() -> bool {
    stdin().is_terminal() || stdout().is_terminal() || stderr().is_terminal()
}
