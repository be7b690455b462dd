//! Everything that is written: answers to stdout, remarks to stderr. A reader that has gone is no
//! reason to fail.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};

/// Writes a remark of one line to stderr.
pub(crate) fn say(remark: impl Display) {
    // Whole lines in one write, so that those of several processes do not mix.
    let line = format!("distlock: {remark}\n");
    let _ = stderr().write_all(line.as_bytes());
}

/// Writes what must not be missed.
pub(crate) fn alarm(remark: impl Display) {
    if stderr().is_terminal() && crate::progress::colours() {
        say(format_args!("\x1b[1;31m{remark}\x1b[0m"));
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
