//! What a new connection is told before anybody uses it.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::{Answer, FENCE_MAX, Push, Standing};
use redis::{Cmd, Pipeline, RedisError};

use super::dial::Connection;
use super::faults::is_denied;
use super::script::{RAISE, RELEASE, RENEW, STAND, Script};
use super::{FENCE_LIFE_MS, health, wire};

/// The scripts that keep or end a hold. Every connection makes them known: the first renewal of a
/// short lease has no time for a second round trip, and a release whose caller does not poll it
/// again must not need one.
fn of_holds() -> [&'static Script; 3] {
    [&RENEW, &STAND, &RELEASE]
}

/// The largest fence that a client has seen, over all keys.
#[derive(Debug, Default)]
pub(super) struct Seen(AtomicU64);

impl Seen {
    /// Remembers a fence. One beyond what a floor may be is not from a counter that started with a
    /// clock, and must not drive the counter of others to its end.
    pub(super) fn note(&self, fence: u64) {
        if fence <= FENCE_MAX / 2 {
            self.0.fetch_max(fence, Ordering::Relaxed);
        }
    }

    pub(super) fn note_answer(&self, answer: &Answer) {
        if let Answer::Granted { fence } = answer {
            self.note(*fence);
        }
    }

    pub(super) fn note_standing(&self, standing: &Standing) {
        if let Standing::Held { fence } = standing {
            self.note(*fence);
        }
    }

    pub(super) fn note_push(&self, push: &Push) {
        if let Push::Granted { fence, .. } = push {
            self.note(*fence);
        }
    }

    fn largest(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes the scripts known to all nodes of a cluster, as far as they can be reached. Nobody waits
/// for it: each call has the deadline of the connection, and a node that does not know a script
/// gets its text when it is needed.
pub(super) fn load(mut connection: Connection) {
    tokio::spawn(async move {
        for script in of_holds() {
            let _ = connection.send(&script.load()).await;
        }
    });
}

/// Raises the counter that all keys share to what was seen, makes the scripts of holds known, and
/// asks which incarnation of the server answers, all in one message. `None` if the server does not
/// let this user ask.
pub(super) async fn prepare(
    mut connection: Connection,
    counter: Option<&str>,
    seen: &Seen,
) -> Result<Option<String>, RedisError> {
    let scripts = of_holds();
    let mut cmds = Pipeline::with_capacity(scripts.len() + 2);
    cmds.cmd("INFO").arg("server");
    let counter = counter.filter(|_| seen.largest() > 0);
    if let Some(counter) = counter {
        cmds.add_command(RAISE.by_text(&|cmd: &mut Cmd| {
            cmd.arg(1).arg(counter).arg(seen.largest()).arg(FENCE_LIFE_MS);
        }));
    }
    for script in scripts {
        cmds.add_command(script.load());
    }
    let mut answers = connection.send_all(&cmds).await?.into_iter();
    let info = answers.next().and_then(Result::ok);
    // A script that may not be made known is sent as a text when it is needed. A counter that may
    // not be raised matters: no call may use this connection, unless each call will be denied too.
    if counter.is_some()
        && let Some(Err(error)) = answers.next()
        && !is_denied(&error)
    {
        return Err(error);
    }
    let incarnation =
        info.and_then(|info| Some(health::of(&wire::as_str(&info).ok()?).incarnation));
    Ok(incarnation.filter(|incarnation| !incarnation.is_empty()))
}
