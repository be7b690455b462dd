//! `distlock run`: hold a key while a command runs.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::args::{self, LeaseArgs, ProgressArgs, StoreArgs, WaitArgs};
use crate::exit::Failure;
use crate::plan::RunPlan;
use crate::{cmd, held, help, launch, session, span};

/// Hold a key while a command runs
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::RUN, override_usage = help::RUN_USAGE)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) asking: WaitArgs,
    #[command(flatten)]
    pub(crate) leasing: LeaseArgs,
    #[command(flatten)]
    pub(crate) guarding: GuardArgs,
    #[command(flatten)]
    pub(crate) talking: ProgressArgs,

    /// Keep the key for at least this long, even if CMD ends sooner; distlock returns with CMD
    /// [default: 0]
    #[arg(long, value_name = "DUR", value_parser = span::parse)]
    pub(crate) at_least: Option<Duration>,

    /// Stop CMD after this long and exit with 124
    #[arg(long, value_name = "DUR", value_parser = span::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// A random delay of up to this long before the first try, for a fleet with one crontab
    #[arg(long, value_name = "DUR", value_parser = span::parse, default_value = "0")]
    pub(crate) jitter: Duration,

    /// What to do if the backend cannot be reached
    #[arg(long, value_enum, default_value_t = IfDown::Fail)]
    pub(crate) if_down: IfDown,

    /// Enter a key that an enclosing distlock run already holds
    #[arg(long, conflicts_with_all = ["shared", "permits"])]
    pub(crate) reentrant: bool,

    /// Write the outcome to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// A set of flags: cron means -n -E 0 --at-least 30s -q
    #[arg(long, value_enum)]
    pub(crate) preset: Option<Preset>,

    /// One of several keys that are held together, all or none: once for each, and no KEY
    #[arg(short, long = "key", value_name = "KEY", id = "several")]
    #[arg(conflicts_with_all = ["shared", "permits", "reentrant"])]
    pub(crate) keys: Vec<String>,

    #[command(flatten)]
    pub(crate) work: RunCommandArgs,
}

/// The same as [`CommandArgs`], where the key may be a flag.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunCommandArgs {
    /// The name of what must not be done twice at once, such as deploy/prod
    key: String,

    /// The command and its arguments; no shell is between
    #[arg(value_name = "CMD", required_unless_present = "several")]
    #[arg(trailing_var_arg = true, num_args = 1..)]
    command: Vec<OsString>,
}

impl RunCommandArgs {
    /// With keys from flags the first word belongs to the command.
    pub(crate) fn with_keys(self, keys: &[String]) -> CommandArgs {
        let Self { key, mut command } = self;
        let Some(first) = keys.first() else { return CommandArgs { key, command } };
        command.insert(0, key.into());
        CommandArgs { key: first.clone(), command }
    }
}

/// The key and the command that runs under it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommandArgs {
    /// The key to lock, such as deploy/prod
    pub(crate) key: String,

    /// The command and its arguments, run without a shell; all words after CMD belong to it
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

impl CommandArgs {
    /// Refuses a command whose first word was taken for the key.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let words: Vec<_> = env::args_os().skip(1).collect();
        if args::key_is_missing(&words, 1 + self.command.len()) {
            return Err(Failure::usage(args::KEY_IS_MISSING));
        }
        Ok(())
    }
}

/// How the command is stopped.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// What to do with CMD if the lease is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// How long after TERM comes KILL
    #[arg(long, value_name = "DUR", value_parser = span::parse, default_value = "5s")]
    pub(crate) kill_after: Duration,
}

/// What to do with the command if the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM, then KILL before another client can enter
    Term,
    /// KILL before another client can enter
    Kill,
    /// Print a warning and let CMD run
    Warn,
}

/// What to do if the backend cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IfDown {
    /// Exit with 69
    Fail,
    /// Run CMD without the lock, with a loud warning
    Run,
}

/// Flags for a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// -n -E 0 --at-least 30s -q
    Cron,
}

/// Holds the key while the command runs; its exit code is ours.
pub(crate) fn run(args: RunArgs) -> Result<u8, Failure> {
    if args.keys.is_empty() {
        args.work.clone().with_keys(&[]).check()?;
    }
    let plan = RunPlan::for_run(args)?;
    held::check(&plan)?;
    launch::find(&plan.command[0])?;
    let locks = plan.spec.locks();
    if let (Ok(locks), true) = (&locks, plan.jitter.is_zero()) {
        // The store is opened while we get ready ourselves.
        locks.warm_up();
    }
    cmd::block_on(session::run(&plan, locks))
}
