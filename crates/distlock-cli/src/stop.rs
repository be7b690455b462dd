//! When the command must be told to stop, and when it must be dead: pure decisions.
//!
//! The rule: KILL comes `MARGIN` before the lease can end, and TERM `kill_after` before that, so
//! that nobody else can enter while the command still runs. A lease that is over already leaves no
//! time for courtesies.

use std::time::Duration;

use distlock::Moment;

use crate::cmd::run::OnLost;
use crate::plan::MARGIN;

/// The longest time between two looks at the lease. Timers stand still while a machine is
/// suspended, and leases do not.
const NAP: Duration = Duration::from_millis(250);

/// Why a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The lease is lost, or about to be.
    Lost,
    /// It was held as long as it may be.
    MaxHold,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Look again after this long.
    Look(Duration),
    /// Ask the command to stop; it has this long.
    Term(Why, Duration),
    /// End it.
    Kill(Why),
    /// Say that the lock is lost, and no more.
    Warn,
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Warned,
    Asked { why: Why, kill_at: Moment },
    Ended { why: Why },
}

/// Decides, from the lease and the clock.
#[derive(Debug)]
pub(crate) struct Stop {
    on_lost: OnLost,
    kill_after: Duration,
    max_hold_at: Option<Moment>,
    stage: Stage,
}

impl Stop {
    pub(crate) fn new(
        on_lost: OnLost,
        kill_after: Duration,
        max_hold: Option<Duration>,
        now: Moment,
    ) -> Self {
        let max_hold_at = max_hold.map(|max_hold| now.after(max_hold));
        Self { on_lost, kill_after, max_hold_at, stage: Stage::Running }
    }

    /// Why the command was stopped, if it was.
    pub(crate) fn why(&self) -> Option<Why> {
        match self.stage {
            Stage::Running | Stage::Warned => None,
            Stage::Asked { why, .. } | Stage::Ended { why } => Some(why),
        }
    }

    /// What to do now, with so much of the lease left. Each act is said once.
    pub(crate) fn look(&mut self, now: Moment, left: Duration) -> Act {
        let act = self.decide(now, left);
        match act {
            Act::Look(_) => {}
            Act::Term(why, grace) => self.stage = Stage::Asked { why, kill_at: now.after(grace) },
            Act::Kill(why) => self.stage = Stage::Ended { why },
            Act::Warn => self.stage = Stage::Warned,
        }
        act
    }

    fn decide(&self, now: Moment, left: Duration) -> Act {
        // What is left for the command, before the time to see it die.
        let left = left.saturating_sub(MARGIN);
        let stops = self.on_lost != OnLost::Warn;
        match self.stage {
            Stage::Ended { .. } => Act::Look(NAP),
            Stage::Asked { why, kill_at } => {
                if kill_at <= now || (stops && left.is_zero()) {
                    return Act::Kill(why);
                }
                Act::Look(NAP.min(kill_at.since(now)).min(if stops { left } else { NAP }))
            }
            Stage::Running | Stage::Warned => {
                if let Some(act) = self.at_loss(left) {
                    return act;
                }
                if self.max_hold_at.is_some_and(|end| end <= now) {
                    return Act::Term(Why::MaxHold, self.kill_after);
                }
                let grace = if self.on_lost == OnLost::Term { self.kill_after } else { MARGIN };
                let lease = if stops { left.saturating_sub(grace) } else { NAP };
                let max_hold = self.max_hold_at.map_or(NAP, |end| end.since(now));
                Act::Look(NAP.min(lease).min(max_hold).max(Duration::from_millis(1)))
            }
        }
    }

    /// What the lease demands of a command that runs.
    fn at_loss(&self, left: Duration) -> Option<Act> {
        match self.on_lost {
            OnLost::Warn if left.is_zero() && self.stage != Stage::Warned => Some(Act::Warn),
            OnLost::Warn => None,
            _ if left.is_zero() => Some(Act::Kill(Why::Lost)),
            OnLost::Term if left <= self.kill_after => Some(Act::Term(Why::Lost, left)),
            OnLost::Term | OnLost::Kill => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs_f64(seconds))
    }

