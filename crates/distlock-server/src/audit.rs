//! Who did what that an operator may ask about later: breaks, unlocks, deletions, refused logins.
//!
//! What concerns a key goes into the journal and into the log; what concerns none, into the log.

use distlock::{Error, Key, Locks};

use crate::auth::Caller;
use crate::state::App;

/// The target of these lines in the log.
pub(crate) const AUDIT: &str = "distlock::audit";

/// The locks under the name of a caller, for what the caller does as an operator.
pub(crate) fn operator(app: &App, caller: &Caller, reason: &str) -> Result<Locks, Error> {
    app.locks.configure(|o| o.owner(caller.name()).reason(reason))
}

/// Records that a caller did something that concerns a key.
pub(crate) fn record(app: &App, caller: &Caller, key: &Key, what: &'static str) {
    tracing::info!(target: AUDIT, %key, by = caller.name(), what, "recorded");
    let noted = app
        .locks
        .configure(|o| o.owner(caller.name()))
        .and_then(|locks| locks.note_action(key, what));
    if let Err(error) = noted {
        tracing::warn!(target: AUDIT, %key, what, %error, "not recorded in the journal");
    }
}
