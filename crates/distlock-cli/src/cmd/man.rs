//! `distlock man`: the manual pages, for those who package.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{CONFIGURATION, Failure, INTERNAL};
use crate::{help, out};

/// Print the manual page
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::MAN)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, instead of the first page to stdout
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}

/// Writes the manual.
pub(crate) fn run(args: &ManArgs) -> Result<u8, Failure> {
    if let Some(folder) = &args.out {
        let written = clap_mangen::generate_to(Cli::command(), folder);
        return written.map(|()| 0).map_err(|error| {
            let message = format!("could not write to {}: {error}", folder.display());
            Failure::new(CONFIGURATION, message)
        });
    }
    let mut page = Vec::new();
    Man::new(Cli::command())
        .render(&mut page)
        .map_err(|error| Failure::new(INTERNAL, format!("could not write the manual: {error}")))?;
    out::print(String::from_utf8_lossy(&page).trim_end());
    Ok(0)
}