    fn left(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn term_comes_in_time_for_kill_before_the_lease_ends() {
        let mut stop = Stop::new(OnLost::Term, 5 * SECOND, None, at(0.0));
        assert_eq!(stop.look(at(0.0), left(30.0)), Act::Look(NAP));
        assert_eq!(stop.look(at(24.6), left(5.35)), Act::Look(left(0.1)));
        assert_eq!(stop.look(at(24.75), left(5.25)), Act::Term(Why::Lost, 5 * SECOND));
        assert_eq!(stop.look(at(29.0), left(1.0)), Act::Look(NAP));
        assert_eq!(stop.look(at(29.75), left(0.25)), Act::Kill(Why::Lost));
        assert_eq!(stop.look(at(29.8), left(0.2)), Act::Look(NAP));
        assert_eq!(stop.why(), Some(Why::Lost));
    }

    #[test]
    fn a_late_look_shortens_the_grace_and_not_the_margin() {
        let mut stop = Stop::new(OnLost::Term, 5 * SECOND, None, at(0.0));
        assert_eq!(stop.look(at(28.0), left(2.0)), Act::Term(Why::Lost, left(1.75)));
        assert_eq!(stop.look(at(29.75), left(0.25)), Act::Kill(Why::Lost));
    }

    #[test]
    fn a_lease_that_is_over_leaves_no_grace() {
        for on_lost in [OnLost::Term, OnLost::Kill] {
            let mut stop = Stop::new(on_lost, 5 * SECOND, None, at(0.0));
            assert_eq!(stop.look(at(3.0), Duration::ZERO), Act::Kill(Why::Lost));
        }
    }

    #[test]
    fn kill_waits_for_the_last_moment() {
        let mut stop = Stop::new(OnLost::Kill, 5 * SECOND, None, at(0.0));
        assert!(matches!(stop.look(at(29.0), left(1.0)), Act::Look(_)));
        assert_eq!(stop.look(at(29.75), left(0.25)), Act::Kill(Why::Lost));
    }

    #[test]
    fn a_warning_is_given_once_and_stops_nothing() {
        let mut stop = Stop::new(OnLost::Warn, 5 * SECOND, None, at(0.0));
        assert!(matches!(stop.look(at(29.0), left(1.0)), Act::Look(_)));
        assert_eq!(stop.look(at(30.0), Duration::ZERO), Act::Warn);
        assert!(matches!(stop.look(at(31.0), Duration::ZERO), Act::Look(_)));
        assert_eq!(stop.why(), None);
    }

    #[test]
    fn max_hold_asks_and_then_ends() {
        let mut stop = Stop::new(OnLost::Term, SECOND, Some(10 * SECOND), at(0.0));
        assert!(matches!(stop.look(at(9.9), left(20.0)), Act::Look(span) if span <= left(0.1001)));
        assert_eq!(stop.look(at(10.0), left(20.0)), Act::Term(Why::MaxHold, SECOND));
        assert!(matches!(stop.look(at(10.5), left(20.0)), Act::Look(_)));
        assert_eq!(stop.look(at(11.0), left(20.0)), Act::Kill(Why::MaxHold));
    }

    #[test]
    fn a_lease_that_heals_does_not_recall_what_was_said() {
        let mut stop = Stop::new(OnLost::Term, 5 * SECOND, None, at(0.0));
        assert!(matches!(stop.look(at(25.0), left(5.0)), Act::Term(..)));
        assert!(matches!(stop.look(at(26.0), left(30.0)), Act::Look(_)));
        assert_eq!(stop.look(at(29.75), left(26.0)), Act::Kill(Why::Lost));
    }
}
