//! The command line: hold a lock while a command runs, and look at who holds what.

mod args;
mod child;
mod cmd;
mod exit;
mod guardian;
mod held;
mod held_lock;
mod help;
mod journal;
mod launch;
mod lock_spec;
mod log;
mod open_files;
mod out;
mod place;
mod plan;
mod progress;
mod report;
mod session;
mod shell;
mod signals;
mod span;
mod stop;
mod supervise;
mod take;
mod token;
mod tree;
mod view;

use std::process;

/// The only place that ends the process. Nothing is left to drop that matters: what has to be
/// released was released before a command returned.
fn main() {
    if let Some(code) = guardian::requested() {
        process::exit(code.into());
    }
    process::exit(start().into());
}

fn start() -> u8 {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => return args::explain(&error),
    };
    match cmd::run(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            if let Some(message) = failure.message() {
                out::complain(message);
            }
            failure.code()
        }
    }
}
