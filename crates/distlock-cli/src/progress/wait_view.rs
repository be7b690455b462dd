//! One look at a key that is waited for.

use std::time::Duration;

use distlock::{Holder, Label, Snapshot};
use serde_json::{Value, json};

use crate::report::millis;

/// What is known about a wait.
#[derive(Clone, Debug)]
pub(crate) struct WaitView {
    pub(crate) key: String,
    /// What the store says, or why it says nothing.
    pub(crate) seen: Result<Snapshot, String>,
    pub(crate) ahead: Option<u64>,
    /// How long until it is our turn, as far as the past tells.
    pub(crate) left: Option<Duration>,
    pub(crate) waited: Duration,
    pub(crate) max_wait: Option<Duration>,
}

impl WaitView {
    /// The holder that keeps us waiting: the one whose lease ends last.
    pub(crate) fn holder(&self) -> Option<&Holder> {
        self.seen.as_ref().ok().and_then(|snapshot| snapshot.holders.first())
    }

    /// Our place and how many there are, from 1. What was heard and what was seen are of different
    /// moments, so neither may contradict the other.
    pub(crate) fn position(&self) -> Option<(u64, u64)> {
        let place = self.ahead? + 1;
        let all = self.seen.as_ref().ok().map_or(place, |snapshot| snapshot.waiters_total);
        Some((place, all.max(place)))
    }

    /// The same a little later, as far as clocks go.
    pub(crate) fn after(&self, while_: Duration) -> Self {
        let mut later = self.clone();
        later.waited += while_;
        later.left = later.left.and_then(|left| left.checked_sub(while_));
        if let Ok(snapshot) = &mut later.seen {
            for holder in &mut snapshot.holders {
                holder.held_for += while_;
                holder.expires_in = holder.expires_in.map(|left| left.saturating_sub(while_));
            }
        }
        later
    }

    /// As members of an event.
    pub(crate) fn event(&self) -> Value {
        let holder = self.holder().map(|holder| {
            json!({
                "owner": holder.owner.as_str(),
                "reason": holder.reason.as_ref().map(Label::as_str),
                "fence": holder.fence,
                "heldMs": millis(holder.held_for),
                "expiresInMs": holder.expires_in.map(millis),
            })
        });
        let position = self.position();
        json!({
            "key": self.key,
            "holder": holder,
            "position": position.map(|(place, _)| place),
            "waiters": position.map(|(_, all)| all),
            "aboutLeftMs": self.left.map(millis),
            "waitedMs": millis(self.waited),
            "maxWaitMs": self.max_wait.map(millis),
            "error": self.seen.as_ref().err(),
        })
    }
}
