//! The heart of `run`: one loop over the lease, the command and the signals, then the release.

use std::time::Duration;

use distlock::clock::BootClock;
use distlock::{Clock, End, Moment};
use rustix::process::Signal;
use serde_json::json;

use crate::child::{Child, Ended};
use crate::cmd::run::OnLost;
use crate::exit::{self, Failure};
use crate::held::{HELD, Holds, REENTRY};
use crate::launch::Launcher;
use crate::plan::Plan;
use crate::progress::Told;
use crate::report::Outcome;
use crate::signals::Signals;
use crate::span;
use crate::stop::{Act, Stop, Why};
use crate::take::Held;

/// Signals closer together than this are one, sent by two hands: a shell signals the whole job,
/// and whoever runs us passes it on once more.
const SAME: Duration = Duration::from_millis(50);

/// On a terminal, interrupts further apart than this are each meant for the command alone.
const MEANT_FOR_US: Duration = Duration::from_secs(2);

/// How long the release of a lost lock may take.
const LATE_RELEASE_MAX: Duration = Duration::from_millis(250);

/// A command that runs under a lock, or without one if the backend was out of reach.
pub(crate) struct Run<'a> {
    plan: &'a Plan,
    told: Told<'a>,
    held: Option<Held>,
    child: Child,
    signals: &'a mut Signals,
    stop: Stop,
    started: Moment,
    /// When a signal to stop was passed on last.
    asked: Option<Moment>,
}

/// How a command went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) code: u8,
    pub(crate) signal: Option<i32>,
    pub(crate) held: Duration,
}

impl<'a> Run<'a> {
    /// Starts the command.
    pub(crate) async fn start(
        plan: &'a Plan,
        told: Told<'a>,
        launcher: Launcher<'_>,
        held: Option<Held>,
        signals: &'a mut Signals,
    ) -> Result<Self, Failure> {
        let started = BootClock.now();
        let stop = Stop::new(plan.on_lost, plan.kill_after, plan.max_hold, started);
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
    pub(crate) async fn finish(mut self) -> Result<Done, Failure> {
        let unlocked = self.held.is_none();
        let ended = self.supervise().await;
        let why = self.stop.why();
        if why.is_some() || ended.is_err() {
            self.child.sweep().await;
        } else {
            self.child.dismiss_guardian();
        }
        let lost = self.release(why == Some(Why::Lost)).await;
        let ended = ended?;
        let (outcome, code) = match (why, ended) {
            (Some(Why::Lost), _) => (Outcome::Lost, exit::LOST),
            (Some(Why::MaxHold), _) => (Outcome::MaxHold, exit::MAX_HOLD),
            (None, _) if lost => (Outcome::Lost, exit::LOST),
            (None, _) if unlocked => (Outcome::Unlocked, ended.code()),
            (None, Ended::Code(code)) => (Outcome::Exited, code),
            (None, Ended::Signal(_)) => (Outcome::Signalled, ended.code()),
        };
        let signal = match ended {
            Ended::Signal(signal) => Some(signal),
            Ended::Code(_) => None,
        };
        Ok(Done { outcome, code, signal, held: BootClock.now().since(self.started) })
    }

    /// The loop: before anything else, each time, the lease.
    async fn supervise(&mut self) -> Result<Ended, Failure> {
        loop {
            let pause = self.look();
            tokio::select! {
                biased;
                ended = self.child.wait() => {
                    if ended.is_err() {
                        // Nobody can tell whether it runs, so it must not: the lock goes next.
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
            let left = self.held.as_ref().map_or(Duration::MAX, |held| held.remaining());
            match self.stop.look(BootClock.now(), left) {
                Act::Look(pause) => return pause,
                Act::Term(why, grace) => {
                    self.child.signal_all(Signal::TERM);
                    self.announce(why, &format!("SIGTERM, SIGKILL in {}", span::show(grace)));
                }
                Act::Kill(why) => {
                    self.child.signal_all(Signal::KILL);
                    self.announce(why, "SIGKILL");
                }
                Act::Warn => {
                    let loss = self.loss();
                    let words = format!("LOST {}: {loss}; the command goes on", self.plan.want.key);
                    self.told.banner("lost", &words, json!({ "reason": loss }));
                }
            }
        }
    }

    /// The banner that nothing suppresses.
    fn announce(&self, why: Why, how: &str) {
        let (key, pid, loss) = (&self.plan.want.key, self.child.pid(), self.loss());
        let stopping = format!("stopping the command (process {pid}): {how}");
        match why {
            Why::Lost => {
                let words = format!("LOST {key}: {loss}; {stopping}");
                self.told.banner("lost", &words, json!({ "reason": loss }));
            }
            Why::MaxHold => {
                let words = format!("{key} was held as long as --max-hold allows; {stopping}");
                self.told.banner("maxHold", &words, json!({}));
            }
        }
    }

    /// Why the lock is lost, or is going to be.
    fn loss(&self) -> String {
        let loss = self.held.as_ref().and_then(|held| held.loss());
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
        let key = &self.plan.want.key;
        match held.release().await {
            Ok(End::Lost(_)) if self.plan.on_lost == OnLost::Warn => false,
            Ok(End::Lost(reason)) => {
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
async fn lost(held: Option<&Held>) {
    match held {
        // A loss that is known already is seen by the next look.
        Some(held) if held.is_held() => {
            held.lost().await;
        }
        _ => std::future::pending().await,
    }
}

/// What the command is told.
fn environment(plan: &Plan, held: Option<&Held>) -> Vec<(&'static str, String)> {
    let mut environment = vec![
        ("DISTLOCK_KEY", plan.want.key.to_string()),
        ("DISTLOCK_OWNER", plan.want.owner.clone()),
    ];
    let Some(held) = held else { return environment };
    environment.push(("DISTLOCK_FENCE", held.fence().to_string()));
    let (keys, secrets) = Holds::around().and(plan.want.key.as_str(), held.secret());
    environment.push((HELD, keys));
    environment.push((REENTRY, secrets));
    environment
}
