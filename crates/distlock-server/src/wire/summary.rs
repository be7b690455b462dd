//! All locks at a glance, for the cards and lines of a dashboard.

use distlock::{NodeHealth, NodeState};
use serde::Serialize;
use utoipa::ToSchema;

use super::millis;

/// All locks at a glance. At most a second old.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Summary)]
pub(crate) struct SummaryBody {
    /// When it was made, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) backend: BackendState,
    /// The quorum of the pattern `redlock`, where it is not the store of the locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) redlock: Option<BackendState>,
    /// The store can tell which keys there are. Where it cannot, as in a quorum, none are counted.
    pub(crate) listing: bool,
    /// Keys that are held.
    pub(crate) held: u64,
    /// Keys that a client waits for.
    pub(crate) contended: u64,
    /// Everybody who waits.
    pub(crate) waiting: u64,
    /// The longest wait of those who wait now; absent if no client does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_wait_ms: Option<u64>,
    /// There are more keys than were counted.
    pub(crate) truncated: bool,
    /// Holds lost in the last 24 h, as far as the journal goes; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost_24h: Option<u64>,
    /// Of twenty grants in the last hour one took longer than this; absent without a journal or
    /// without grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_p95_ms: Option<u64>,
    /// How it was lately, oldest first, at most 150 points.
    pub(crate) points: Vec<PointBody>,
}

/// One moment of the past.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Point)]
pub(crate) struct PointBody {
    pub(crate) at_ms: u64,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    /// Grants since the point before it, by the second.
    pub(crate) acquires_per_second: f64,
}

/// How the store is.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendState {
    pub(crate) ok: bool,
    /// Since when it cannot be reached, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) down_since_ms: Option<u64>,
    /// What an operator should fix.
    pub(crate) warnings: Vec<String>,
    /// Servers of a quorum that answer; absent for a single store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) nodes_up: Option<u64>,
    /// The servers of a quorum; none for a single store.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeBody>,
}

/// One server of a quorum.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Node)]
pub(crate) struct NodeBody {
    /// Its address, without secrets.
    pub(crate) name: String,
    pub(crate) state: NodeStanding,
    /// How long its votes will not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) quarantined_ms: Option<u64>,
}

/// Whether a server of a quorum answers and votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NodeStanding {
    Up,
    Down,
    /// It answers, but lost its memory: its votes do not count for a while.
    Quarantined,
}

impl From<&NodeHealth> for NodeBody {
    fn from(node: &NodeHealth) -> Self {
        let (state, left) = match node.state {
            NodeState::Up => (NodeStanding::Up, None),
            NodeState::Quarantined(left) => (NodeStanding::Quarantined, Some(left)),
            _ => (NodeStanding::Down, None),
        };
        Self { name: node.name.clone(), state, quarantined_ms: left.map(millis) }
    }
}
