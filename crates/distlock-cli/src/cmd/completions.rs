//! `distlock completions`: what a shell needs to complete our commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Failure;
use crate::{help, out};

/// Print completions for a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// The shell to write them for
    pub(crate) shell: Shell,
}

/// Writes the completions to stdout.
pub(crate) fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "distlock", &mut script);
    out::print(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}
