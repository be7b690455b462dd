//! Everything that is written: answers to stdout, remarks to stderr. A reader that has gone is no
//! reason to fail.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};

use distlock::Printable;

/// Writes a remark of one line to stderr.
pub(crate) fn say(remark: impl Display) {
    // Keys, owners and reasons in it are text of other people.
    write_line(Printable(&remark.to_string()));
}

/// Writes a whole line in one call, so that the lines of several processes do not mix.
fn write_line(text: impl Display) {
    let line = format!("distlock: {text}\n");
    let _ = stderr().write_all(line.as_bytes());
}

/// Writes what must not be missed.
pub(crate) fn alarm(remark: impl Display) {
    if stderr().is_terminal() && crate::progress::colours() {
        write_line(format_args!("\x1b[1;31m{}\x1b[0m", Printable(&remark.to_string())));
    } else {
        say(remark);
    }
}

/// Writes an error to stderr.
pub(crate) fn complain(message: impl Display) {
    say(message);
}

/// Writes an answer to stdout.
pub(crate) fn print(answer: impl Display) {
    let line = format!("{answer}\n");
    let _ = stdout().write_all(line.as_bytes());
}
