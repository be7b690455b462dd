//! The one owner of signals: turns those that reach this process into events.

use std::fs;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::{Failure, INTERNAL};

/// What is passed on to the command.
const FORWARDED: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// The signals of this process, from now on.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    woken: Stream,
}

impl Signals {
    /// Takes over the signals. Those that the parent process wants ignored, such as HUP under
    /// nohup, stay ignored, also in the command.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let ignored = ignored();
        let streams = FORWARDED
            .into_iter()
            .filter(|signal| !ignored.contains(*signal))
            .map(|signal| Ok((signal, stream(signal)?)))
            .collect::<Result<_, Failure>>()?;
        Ok(Self { streams, woken: stream(Signal::CONT)? })
    }

    /// The next signal to be passed on; none if the process was stopped and goes on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a signal is taken out only when it is returned.
    pub(crate) async fn next(&mut self) -> Option<Signal> {
        std::future::poll_fn(|context| {
            if self.woken.poll_recv(context).is_ready() {
                return Poll::Ready(None);
            }
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(Some(*signal));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks to stop: while there is no command yet, all but CONT do.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a signal is taken out only when it is returned.
    pub(crate) async fn stop(&mut self) -> Signal {
        loop {
            if let Some(signal) = self.next().await {
                return signal;
            }
        }
    }
}

/// The deliveries of one signal, from now on.
pub(crate) fn stream(kind: Signal) -> Result<Stream, Failure> {
    signal(SignalKind::from_raw(kind.as_raw())).map_err(|error| {
        Failure::new(INTERNAL, format!("could not listen for signal {kind:?}: {error}"))
    })
}

/// The signals that are ignored, as a mask.
#[derive(Clone, Copy, Debug)]
struct Ignored(u64);

impl Ignored {
    fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}

/// What the kernel says is ignored; nothing where it does not say.
fn ignored() -> Ignored {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ignored(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default())
}
