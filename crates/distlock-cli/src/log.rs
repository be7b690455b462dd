//! The log of the service: one line on stderr for each event, whatever text is in it.

use std::io::{self, Write, stderr};

use distlock::Printable;
use tracing_subscriber::filter::LevelFilter;

/// Writes events to stderr from now on.
pub(crate) fn to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt().with_writer(|| EscapedStderr).with_max_level(level);
    // If a log was set up before, that is where events go. A reader of stderr that has gone is no
    // reason to fail, so nothing is said about it there.
    let _ = log.with_ansi(false).log_internal_errors(false).try_init();
}

/// Escapes what is not seen. Keys, owners, reasons and headers are text of clients: with a line
/// break in them they could forge events, and with escape sequences command the terminal.
#[derive(Debug)]
struct EscapedStderr;

impl Write for EscapedStderr {
    /// Takes one whole event, which is how the subscriber writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = format!("{}\n", Printable(text.trim_end_matches('\n')));
        stderr().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
