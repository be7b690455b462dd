//! When the command must be told to stop, and when it must be dead: pure decisions.
//!
//! The rule: KILL comes `STOP_MARGIN` before the lease can end, and TERM `kill_after` before that,
//! so that no other client can enter while the command still runs. A lease that is over already
//! leaves no time for courtesies.

use std::time::Duration;

use distlock::Moment;

use crate::cmd::run::OnLost;
use crate::plan::STOP_MARGIN;

/// The longest time between two looks at the lease. Timers stand still while a machine is
/// suspended, and leases do not.
const NAP: Duration = Duration::from_millis(250);

/// Why a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The lease is lost, or about to be.
    Lost,
    /// It was held as long as it may be.
    MaxHold,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopAction {
    /// Look again after this long.
    Look(Duration),
    /// Ask the command to stop; it has this long.
    Term(StopCause, Duration),
    /// End it.
    Kill(StopCause),
    /// Say that the lock is lost, and no more.
    Warn,
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopStage {
    Running,
    Warned,
    Asked { why: StopCause, kill_at: Moment },
    Ended { why: StopCause },
}

/// Decides, from the lease and the clock.
#[derive(Debug)]
pub(crate) struct StopPlan {
    on_lost: OnLost,
    kill_after: Duration,
    max_hold_at: Option<Moment>,
    stage: StopStage,
}

impl StopPlan {
    pub(crate) fn new(
        on_lost: OnLost,
        kill_after: Duration,
        max_hold: Option<Duration>,
        now: Moment,
    ) -> Self {
        let max_hold_at = max_hold.map(|max_hold| now.after(max_hold));
        Self { on_lost, kill_after, max_hold_at, stage: StopStage::Running }
    }

    /// Why the command was stopped, if it was.
    pub(crate) fn why(&self) -> Option<StopCause> {
        match self.stage {
            StopStage::Running | StopStage::Warned => None,
            StopStage::Asked { why, .. } | StopStage::Ended { why } => Some(why),
        }
    }

    /// What to do now, with so much of the lease left. Each act is said once.
    pub(crate) fn look(&mut self, now: Moment, left: Duration) -> StopAction {
        let act = self.decide(now, left);
        match act {
            StopAction::Look(_) => {}
            StopAction::Term(why, grace) => {
                self.stage = StopStage::Asked { why, kill_at: now.after(grace) }
            }
            StopAction::Kill(why) => self.stage = StopStage::Ended { why },
            StopAction::Warn => self.stage = StopStage::Warned,
        }
        act
    }

    fn decide(&self, now: Moment, left: Duration) -> StopAction {
        // What is left for the command, before the time to see it die.
        let left = left.saturating_sub(STOP_MARGIN);
        let stops = self.on_lost != OnLost::Warn;
        match self.stage {
            StopStage::Ended { .. } => StopAction::Look(NAP),
            StopStage::Asked { why, kill_at } => {
                if kill_at <= now || (stops && left.is_zero()) {
                    return StopAction::Kill(why);
                }
                StopAction::Look(NAP.min(kill_at.since(now)).min(if stops { left } else { NAP }))
            }
            StopStage::Running | StopStage::Warned => {
                if let Some(act) = self.at_loss(left) {
                    return act;
                }
                if self.max_hold_at.is_some_and(|end| end <= now) {
                    return StopAction::Term(StopCause::MaxHold, self.kill_after);
                }
                let grace =
                    if self.on_lost == OnLost::Term { self.kill_after } else { STOP_MARGIN };
                let lease = if stops { left.saturating_sub(grace) } else { NAP };
                let max_hold = self.max_hold_at.map_or(NAP, |end| end.since(now));
                StopAction::Look(NAP.min(lease).min(max_hold).max(Duration::from_millis(1)))
            }
        }
    }

    /// What the lease demands of a command that runs.
    fn at_loss(&self, left: Duration) -> Option<StopAction> {
        match self.on_lost {
            OnLost::Warn if left.is_zero() && self.stage != StopStage::Warned => {
                Some(StopAction::Warn)
            }
            OnLost::Warn => None,
            _ if left.is_zero() => Some(StopAction::Kill(StopCause::Lost)),
            OnLost::Term if left <= self.kill_after => {
                Some(StopAction::Term(StopCause::Lost, left))
            }
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
        let mut stop = StopPlan::new(OnLost::Term, 5 * SECOND, None, at(0.0));
        assert_eq!(stop.look(at(0.0), left(30.0)), StopAction::Look(NAP));
        assert_eq!(stop.look(at(24.6), left(5.35)), StopAction::Look(left(0.1)));
        assert_eq!(stop.look(at(24.75), left(5.25)), StopAction::Term(StopCause::Lost, 5 * SECOND));
        assert_eq!(stop.look(at(29.0), left(1.0)), StopAction::Look(NAP));
        assert_eq!(stop.look(at(29.75), left(0.25)), StopAction::Kill(StopCause::Lost));
        assert_eq!(stop.look(at(29.8), left(0.2)), StopAction::Look(NAP));
        assert_eq!(stop.why(), Some(StopCause::Lost));
    }

    #[test]
    fn a_late_look_shortens_the_grace_and_not_the_margin() {
        let mut stop = StopPlan::new(OnLost::Term, 5 * SECOND, None, at(0.0));
        assert_eq!(stop.look(at(28.0), left(2.0)), StopAction::Term(StopCause::Lost, left(1.75)));
        assert_eq!(stop.look(at(29.75), left(0.25)), StopAction::Kill(StopCause::Lost));
    }

    #[test]
    fn a_lease_that_is_over_leaves_no_grace() {
        for on_lost in [OnLost::Term, OnLost::Kill] {
            let mut stop = StopPlan::new(on_lost, 5 * SECOND, None, at(0.0));
            assert_eq!(stop.look(at(3.0), Duration::ZERO), StopAction::Kill(StopCause::Lost));
        }
    }

    #[test]
    fn kill_waits_for_the_last_moment() {
        let mut stop = StopPlan::new(OnLost::Kill, 5 * SECOND, None, at(0.0));
        assert!(matches!(stop.look(at(29.0), left(1.0)), StopAction::Look(_)));
        assert_eq!(stop.look(at(29.75), left(0.25)), StopAction::Kill(StopCause::Lost));
    }

    #[test]
    fn a_warning_is_given_once_and_stops_nothing() {
        let mut stop = StopPlan::new(OnLost::Warn, 5 * SECOND, None, at(0.0));
        assert!(matches!(stop.look(at(29.0), left(1.0)), StopAction::Look(_)));
        assert_eq!(stop.look(at(30.0), Duration::ZERO), StopAction::Warn);
        assert!(matches!(stop.look(at(31.0), Duration::ZERO), StopAction::Look(_)));
        assert_eq!(stop.why(), None);
    }

    #[test]
    fn max_hold_asks_and_then_ends() {
        let mut stop = StopPlan::new(OnLost::Term, SECOND, Some(10 * SECOND), at(0.0));
        assert!(
            matches!(stop.look(at(9.9), left(20.0)), StopAction::Look(span) if span <= left(0.1001))
        );
        assert_eq!(stop.look(at(10.0), left(20.0)), StopAction::Term(StopCause::MaxHold, SECOND));
        assert!(matches!(stop.look(at(10.5), left(20.0)), StopAction::Look(_)));
        assert_eq!(stop.look(at(11.0), left(20.0)), StopAction::Kill(StopCause::MaxHold));
    }

    #[test]
    fn a_lease_that_heals_does_not_recall_what_was_said() {
        let mut stop = StopPlan::new(OnLost::Term, 5 * SECOND, None, at(0.0));
        assert!(matches!(stop.look(at(25.0), left(5.0)), StopAction::Term(..)));
        assert!(matches!(stop.look(at(26.0), left(30.0)), StopAction::Look(_)));
        assert_eq!(stop.look(at(29.75), left(26.0)), StopAction::Kill(StopCause::Lost));
    }
}
