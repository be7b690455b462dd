//! The commands, one file each: its arguments, and what it does with them.

pub(crate) mod acquire;
pub(crate) mod break_;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
mod follow;
pub(crate) mod history;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
#[cfg(feature = "postgres")]
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod watch;

use crate::args::Command;
use crate::exit::Failure;

/// Carries out a command and returns its exit code.
pub(crate) fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(*args),
        Command::Elect(args) => elect::run(*args),
        Command::Acquire(args) => acquire::run(*args),
        Command::Renew(args) => renew::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::History(args) => history::run(&args),
        Command::Break(args) => break_::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Serve(args) => serve::run(*args),
        #[cfg(feature = "postgres")]
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Runs a command's work on a runtime of one thread: a second one would take longer to start than
/// most commands take.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::new(crate::exit::INTERNAL, format!("could not start: {error}"))
        })?;
    let done = runtime.block_on(work);
    // A call that hangs must not keep the process.
    runtime.shutdown_background();
    done
}
