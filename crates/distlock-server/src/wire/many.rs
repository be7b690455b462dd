//! Leases of several keys in one request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::LeaseBody;

/// Which keys are asked for, all or none. Without `keys` nothing is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ManyLeasesRequest {
    /// One to 64 keys, in any sequence.
    #[schema(min_items = 1, max_items = 64)]
    pub(crate) keys: Vec<String>,
    /// Who asks, for people to read. It decides nothing.
    #[schema(max_length = 256)]
    pub(crate) owner: Option<String>,
    /// What for, for people to read.
    #[schema(max_length = 256)]
    pub(crate) reason: Option<String>,
    /// How long each lease lasts unless it is renewed. Default 30 s.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) ttl_ms: Option<u64>,
    /// How long to wait for all of them together. Default: not at all.
    #[schema(minimum = 0, maximum = 55_000)]
    pub(crate) wait_ms: Option<u64>,
}

/// The leases that were granted together. Each is renewed and released by itself.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ManyLeases)]
pub(crate) struct ManyLeasesBody {
    /// Sorted by key.
    pub(crate) leases: Vec<LeaseBody>,
    pub(crate) waited_ms: u64,
}
