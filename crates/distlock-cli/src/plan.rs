//! What `run` and `elect` are to do, checked: the flags, the presets and what follows from them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::cmd::run::{IfDown, OnLost, Preset};
use crate::cmd::{elect, run};
use crate::exit::Failure;
use crate::lock_spec::LockSpec;
use crate::span;

/// How long a backend that is down delays a command that may run without it.
const PATIENCE_UNLOCKED: Duration = Duration::from_secs(3);

/// How long before the end of the lease the command must be dead: time to see it die.
pub(crate) const STOP_MARGIN: Duration = Duration::from_millis(250);

/// What to do, checked.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) spec: LockSpec,
    pub(crate) command: Vec<OsString>,
    pub(crate) jitter: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) kill_after: Duration,
    pub(crate) if_down: IfDown,
    pub(crate) reentrant: bool,
    pub(crate) report: Option<PathBuf>,
}

impl RunPlan {
    /// The plan of a `run`.
    pub(crate) fn for_run(args: run::RunArgs) -> Result<Self, Failure> {
        let run::RunArgs { store, mut asking, leasing, guarding, mut talking, work, .. } = args;
        let work = work.with_keys(&args.keys);
        let mut at_least = args.at_least;
        if args.preset == Some(Preset::Cron) {
            // What was said explicitly goes first.
            asking.no_wait |= asking.wait.is_none();
            asking.conflict_exit_code.get_or_insert(0);
            at_least.get_or_insert(Duration::from_secs(30));
            talking.quiet |= !talking.verbose;
        }
        check_ttl(leasing.ttl, guarding.on_lost, guarding.kill_after)?;
        let mut spec = LockSpec::new(store, &work.key, Some(&asking), &leasing, talking)?;
        spec = spec.with_more_keys(&args.keys)?;
        spec.options = spec.options.hold_at_least(at_least.unwrap_or_default());
        if args.if_down == IfDown::Run {
            spec.options = spec.options.patience(PATIENCE_UNLOCKED);
        }
        Ok(Self {
            spec,
            command: work.command,
            jitter: args.jitter,
            max_hold: args.max_hold,
            on_lost: guarding.on_lost,
            kill_after: guarding.kill_after,
            if_down: args.if_down,
            reentrant: args.reentrant,
            report: args.report,
        })
    }

    /// The plan of an `elect`: a run for ever, repeated by the leader.
    pub(crate) fn for_elect(args: elect::ElectArgs) -> Result<Self, Failure> {
        let elect::ElectArgs { store, leasing, guarding, talking, work } = args;
        check_ttl(leasing.ttl, guarding.on_lost, guarding.kill_after)?;
        Ok(Self {
            spec: LockSpec::new(store, &work.key, None, &leasing, talking)?,
            command: work.command,
            jitter: Duration::ZERO,
            max_hold: None,
            on_lost: guarding.on_lost,
            kill_after: guarding.kill_after,
            if_down: IfDown::Fail,
            reentrant: false,
            report: None,
        })
    }
}

/// A command must be dead before its lease can end, even if the renewal at a third of the ttl is
/// the first that fails.
fn check_ttl(ttl: Duration, on_lost: OnLost, kill_after: Duration) -> Result<(), Failure> {
    let grace = match on_lost {
        OnLost::Term => kill_after + STOP_MARGIN,
        OnLost::Kill => STOP_MARGIN,
        OnLost::Warn => return Ok(()),
    };
    if grace < ttl * 2 / 3 {
        return Ok(());
    }
    let enough = Duration::from_secs((grace * 3 / 2).as_secs() + 1);
    Err(Failure::usage(format!(
        "--ttl {} is too short to stop the command before the lease ends: use at least --ttl {}, \
         or a shorter --kill-after than {}",
        span::show(ttl),
        span::show(enough),
        span::show(kill_after),
    )))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::exit;
    use crate::lock_spec::LockKind;

    fn plan(line: &str) -> Result<RunPlan, Failure> {
        let words = ["distlock", "run"].into_iter().chain(line.split_whitespace());
        let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not a run");
        };
        RunPlan::for_run(*args)
    }

    #[test]
    fn a_ttl_must_leave_time_to_stop_the_command() {
        for (line, fits) in [
            ("k true", true),
            ("-t 8s k true", true),
            ("-t 7s k true", false),
            ("-t 7s --kill-after 4s k true", true),
            ("-t 2s --kill-after 1s k true", true),
            ("-t 1s --kill-after 1s k true", false),
            ("-t 1s --on-lost kill k true", true),
            ("-t 300ms --on-lost kill k true", false),
            ("-t 300ms --on-lost warn k true", true),
        ] {
            let got = plan(line);
            assert_eq!(got.is_ok(), fits, "{line}: {:?}", got.err());
        }
        let refused = plan("-t 7s k true").unwrap_err();
        assert_eq!(refused.code(), exit::USAGE);
        assert!(refused.message().unwrap().contains("--ttl 8s"), "{refused:?}");
    }

    #[test]
    fn flags_go_before_the_preset() {
        let cron = plan("--preset cron k true").unwrap();
        assert_eq!((cron.spec.max_wait, cron.spec.conflict_code), (Some(Duration::ZERO), 0));
        assert!(cron.spec.talking.quiet);
        let own = plan("--preset cron -w 5s -E 9 -v k true").unwrap();
        assert_eq!((own.spec.max_wait, own.spec.conflict_code), (Some(Duration::from_secs(5)), 9));
        assert!(!own.spec.talking.quiet);
    }

    #[test]
    fn flags_after_the_command_are_the_commands() {
        let plan = plan("-n k cmd -w --shared -- x").unwrap();
        assert_eq!(plan.command, ["cmd", "-w", "--shared", "--", "x"]);
        assert_eq!(plan.spec.kind, LockKind::Exclusive);
    }
}
