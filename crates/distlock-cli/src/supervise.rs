//! The heart of `run`: one loop over the lease, the command and the signals, then the release.

use std::time::Duration;

use distlock::clock::BootClock;
use distlock::{Clock, HoldEnd, Moment};
use rustix::process::Signal;
use serde_json::json;

use crate::child::{Child, CommandEnd};
use crate::cmd::run::OnLost;
use crate::exit::{self, Failure};
use crate::held::{HELD_VAR, Holds, REENTRY_VAR, word};
use crate::held_lock::HeldLock;
use crate::launch::Launcher;
use crate::plan::RunPlan;
use crate::progress::ProgressEvents;
use crate::report::RunOutcome;
use crate::signals::Signals;
use crate::span;
use crate::stop::{StopAction, StopCause, StopPlan};

/// Signals closer together than this are one, sent by two hands: a shell signals the whole job,
/// and the parent process forwards it once more.
const SAME: Duration = Duration::from_millis(50);

/// On a terminal, interrupts further apart than this are each meant for the command alone.
const MEANT_FOR_US: Duration = Duration::from_secs(2);

/// How long the release of a lost lock may take.
const LATE_RELEASE_MAX: Duration = Duration::from_millis(250);

/// A command that runs under a lock, or without one if the backend was out of reach.
pub(crate) struct Run<'a> {
    plan: &'a RunPlan,
    told: ProgressEvents<'a>,
    held: Option<HeldLock>,
    child: Child,
    signals: &'a mut Signals,
    stop: StopPlan,
    started: Moment,
    /// When a signal to stop was passed on last.
    asked: Option<Moment>,
}

/// How a command went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandResult {
    pub(crate) outcome: RunOutcome,
    pub(crate) code: u8,
    pub(crate) signal: Option<i32>,
    pub(crate) held: Duration,
}

impl<'a> Run<'a> {
    /// Starts the command.
    pub(crate) async fn start(
        plan: &'a RunPlan,
        told: ProgressEvents<'a>,
        launcher: Launcher<'_>,
        held: Option<HeldLock>,
        signals: &'a mut Signals,
    ) -> Result<Self, Failure> {
        let started = BootClock.now();
        let stop = StopPlan::new(plan.on_lost, plan.kill_after, plan.max_hold, started);
        match Child::start(launcher, &environment(plan, held.as_ref())).await {
            Ok(child) => Ok(Self { plan, told, held, child, signals, stop, started, asked: None }),
            Err(failure) => {
                if let Some(held) = held {
                    // Nothing has run under it.
                    let _ = held.release().await;
                }
                Err(failure)
            }
        }
    }

    /// Runs the command to its end and releases the lock: in this order.
    pub(crate) async fn finish(mut self) -> Result<CommandResult, Failure> {
        let unlocked = self.held.is_none();
        let ended = self.supervise().await;
        let why = self.stop.why();
        if why.is_some() || ended.is_err() {
            self.child.sweep().await;
        } else {
            self.child.dismiss_guardian();
        }
        let lost = self.release(why == Some(StopCause::Lost)).await;
        let ended = ended?;
        let (outcome, code) = match (why, ended) {
            (Some(StopCause::Lost), _) => (RunOutcome::Lost, exit::LOST),
            (Some(StopCause::MaxHold), _) => (RunOutcome::MaxHold, exit::MAX_HOLD),
            (None, _) if lost => (RunOutcome::Lost, exit::LOST),
            (None, _) if unlocked => (RunOutcome::Unlocked, ended.code()),
            (None, CommandEnd::Code(code)) => (RunOutcome::Exited, code),
            (None, CommandEnd::Signal(_)) => (RunOutcome::Signalled, ended.code()),
        };
        let signal = match ended {
            CommandEnd::Signal(signal) => Some(signal),
            CommandEnd::Code(_) => None,
        };
        Ok(CommandResult { outcome, code, signal, held: BootClock.now().since(self.started) })
    }

