//! The shapes of everything that is read and written as JSON. No other module knows them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) mod dapr;
mod election;
mod history;
mod many;
mod requests;
mod summary;
pub(crate) mod terraform;

pub(crate) use election::*;
pub(crate) use history::*;
pub(crate) use many::*;
pub(crate) use requests::*;
pub(crate) use summary::*;

/// Milliseconds as they stand in JSON.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A lease that was granted, renewed or found again.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Lease)]
pub(crate) struct LeaseBody {
    /// The secret that renews and releases the lease.
    pub(crate) lease_id: String,
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<ModeBody>,
    /// How many permits of a semaphore it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) permits: Option<u32>,
    /// How many permits there are, as this lease counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) limit: Option<u32>,
    /// The fencing token: larger than that of every earlier holder of the key. Below 2^53.
    pub(crate) fence: u64,
    pub(crate) ttl_ms: u64,
    /// How long the lease is sure to last.
    pub(crate) remaining_ms: u64,
    /// When to renew it: early enough for two more tries.
    pub(crate) renew_after_ms: u64,
    pub(crate) waited_ms: u64,
}

/// A place in the queue that was kept. Repeat the request with the same lease id to go on waiting.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Ticket)]
pub(crate) struct TicketBody {
    pub(crate) lease_id: String,
    pub(crate) key: String,
    /// The number of the place.
    pub(crate) ticket: u64,
    /// 1 is next.
    pub(crate) position: u64,
    /// When the first holder's lease ends unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    /// The place is lost unless the request is repeated within this time.
    pub(crate) come_back_within_ms: u64,
    pub(crate) waited_ms: u64,
}

/// A holder as others may see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Holder)]
pub(crate) struct HolderBody {
    /// Text of the holder's choice: show it, never run it.
    pub(crate) owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    pub(crate) fence: u64,
    pub(crate) mode: ModeBody,
    /// How much of the capacity it holds.
    pub(crate) weight: u32,
    /// How many permits it holds, in the mode `permits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) permits: Option<u32>,
    /// How many permits there are, as this holder counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    pub(crate) held_ms: u64,
    /// When its lease ends unless renewed; absent for a foreign holder that never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_ms: Option<u64>,
    /// How long its lease is when it is fresh, as far as this replica has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
}

impl From<distlock::Holder> for HolderBody {
    fn from(holder: distlock::Holder) -> Self {
        let (mode, permits, limit) = ModeBody::read(holder.mode());
        Self {
            permits,
            limit,
            owner: holder.owner.to_string(),
            reason: holder.reason.map(|reason| reason.to_string()),
            fence: holder.fence,
            mode,
            weight: holder.weight,
            group: holder.group.map(|group| group.to_string()),
            held_ms: millis(holder.held_for),
            remaining_ms: holder.expires_in.map(millis),
            ttl_ms: None,
        }
    }
}

/// A waiter as others may see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Waiter)]
pub(crate) struct WaiterBody {
    pub(crate) owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// 1 is next.
    pub(crate) position: u64,
    pub(crate) mode: ModeBody,
    pub(crate) weight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    pub(crate) waited_ms: u64,
}

/// A key as it stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Lock)]
pub(crate) struct LockBody {
    pub(crate) key: String,
    pub(crate) state: LockState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<OrderBody>,
    /// The holders, at most 100, the one whose lease ends last first.
    pub(crate) holders: Vec<HolderBody>,
    pub(crate) holders_total: u64,
    /// The first in the queue, at most 100.
    pub(crate) waiters: Vec<WaiterBody>,
    pub(crate) waiters_total: u64,
}

