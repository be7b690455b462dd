//! The shapes of Dapr's lock API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a lock of Dapr's is asked for with.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = DaprLock)]
pub(crate) struct DaprLock {
    #[schema(required, min_length = 1, max_length = 400)]
    pub(crate) resource_id: String,
    #[schema(required, min_length = 1)]
    pub(crate) lock_owner: String,
    #[schema(required, minimum = 1)]
    pub(crate) expiry_in_seconds: i32,
}

/// What a lock of Dapr's is released with.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = DaprUnlock)]
pub(crate) struct DaprUnlock {
    #[schema(required, min_length = 1, max_length = 400)]
    pub(crate) resource_id: String,
    #[schema(required, min_length = 1)]
    pub(crate) lock_owner: String,
}

/// Whether the lock was granted.
#[derive(Serialize, ToSchema)]
#[schema(as = DaprLocked)]
pub(crate) struct DaprLocked {
    pub(crate) success: bool,
}

/// How an unlock went.
#[derive(Serialize, ToSchema)]
#[schema(as = DaprUnlocked)]
pub(crate) struct DaprUnlocked {
    /// 0 released, 1 there is no such lock, 2 it belongs to others, 3 it failed.
    #[schema(maximum = 3)]
    pub(crate) status: u8,
}

/// A refusal, as Dapr says it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DaprFailed)]
pub(crate) struct DaprFailed {
    pub(crate) error_code: &'static str,
    pub(crate) message: String,
}

/// The lock stores that there are.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DaprMetadata)]
pub(crate) struct DaprMetadata {
    id: &'static str,
    runtime_version: &'static str,
    components: Vec<DaprComponent>,
}

/// One lock store.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DaprComponent)]
pub(crate) struct DaprComponent {
    name: String,
    r#type: &'static str,
    version: &'static str,
    #[schema(value_type = Vec<String>)]
    capabilities: [&'static str; 0],
}

impl DaprMetadata {
    pub(crate) fn new(stores: &[String]) -> Self {
        let component = |name: &String| DaprComponent {
            name: name.clone(),
            r#type: "lock.distlock",
            version: "v1",
            capabilities: [],
        };
        let components = stores.iter().map(component).collect();
        Self { id: "distlock", runtime_version: env!("CARGO_PKG_VERSION"), components }
    }
}