    /// The loop: before anything else, each time, the lease.
    async fn supervise(&mut self) -> Result<CommandEnd, Failure> {
        loop {
            let pause = self.look();
            tokio::select! {
                biased;
                ended = self.child.wait() => {
                    if ended.is_err() {
                        // It is unknown whether it runs, so it must not: the lock goes next.
                        self.child.signal_all(Signal::KILL);
                    }
                    return ended;
                }
                signal = self.signals.next() => self.signalled(signal),
                () = lost(self.held.as_ref()) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what the lease and the clock demand; returns when to look again.
    fn look(&mut self) -> Duration {
        loop {
            let left = self.held.as_ref().map_or(Duration::MAX, HeldLock::remaining);
            match self.stop.look(BootClock.now(), left) {
                StopAction::Look(pause) => return pause,
                StopAction::Term(why, grace) => {
                    self.child.signal_all(Signal::TERM);
                    self.announce(why, &format!("SIGTERM, SIGKILL in {}", span::show(grace)));
                }
                StopAction::Kill(why) => {
                    self.child.signal_all(Signal::KILL);
                    self.announce(why, "SIGKILL");
                }
                StopAction::Warn => {
                    let loss = self.loss();
                    let words =
                        format!("LOST {}: {loss}; the command goes on", self.plan.spec.name());
                    self.told.banner("lost", &words, json!({ "reason": loss }));
                }
            }
        }
    }

    /// The banner that nothing suppresses.
    fn announce(&self, why: StopCause, how: &str) {
        let (key, pid, loss) = (self.plan.spec.name(), self.child.pid(), self.loss());
        let stopping = format!("stopping the command (process {pid}): {how}");
        match why {
            StopCause::Lost => {
                let words = format!("LOST {key}: {loss}; {stopping}");
                self.told.banner("lost", &words, json!({ "reason": loss }));
            }
            StopCause::MaxHold => {
                let words = format!("{key} was held as long as --max-hold allows; {stopping}");
                self.told.banner("maxHold", &words, json!({}));
            }
        }
    }

    /// Why the lock is lost, or is going to be.
    fn loss(&self) -> String {
        let loss = self.held.as_ref().and_then(HeldLock::loss);
        loss.map_or_else(
            || "the lease could not be renewed and is about to end".into(),
            |reason| reason.to_string(),
        )
    }

    /// The first signal is passed on, the second ends the command.
    fn signalled(&mut self, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            return self.child.forward(signal);
        }
        let now = BootClock.now();
        let since = self.asked.map(|asked| now.since(asked));
        // The terminal has sent these to the command itself.
        let heard = self.child.hears_the_terminal()
            && matches!(signal, Signal::INT | Signal::QUIT | Signal::HUP);
        match since {
            Some(since) if since < SAME => return,
            Some(since) if !heard || since < MEANT_FOR_US => {
                self.child.signal_all(Signal::KILL);
            }
            _ if heard => {}
            _ => self.child.forward(signal),
        }
        self.asked = Some(now);
    }

    /// Releases the lock. True if it turns out that it was lost.
    async fn release(&mut self, lost: bool) -> bool {
        let Some(held) = self.held.take() else { return false };
        if lost {
            // It ends by itself; a store that answers may as well know at once.
            let _ = tokio::time::timeout(LATE_RELEASE_MAX, held.release()).await;
            return true;
        }
        let key = self.plan.spec.name();
        match held.release().await {
            Ok(HoldEnd::Lost(_)) if self.plan.on_lost == OnLost::Warn => false,
            Ok(HoldEnd::Lost(reason)) => {
                let words = format!("LOST {key}: {reason}; the command had ended by then");
                self.told.banner("lost", &words, json!({ "reason": reason.to_string() }));
                true
            }
            Ok(_) => false,
            Err(error) => {
                let words = format!("could not {error}; the lock ends with its lease");
                self.told.banner("releaseUncertain", &words, json!({}));
                false
            }
        }
    }
}

/// Waits for the loss of a lock; for ever if there is none.
async fn lost(held: Option<&HeldLock>) {
    match held {
        // A loss that is known already is seen by the next look.
        Some(held) if held.is_held() => {
            held.lost().await;
        }
        _ => std::future::pending().await,
    }
}

/// What the command is told. With several keys there is no single one that it could mean.
fn environment(plan: &RunPlan, held: Option<&HeldLock>) -> Vec<(&'static str, String)> {
    let spec = &plan.spec;
    let mut environment = vec![("DISTLOCK_OWNER", spec.owner.clone())];
    if spec.more_keys.is_empty() {
        environment.push(("DISTLOCK_KEY", spec.key.to_string()));
    }
    let Some(held) = held else { return environment };
    let fences = held.fences();
    if let Some(fence) = held.fence() {
        environment.push(("DISTLOCK_FENCE", fence.to_string()));
    } else {
        let keys: Vec<_> = fences.iter().map(|(key, _)| word(key.as_str())).collect();
        let numbers: Vec<_> = fences.iter().map(|(_, fence)| fence.to_string()).collect();
        environment.push(("DISTLOCK_KEYS", keys.join(" ")));
        environment.push(("DISTLOCK_FENCES", numbers.join(" ")));
    }
    let keys = fences.iter().map(|(key, _)| key.as_str());
    let (keys, secrets) = Holds::around().and(keys, held.secret());
    environment.push((HELD_VAR, keys));
    environment.push((REENTRY_VAR, secrets));
    environment
}
