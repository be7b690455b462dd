//! What a user may type, as typed. Each command checks and builds what it needs from it.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{cmd, exit, help, out, shell, span};

/// The store if none is named: a file of this user's, so that nothing has to be installed.
pub(crate) const BACKEND_DEFAULT: &str = "sqlite:";

/// Distributed locks for commands: flock(1), but across machines.
#[derive(Debug, Parser)]
#[command(name = "distlock", version, max_term_width = 100, after_help = help::DISTLOCK)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One summary and one module for each; only the flags of the given command are built. The summary
/// is repeated at the arguments, or that of a flattened group would replace it.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Hold a key while a command runs
    Run(Box<cmd::run::RunArgs>),
    /// Run a command on the elected leader; rejoin the election when leadership is lost
    Elect(Box<cmd::elect::ElectArgs>),
    /// Acquire a lease for a script, which renews and releases it itself
    Acquire(Box<cmd::acquire::AcquireArgs>),
    /// Extend a lease that `acquire` printed
    Renew(cmd::renew::RenewArgs),
    /// Release a lease that `acquire` printed
    Release(cmd::release::ReleaseArgs),
    /// Show who holds a key and who waits for it
    Status(cmd::status::StatusArgs),
    /// List the keys that are held or waited for
    Ls(cmd::ls::LsArgs),
    /// Show the held keys, refreshed continuously
    Watch(cmd::watch::WatchArgs),
    /// Show past holds and waits of a key and how they ended
    History(cmd::history::HistoryArgs),
    /// Release the hold of another client, if its fence is still the one given
    Break(cmd::break_::BreakArgs),
    /// Check a store and suggest fixes
    Doctor(cmd::doctor::DoctorArgs),
    /// Serve locks over HTTP
    Serve(Box<cmd::serve::ServeArgs>),
    /// Print the tables of a store, for those who let no program create them
    #[cfg(feature = "postgres")]
    Schema(cmd::schema::SchemaArgs),
    /// Print completions for a shell
    Completions(cmd::completions::CompletionsArgs),
    /// Print the manual page
    Man(cmd::man::ManArgs),
}

/// Where the locks are.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Where the locks are: memory:, sqlite:PATH, redis://, rediss://, redis+unix://,
    /// redis-sentinel://h1,h2/master, redis-cluster://h1,h2,
    /// postgres://user@host/db or quorum:?node=URL&node=URL&node=URL
    #[arg(short, long, value_name = "URL", env = "DISTLOCK_URL", hide_env_values = true)]
    #[arg(default_value = BACKEND_DEFAULT, hide_default_value = true)]
    pub(crate) backend: String,
}

/// What to ask for, and how long to wait for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Do not wait if the key is held
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Wait this long at most: 5 (seconds), 90s, 5m; 0 does not wait [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = span::parse)]
    pub(crate) wait: Option<Duration>,

    /// The exit code if the key was not acquired [default: 75]
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,

    /// Share the key with others that share it
    #[arg(short, long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// Let at most N hold the key at once
    #[arg(short = 'N', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: u32,
}

impl WaitArgs {
    /// How long to wait at most; none for ever.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }
}

/// The lease and what others see of it.
#[derive(Clone, Debug, Args)]
pub(crate) struct LeaseArgs {
    /// How long the lease lasts without a renewal: after a crash the key stays taken for this long
    #[arg(short, long, value_name = "DUR", value_parser = span::parse, default_value = "30s")]
    pub(crate) ttl: Duration,

    /// After a lost (not released) lease, keep the key closed for this long
    #[arg(long, value_name = "DUR", value_parser = span::parse, default_value = "0")]
    pub(crate) lock_delay: Duration,

    /// The holder's name, shown to waiters [default: user@host:pid]
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,

    /// The purpose of the hold, shown to waiters
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// How much to say on the way.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProgressArgs {
    /// How to report waiting, on stderr
    #[arg(long, value_enum, default_value_t = Progress::Auto)]
    pub(crate) progress: Progress,

    /// Print only errors and the loss of the lock
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Report each event of the lock
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// How to tell about waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// A line that is redrawn on a terminal, plain lines elsewhere
    Auto,
    /// Lines
    Plain,
    /// One JSON object per event
    Json,
    /// Nothing
    None,
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    Cli::try_parse()
}

/// Prints what is wrong with the command line, or the help that was asked for.
pub(crate) fn explain(error: &clap::Error) -> u8 {
    let words: Vec<_> = env::args_os().skip(1).collect();
    if error.kind() == ErrorKind::MissingRequiredArgument && key_is_missing(&words, 1) {
        out::complain(KEY_IS_MISSING);
        return exit::USAGE;
    }
    // A reader that has gone is no reason to fail.
    let _ = error.print();
    if !error.use_stderr() {
        return 0;
    }
    if words.iter().any(|word| word == "acquire") && words.iter().any(|word| word == "--shell") {
        out::print(shell::failing(exit::USAGE));
    }
    exit::USAGE
}

/// What to say if the first word of the command was taken for the key.
pub(crate) const KEY_IS_MISSING: &str = "the key is missing: write it before the two dashes, as in \
     distlock run KEY -- CMD";

/// True if all words of a `run` or `elect` that are no flags, so many, stand behind the two dashes:
/// then the first of them is the command, and no key was named. A key that begins with a dash can
/// only stand there.
pub(crate) fn key_is_missing(words: &[OsString], operands: usize) -> bool {
    let Some(dashes) = words.iter().position(|word| word == "--") else { return false };
    let (before, behind) = (&words[..dashes], &words[dashes + 1..]);
    let runs = before.first().is_some_and(|word| word == "run" || word == "elect");
    let is_key = behind.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    runs && behind.len() == operands && !is_key
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The default of `run --ttl`, as written.
    fn default_ttl(mut command: clap::Command) -> String {
        command.build();
        let run = command.find_subcommand("run").unwrap();
        let ttl = run.get_arguments().find(|argument| argument.get_id() == "ttl").unwrap();
        ttl.get_default_values()[0].to_str().unwrap().to_owned()
    }

    #[test]
    fn the_default_ttl_is_that_of_the_library() {
        assert_eq!(span::parse(&default_ttl(Cli::command())), Ok(distlock::TTL_DEFAULT));
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_key_that_was_forgotten_is_noticed() {
        for (line, operands, is_missing) in [
            ("run -- echo hi", 2, true),
            ("run -w 5 -- echo", 1, true),
            ("elect -- echo hi", 2, true),
            ("run k -- echo hi", 3, false),
            ("run k echo -- hi", 4, false),
            ("run -- -k echo", 2, false),
            ("ls -- x", 1, false),
            ("run k", 1, false),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(key_is_missing(&words, operands), is_missing, "{line}");
        }
    }
}
