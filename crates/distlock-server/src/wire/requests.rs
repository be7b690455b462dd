//! What clients send. An unknown member is refused: it is a mistake of the client.

use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{ModeBody, OrderBody};

/// What a lease is asked for with. All members are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct LeaseRequest {
    /// Who asks, for people to read. It decides nothing.
    #[schema(max_length = 256)]
    pub(crate) owner: Option<String>,
    /// What for, for people to read.
    #[schema(max_length = 256)]
    pub(crate) reason: Option<String>,
    /// How long the lease lasts unless it is renewed. Default 30 s.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) ttl_ms: Option<u64>,
    /// How long to wait in the queue. Default: not at all.
    #[schema(minimum = 0, maximum = 55_000)]
    pub(crate) wait_ms: Option<u64>,
    /// Default `exclusive`, or `permits` with a `limit`.
    pub(crate) mode: Option<ModeBody>,
    /// Take this many of `limit` permits. Default 1.
    #[schema(minimum = 1)]
    pub(crate) permits: Option<u32>,
    /// At most so many permits at once: a semaphore.
    #[schema(minimum = 1)]
    pub(crate) limit: Option<u32>,
    /// A secret of the client's own, 32 hexadecimal digits from a good source of chance. Repeating
    /// the request with it gets the same lease.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    pub(crate) lease_id: Option<String>,
    /// Keep the place in the queue when `waitMs` is over: 202 instead of 409. Needs a `leaseId`.
    pub(crate) keep_place: bool,
    /// Who goes first. All users of a key must agree while it is in use. Default `fifo`.
    pub(crate) order: Option<OrderBody>,
}

/// What a lease is renewed with.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct RenewRequest {
    /// How long the lease lasts from now on. Default: the ttl that the lease has. Never shortens
    /// what is left.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) ttl_ms: Option<u64>,
}

/// What an operation under a pattern is asked for with. All members are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PatternRequest {
    /// How long the operation holds the lock. Default 15 s.
    #[schema(minimum = 0, maximum = 600_000)]
    pub(crate) duration_ms: Option<u64>,
    /// The lease under it. Default 25 s.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) ttl_ms: Option<u64>,
    /// How long to wait for the lock. The default depends on the pattern.
    #[schema(minimum = 0, maximum = 55_000)]
    pub(crate) wait_ms: Option<u64>,
    #[schema(max_length = 256)]
    pub(crate) owner: Option<String>,
}

/// An operator takes a hold away.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BreakRequest {
    /// The fence that the holder was seen with, so that a newer holder is never hit.
    pub(crate) fence: u64,
    /// Why, for the record.
    #[schema(min_length = 1, max_length = 256)]
    pub(crate) reason: String,
}

/// How a Terraform state is locked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TerraformQuery {
    /// How long LOCK waits, such as `20s`.
    pub(crate) wait: Option<String>,
    /// How long the lock lasts without an UNLOCK, such as `2h`.
    pub(crate) ttl: Option<String>,
    /// Terraform may say it again.
    #[serde(rename = "ID")]
    #[allow(dead_code, reason = "the body says it as well, and counts")]
    pub(crate) id: Option<String>,
}

/// Under which lock a Terraform state is written or deleted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct StateQuery {
    /// The `ID` of the lock, as LOCK was sent it.
    #[serde(rename = "ID")]
    #[param(nullable = false)]
    pub(crate) id: Option<String>,
    /// Of no meaning here: one address may serve LOCK and the state.
    #[serde(rename = "wait")]
    #[param(nullable = false)]
    _wait: Option<String>,
    /// Of no meaning here.
    #[serde(rename = "ttl")]
    #[param(nullable = false)]
    _ttl: Option<String>,
}

/// Which keys to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only keys that begin with this.
    pub(crate) prefix: String,
    /// Where the page begins: `next` of the page before.
    pub(crate) cursor: Option<String>,
}
