//! What a new connection is told before anybody uses it.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::{Answer, FENCE_MAX, Push, Standing};
use redis::{Pipeline, RedisError, Value};

use super::connection::Connection;
use super::faults::is_denied;
use super::library::{self, Library, LibraryCall, LibraryVerb, Words, is_missing};
use super::{codec, health};

/// The largest fence that a client has seen, over all keys.
#[derive(Debug, Default)]
pub(super) struct SeenFences(AtomicU64);

impl SeenFences {
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

    pub(super) fn largest(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes the library known to all nodes of a cluster, as far as they can be reached. No call waits
/// for it: each call has the deadline of the connection, and a node that does not know the library
/// is told when it is needed.
pub(super) fn load(mut connection: Connection, library: &Library) {
    if !library.runs_as_scripts() {
        tokio::spawn(async move { connection.send(&library::load()).await });
    }
}

/// Raises the counter that all keys share to what was seen, which also makes the library known, and
/// asks which incarnation of the server answers. The first renewal of a short lease has no time for
/// a second round trip, and a release whose caller does not poll it again must not need one. The
/// incarnation is none if the server does not let this user ask.
pub(super) async fn prepare(
    mut connection: Connection,
    library: &Library,
    counter: Option<&str>,
    seen: &SeenFences,
) -> Result<Option<String>, RedisError> {
    let (mut keys, mut args) = (Words::default(), Words::default());
    keys.push(counter.unwrap_or_default());
    args.push(seen.largest());
    let raise = LibraryCall { verb: LibraryVerb::Raise, keys, args };
    let mut cmds = Pipeline::with_capacity(2);
    cmds.cmd("INFO").arg("server").add_command(library.first_command(&raise));
    let mut answers = connection.send_all(&cmds).await?.into_iter();
    let info = answers.next().and_then(Result::ok);
    let mut raised = answers.next().unwrap_or(Ok(Value::Nil));
    if is_missing(&raised) {
        let again = library.call_again(&mut connection, &[&raise]).await?;
        raised = again.into_iter().next().unwrap_or(Ok(Value::Nil));
    }
    // A counter that may not be raised matters: no call may use this connection, unless each call
    // will be denied, too. The library is loaded when it is needed.
    if seen.largest() > 0
        && let Err(error) = raised
        && !is_denied(&error)
    {
        return Err(error);
    }
    let incarnation =
        info.and_then(|info| Some(health::of(&codec::as_str(&info).ok()?).incarnation));
    Ok(incarnation.filter(|incarnation| !incarnation.is_empty()))
}
