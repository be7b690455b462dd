//! `distlock watch`: the table of keys, as it changes.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use distlock::{Locks, Snapshot};

use crate::args::StoreArgs;
use crate::cmd::{follow, ls};
use crate::exit::Failure;
use crate::signals::Signals;
use crate::{cmd, help, out, place, span, view};

/// Show the held keys, refreshed continuously
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::WATCH)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The interval between two refreshes
    #[arg(short, long, value_name = "DUR", value_parser = span::parse, default_value = "1s")]
    pub(crate) interval: Duration,

    /// Print JSON, one object per key and line, at each refresh; with --events, one per event
    #[arg(long)]
    pub(crate) json: bool,

    /// Print what happens, one line per event, instead of the list
    #[arg(short, long)]
    pub(crate) events: bool,

    /// With --events: begin after the event with this id, or with the start of what is kept
    #[arg(long, value_name = "ID|start", requires = "events")]
    pub(crate) after: Option<String>,

    /// Show only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

/// Shorter intervals than this show nothing new.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How long a look may take before it counts as failed.
const WATCH_CALL_MAX: Duration = Duration::from_secs(5);

const HIDE: &str = "\x1b[?1049h\x1b[?25l";
const SHOW: &str = "\x1b[?25h\x1b[?1049l";

/// Shows the table until it is interrupted.
pub(crate) fn run(args: &WatchArgs) -> Result<u8, Failure> {
    if args.events {
        return follow::run(args);
    }
    cmd::block_on(async {
        let mut signals = Signals::listen()?;
        let locks = Locks::connect(&args.store.backend)?;
        let mut screen = Screen::new(args);
        loop {
            tokio::select! {
                biased;
                _ = signals.stop() => return Ok(0),
                () = screen.look(&locks, args) => {}
            }
            if !screen.show(args) {
                return Ok(0);
            }
            tokio::select! {
                biased;
                _ = signals.stop() => return Ok(0),
                () = tokio::time::sleep(args.interval.max(INTERVAL_MIN)) => {}
            }
        }
    })
}

/// What is on the screen.
struct Screen {
    rows: Vec<Snapshot>,
    /// Why the rows are old, and since when.
    trouble: Option<(String, Instant)>,
    /// The store has answered at least once.
    has_seen: bool,
    redraws: bool,
}

impl Screen {
    fn new(args: &WatchArgs) -> Self {
        let redraws = stdout().is_terminal() && !args.json;
        if redraws {
            let _ = stdout().write_all(HIDE.as_bytes());
        }
        Self { rows: Vec::new(), trouble: None, has_seen: false, redraws }
    }

    async fn look(&mut self, locks: &Locks, args: &WatchArgs) {
        let seen = tokio::time::timeout(WATCH_CALL_MAX, ls::all(locks, &args.prefix)).await;
        let trouble = match seen {
            Ok(Ok(rows)) => {
                self.rows = rows;
                self.has_seen = true;
                self.trouble = None;
                return;
            }
            Ok(Err(error)) => {
                let failure = Failure::from(error);
                failure.message().unwrap_or_default().to_owned()
            }
            Err(_) => format!("{} does not answer", place::name(&args.store.backend)),
        };
        let since = self.trouble.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        self.trouble = Some((trouble, since));
    }

    /// False if the reader of stdout has gone.
    fn show(&self, args: &WatchArgs) -> bool {
        if args.json {
            let lines: String =
                self.rows.iter().map(|seen| format!("{}\n", view::json(seen))).collect();
            if let Some((trouble, _)) = &self.trouble {
                out::complain(trouble);
            }
            return stdout().write_all(lines.as_bytes()).is_ok();
        }
        let mut lines = vec![self.head(args)];
        if !self.rows.is_empty() || self.trouble.is_none() {
            lines.extend(view::table(&self.rows, ls::columns()));
        }
        // Without an answer of the store, no rows mean that nothing is known.
        if self.rows.is_empty() && self.trouble.is_none() {
            lines.push("nothing is held; try: distlock run demo -- sleep 30".into());
        }
        let text = if self.redraws {
            lines.truncate(rows().max(3));
            // Home, each line to its end, then nothing below: no flicker.
            let lines = lines.iter().map(|line| format!("{line}\x1b[K"));
            format!("\x1b[H{}\x1b[J", lines.collect::<Vec<_>>().join("\r\n"))
        } else {
            format!("{}\n\n", lines.join("\n"))
        };
        let mut stdout = stdout();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
    }

    fn head(&self, args: &WatchArgs) -> String {
        if let Some((trouble, since)) = &self.trouble {
            let since = span::show_seconds(since.elapsed());
            let state = if self.has_seen { "old" } else { "nothing is known" };
            return view::printable(&format!("{state}, since {since}: {trouble}"));
        }
        let held = self.rows.iter().filter(|seen| seen.holders_total > 0).count();
        let waiting: u64 = self.rows.iter().map(|seen| seen.waiters_total).sum();
        let every = span::show(args.interval.max(INTERVAL_MIN));
        format!("{held} held, {waiting} waiting, every {every}; Ctrl-C ends")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.redraws {
            let _ = stdout().write_all(SHOW.as_bytes());
        }
    }
}

fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(stdout()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(24)
}
