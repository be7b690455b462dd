//! Who leads, and who is next.

use distlock::{Key, Leader, Waiter};
use serde::Serialize;
use utoipa::ToSchema;

use super::millis;

/// An election as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Election)]
pub(crate) struct ElectionBody {
    pub(crate) key: String,
    /// Absent while there is no leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    leader: Option<LeaderBody>,
    /// The names of the candidates in line, the next leader first; at most 100.
    standby: Vec<String>,
}

/// A leader as others may see it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Leader)]
pub(crate) struct LeaderBody {
    /// Text of the leader's choice: show it, never run it.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Larger than that of every earlier leader. Below 2^53.
    term: u64,
    /// Since when it leads.
    led_ms: u64,
}

impl ElectionBody {
    pub(crate) fn new(key: &Key, leader: Option<&Leader>, standby: &[Waiter]) -> Self {
        let standby = standby.iter().map(|waiter| waiter.owner.to_string()).collect();
        Self { key: key.to_string(), leader: leader.map(LeaderBody::from), standby }
    }
}

impl From<&Leader> for LeaderBody {
    fn from(leader: &Leader) -> Self {
        Self {
            name: leader.name.to_string(),
            reason: leader.reason.as_ref().map(ToString::to_string),
            term: leader.term,
            led_ms: millis(leader.led_for),
        }
    }
}

/// A server-sent event about a leader. JSON has no line breaks of its own.
pub(crate) fn leader_event(leader: &Leader) -> String {
    let data = serde_json::to_string(&LeaderBody::from(leader)).unwrap_or_default();
    format!("event: leader\nid: {}\ndata: {data}\n\n", leader.term)
}
