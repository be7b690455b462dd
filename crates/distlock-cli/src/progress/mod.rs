//! What is said while a command waits: never nothing, never too much, always on stderr.

mod events;
mod line;
mod usual_holds;
mod wait_view;

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::{Event, Key, Locks};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::events::{ProgressEvents, event};
use self::usual_holds::UsualHolds;
use self::wait_view::WaitView;
use crate::args::{Progress, ProgressArgs};
use crate::lock_spec::{LockKind, LockSpec};
use crate::place;

/// On a terminal nothing is drawn before this: most locks are free, and a flash disturbs.
const QUIET_FIRST: Duration = Duration::from_millis(400);

/// How often the line is redrawn.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// How often the store is asked who holds.
const HOLDER_POLL_EVERY: Duration = Duration::from_secs(1);

/// How long an answer may take before the line goes on without it.
const HOLDER_POLL_MAX: Duration = Duration::from_millis(900);

/// When plain lines are written; then every five minutes.
const PLAIN_AT: [u64; 6] = [0, 10, 30, 60, 120, 300];

/// The position is unknown.
const UNKNOWN: u64 = u64::MAX;

/// How to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressStyle {
    /// One line, redrawn.
    Redrawn,
    /// A line now and then.
    Plain,
    /// JSON, one object per line.
    Json,
    /// Nothing.
    Silent,
}

impl ProgressStyle {
    /// The voice for these flags and this terminal.
    pub(crate) fn new(talking: &ProgressArgs) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        match talking.progress {
            Progress::Json => Self::Json,
            Progress::None => Self::Silent,
            _ if talking.quiet => Self::Silent,
            Progress::Auto if stderr().is_terminal() && !dumb => Self::Redrawn,
            Progress::Auto | Progress::Plain => Self::Plain,
        }
    }
}

/// Tells about a wait until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitProgress<'a> {
    spec: &'a LockSpec,
    locks: &'a Locks,
    style: ProgressStyle,
    /// How many wait ahead, as far as is known.
    ahead: Arc<AtomicU64>,
    /// The key that is waited for.
    blocked: Arc<Mutex<Key>>,
    /// The store has said that we wait.
    queued: Arc<Notify>,
    /// Where the store is.
    store: String,
    /// Something stands in the line.
    drawn: bool,
}

impl<'a> WaitProgress<'a> {
    pub(crate) fn new(spec: &'a LockSpec, locks: &'a Locks, style: ProgressStyle) -> Self {
        let (ahead, queued) = (Arc::new(AtomicU64::new(UNKNOWN)), Arc::new(Notify::new()));
        let blocked = Arc::new(Mutex::new(spec.key.clone()));
        if style != ProgressStyle::Silent {
            let heard = (Arc::clone(&ahead), Arc::clone(&queued));
            let at = Arc::clone(&blocked);
            locks.on_event(move |event| {
                if let Event::Waiting { key, ahead } = event {
                    *at.lock().unwrap_or_else(PoisonError::into_inner) = key.clone();
                    heard.0.store(*ahead, Ordering::Relaxed);
                    heard.1.notify_one();
                }
            });
        }
        let store = place::name(&spec.url);
        Self { spec, locks, style, ahead, blocked, queued, store, drawn: false }
    }

    /// Tells, for as long as it is polled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the telling; dropping the value clears the line.
    pub(crate) async fn tell(&mut self) {
        match self.style {
            ProgressStyle::Silent => std::future::pending().await,
            ProgressStyle::Redrawn => self.redraw().await,
            ProgressStyle::Plain | ProgressStyle::Json => self.remark().await,
        }
    }

    async fn redraw(&mut self) {
        let started = Instant::now();
        sleep(QUIET_FIRST).await;
        let usual = self.usual().await;
        loop {
            let looked = Instant::now();
            let look = self.look(started, &usual).await;
            while looked.elapsed() < HOLDER_POLL_EVERY {
                let look = look.after(looked.elapsed());
                self.draw(&line::redrawn(&look, spin(started), columns(), colours()));
                sleep(REDRAW_EVERY).await;
            }
        }
    }

    async fn remark(&mut self) {
        let started = Instant::now();
        // At once, but not for a lock that is free: a store that says nothing for a while counts
        // as one that keeps us waiting.
        let _ = timeout(QUIET_FIRST, self.queued.notified()).await;
        let usual = self.usual().await;
        for at in moments() {
            sleep((started + at).saturating_duration_since(Instant::now())).await;
            let look = self.look(started, &usual).await;
            match self.style {
                ProgressStyle::Json => event("waiting", &look.event()),
                _ => crate::out::say(line::plain(&look)),
            }
        }
    }

    /// How long the key is usually held; nothing is known where no journal is kept.
    async fn usual(&self) -> UsualHolds {
        if self.spec.kind != LockKind::Exclusive || self.style == ProgressStyle::Plain {
            return UsualHolds::default();
        }
        let key = self.key();
        let past = self.locks.history(&key, usual_holds::RECENT_HOLDS_MAX);
        match timeout(HOLDER_POLL_MAX, past).await {
            Ok(Ok(visits)) => UsualHolds::of(&visits),
            _ => UsualHolds::default(),
        }
    }

    /// Who holds, who waits, and where we are among them.
    async fn look(&self, started: Instant, usual: &UsualHolds) -> WaitView {
        let key = self.key();
        let seen = match timeout(HOLDER_POLL_MAX, self.locks.inspect(&key)).await {
            Ok(Ok(snapshot)) => Ok(snapshot),
            Ok(Err(error)) => Err(format!("{}: {error}; trying again", self.store)),
            Err(_) => Err(format!("{} does not answer; trying again", self.store)),
        };
        let ahead = Some(self.ahead.load(Ordering::Relaxed)).filter(|ahead| *ahead != UNKNOWN);
        let holder = seen.as_ref().ok().and_then(|snapshot| snapshot.holders.first());
        let left = holder.zip(ahead).and_then(|(holder, ahead)| {
            holder.exclusive.then(|| usual.left(holder.held_for, ahead)).flatten()
        });
        WaitView {
            key: key.to_string(),
            seen,
            ahead,
            left,
            waited: started.elapsed(),
            max_wait: self.spec.max_wait,
        }
    }

    fn key(&self) -> Key {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn draw(&mut self, line: &str) {
        self.drawn = true;
        // Back to the first column, the line, and nothing behind it.
        let _ = stderr().write_all(format!("\r{line}\x1b[K").as_bytes());
    }
}

impl Drop for WaitProgress<'_> {
    fn drop(&mut self) {
        if self.drawn {
            let _ = stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// When to write a plain line, counted from the first.
fn moments() -> impl Iterator<Item = Duration> {
    let later = (2..).map(|n| n * 300);
    PLAIN_AT.into_iter().chain(later).map(Duration::from_secs)
}

/// Which picture of the spinner it is time for.
fn spin(started: Instant) -> usize {
    usize::try_from(started.elapsed().as_millis() / REDRAW_EVERY.as_millis()).unwrap_or(0)
}

/// How wide the terminal is.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

/// Whether colours are welcome on stderr.
pub(crate) fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_get_rarer() {
        let seconds: Vec<_> = moments().take(8).map(|moment| moment.as_secs()).collect();
        assert_eq!(seconds, [0, 10, 30, 60, 120, 300, 600, 900]);
    }
}