impl From<distlock::Snapshot> for LockBody {
    fn from(seen: distlock::Snapshot) -> Self {
        let waiter = |(index, waiter): (usize, distlock::Waiter)| WaiterBody {
            owner: waiter.owner.to_string(),
            reason: waiter.reason.map(|reason| reason.to_string()),
            position: index as u64 + 1,
            mode: if waiter.exclusive { ModeBody::Exclusive } else { ModeBody::Shared },
            weight: waiter.weight,
            group: waiter.group.map(|group| group.to_string()),
            waited_ms: millis(waiter.waited),
        };
        let state = match (seen.holders_total, seen.waiters_total) {
            (0, 0) => LockState::Free,
            (_, 0) => LockState::Held,
            _ => LockState::Contended,
        };
        Self {
            key: seen.key.to_string(),
            state,
            order: seen.order.and_then(OrderBody::from_core),
            holders: seen.holders.into_iter().map(HolderBody::from).collect(),
            holders_total: seen.holders_total,
            waiters: seen.waiters.into_iter().enumerate().map(waiter).collect(),
            waiters_total: seen.waiters_total,
        }
    }
}

/// Whether anybody holds a key or waits for it.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LockState {
    Free,
    Held,
    Contended,
}

/// One page of the keys that are held or waited for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LockPage)]
pub(crate) struct LockPageBody {
    pub(crate) locks: Vec<LockBody>,
    /// Hand it back to get the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// The result of an operation that ran under a pattern.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Done)]
pub(crate) struct OperationBody {
    pub(crate) success: bool,
    pub(crate) resource_id: String,
    pub(crate) duration_ms: u64,
    pub(crate) fence: u64,
}

/// The service is alive.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alive {
    pub(crate) status: &'static str,
    pub(crate) service: &'static str,
}

/// Whether the service can do its work.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ready {
    pub(crate) status: &'static str,
    pub(crate) checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    /// What an operator should fix. Only for callers with a token.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// What went wrong: RFC 9457, with members of our own.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemBody {
    /// `urn:distlock:` and a word that never changes.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) title: &'static str,
    pub(crate) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// The title again, for clients of older services.
    pub(crate) error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    /// How many wait ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ahead: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<HolderBody>,
}

impl ProblemBody {
    pub(crate) fn new(status: u16, kind: &str, title: &'static str) -> Self {
        Self {
            kind: format!("urn:distlock:{kind}"),
            title,
            status,
            detail: None,
            error: title,
            message: None,
            retry_after_ms: None,
            ahead: None,
            holder: None,
        }
    }
}

/// The type of a problem's body.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// How any request may be refused.
#[derive(Debug, utoipa::IntoResponses)]
#[allow(dead_code, reason = "it stands in the description of the API only")]
pub(crate) enum Refusals {
    /// The request was refused.
    #[response(status = "4XX", content_type = "application/problem+json")]
    Client(ProblemBody),
    /// It is not possible, or not now.
    #[response(status = "5XX", content_type = "application/problem+json")]
    Server(ProblemBody),
}

/// How a key is held.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Mode)]
pub(crate) enum ModeBody {
    /// Alone.
    #[default]
    Exclusive,
    /// With other shared ones.
    Shared,
    /// Some permits of a semaphore.
    Permits,
}

impl ModeBody {
    /// The mode, and the permits and the limit that belong to it.
    pub(crate) fn read(mode: distlock::Mode) -> (Self, Option<u32>, Option<u32>) {
        match mode {
            distlock::Mode::Permits { weight, capacity } => {
                (Self::Permits, Some(weight), Some(capacity))
            }
            distlock::Mode::Shared => (Self::Shared, None, None),
            _ => (Self::Exclusive, None, None),
        }
    }
}

/// Who goes first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = Order)]
pub(crate) enum OrderBody {
    Fifo,
    PreferWriters,
    PreferReaders,
}

impl OrderBody {
    fn from_core(order: distlock::Order) -> Option<Self> {
        match order {
            distlock::Order::Fifo => Some(Self::Fifo),
            distlock::Order::PreferWriters => Some(Self::PreferWriters),
            distlock::Order::PreferReaders => Some(Self::PreferReaders),
            _ => None,
        }
    }

    pub(crate) fn to_core(self) -> distlock::Order {
        match self {
            Self::Fifo => distlock::Order::Fifo,
            Self::PreferWriters => distlock::Order::PreferWriters,
            Self::PreferReaders => distlock::Order::PreferReaders,
        }
    }
}
