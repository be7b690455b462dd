//! What `run` and `elect` are to do, checked: the flags, the presets and what follows from them.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use distlock::{Key, Locks, Options};

use crate::args::{Asking, Talking};
use crate::cmd::run::{Args, IfDown, OnLost, Preset};
use crate::exit::{self, Failure};
use crate::span;

/// How long before the end of the lease the command must be dead: time to see it die.
pub(crate) const MARGIN: Duration = Duration::from_millis(250);

/// What to do, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    pub(crate) owner: String,
    pub(crate) options: Options,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) conflict_code: u8,
    pub(crate) command: Vec<OsString>,
    pub(crate) jitter: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) kill_after: Duration,
    pub(crate) if_down: IfDown,
    pub(crate) reentrant: bool,
    pub(crate) report: Option<PathBuf>,
    pub(crate) talking: Talking,
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of it.
    Exclusive,
    /// With others that share.
    Shared,
    /// One of so many.
    OneOf(u32),
}

impl Plan {
    /// The plan of a `run`.
    pub(crate) fn for_run(args: Args) -> Result<Self, Failure> {
        let Args { store, mut asking, guarding, mut talking, .. } = args;
        let mut at_least = args.at_least;
        if args.preset == Some(Preset::Cron) {
            // What was said explicitly goes first.
            asking.no_wait |= asking.wait.is_none();
            asking.conflict_exit_code.get_or_insert(0);
            at_least.get_or_insert(Duration::from_secs(30));
            talking.quiet |= !talking.verbose;
        }
        check_ttl(asking.ttl, guarding.on_lost, guarding.kill_after)?;
        let options = options(&asking).hold_at_least(at_least.unwrap_or_default());
        Ok(Self {
            url: store.backend,
            key: Key::new(&args.work.key).map_err(distlock::Error::from)?,
            kind: kind(&asking),
            owner: owner(&asking),
            options,
            max_wait: asking.max_wait(),
            conflict_code: asking.conflict_exit_code.unwrap_or(exit::NOT_ACQUIRED),
            command: args.work.command,
            jitter: args.jitter,
            max_hold: args.max_hold,
            on_lost: guarding.on_lost,
            kill_after: guarding.kill_after,
            if_down: args.if_down,
            reentrant: args.reentrant,
            report: args.report,
            talking,
        })
    }

    /// Opens the store. Sends nothing yet.
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        Ok(Locks::connect(&self.url)?.configure(|_| self.options.clone())?)
    }
}

/// The kind of lock that the flags ask for.
pub(crate) fn kind(asking: &Asking) -> Kind {
    match (asking.shared, asking.permits) {
        (true, _) => Kind::Shared,
        (false, 1) => Kind::Exclusive,
        (false, permits) => Kind::OneOf(permits),
    }
}

/// The options of the library that the flags amount to.
pub(crate) fn options(asking: &Asking) -> Options {
    let mut options = Options::default()
        .ttl(asking.ttl)
        .max_wait(asking.max_wait())
        .lock_delay(asking.lock_delay)
        .full_ttl();
    options = options.owner(owner(asking));
    if let Some(reason) = &asking.reason {
        options = options.reason(reason);
    }
    options
}

/// Who asks: as told, or `user@host:pid`.
pub(crate) fn owner(asking: &Asking) -> String {
    if let Some(owner) = &asking.owner {
        return owner.clone();
    }
    let named = |name| env::var(name).ok().filter(|user| !user.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "unknown".into());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}:{}", std::process::id())
}

/// A command must be dead before its lease can end, even if the renewal at a third of the ttl is
/// the first that fails.
fn check_ttl(ttl: Duration, on_lost: OnLost, kill_after: Duration) -> Result<(), Failure> {
    let grace = match on_lost {
        OnLost::Term => kill_after + MARGIN,
        OnLost::Kill => MARGIN,
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

    fn plan(line: &str) -> Result<Plan, Failure> {
        let words = ["distlock", "run"].into_iter().chain(line.split_whitespace());
        let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not a run");
        };
        Plan::for_run(*args)
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
        assert_eq!((cron.max_wait, cron.conflict_code), (Some(Duration::ZERO), 0));
        assert!(cron.talking.quiet);
        let own = plan("--preset cron -w 5s -E 9 -v k true").unwrap();
        assert_eq!((own.max_wait, own.conflict_code), (Some(Duration::from_secs(5)), 9));
        assert!(!own.talking.quiet);
    }

    #[test]
    fn flags_after_the_command_are_the_commands() {
        let plan = plan("-n k cmd -w --shared -- x").unwrap();
        assert_eq!(plan.command, ["cmd", "-w", "--shared", "--", "x"]);
        assert_eq!(plan.kind, Kind::Exclusive);
    }
}
