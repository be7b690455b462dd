//! The one task of a quorum: sees late calls through.
//!
//! A call of the quorum ends as soon as its outcome is decided, and the nodes that have not
//! answered by then are not waited for. Their calls must not be dropped, though: a connection that
//! is just being made would never come to be, and a release would not be sent. So they are handed
//! over to this task, which belongs to the quorum. It is started with the first late call and ends
//! with the quorum. Whatever is late is over after [`LATE_MAX`], answered or not.

use std::sync::{Mutex, Weak};
use std::time::Duration;

use distlock_core::ClaimId;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Inner;
use super::claims::Late;
use crate::sync::lock;

/// How long a late call may go on.
pub(super) const LATE_MAX: Duration = Duration::from_secs(5);

/// How many late calls are seen through at once. Beyond it they are dropped, which is as if their
/// node had not answered.
const CALLS_MAX: usize = 4096;

/// A late call, and the claim and node it is about.
pub(super) struct LateCall {
    pub(super) call: Late,
    pub(super) claim: Option<ClaimId>,
    pub(super) node: usize,
    pub(super) quorum: Weak<Inner>,
    pub(super) answered: bool,
}

impl Drop for LateCall {
    /// Answered or not, nobody waits for it from now on. If its runtime has ended, nobody may: its
    /// timers have ended with that.
    fn drop(&mut self) {
        if let (Some(quorum), Some(claim)) = (self.quorum.upgrade(), self.claim) {
            quorum.claims.ended(&claim, self.node, &self.call, self.answered);
        }
    }
}

/// The way to the task.
#[derive(Debug, Default)]
pub(super) struct Sweeper(Mutex<Option<mpsc::Sender<LateCall>>>);

impl Sweeper {
    /// Sees a call through. Outside a runtime it is dropped, as if its node had not answered.
    pub(super) fn take(&self, late: LateCall) {
        let mut sender = lock(&self.0);
        let late = match sender.as_ref() {
            Some(sender) => match sender.try_send(late) {
                Err(mpsc::error::TrySendError::Closed(late)) => late,
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => return,
            },
            None => late,
        };
        let Ok(runtime) = Handle::try_current() else { return };
        let (to_task, from_us) = mpsc::channel(CALLS_MAX);
        let _ = to_task.try_send(late);
        *sender = Some(to_task);
        runtime.spawn(run(from_us));
    }
}

async fn run(mut arriving: mpsc::Receiver<LateCall>) {
    let mut calls = FuturesUnordered::new();
    let mut open = true;
    while open || !calls.is_empty() {
        tokio::select! {
            late = arriving.recv(), if open && calls.len() < CALLS_MAX => match late {
                Some(late) => calls.push(see_through(late)),
                None => open = false,
            },
            Some(()) = calls.next(), if !calls.is_empty() => {}
        }
    }
}

async fn see_through(mut late: LateCall) {
    late.answered = late.call.clone().await;
}
