//! The shapes of Dapr's lock API.

use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct Lock {
    pub(crate) resource_id: String,
    pub(crate) lock_owner: String,
    pub(crate) expiry_in_seconds: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct Unlock {
    pub(crate) resource_id: String,
    pub(crate) lock_owner: String,
}

#[derive(Serialize)]
pub(crate) struct Locked {
    pub(crate) success: bool,
}

#[derive(Serialize)]
pub(crate) struct Unlocked {
    pub(crate) status: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failed {
    pub(crate) error_code: &'static str,
    pub(crate) message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    id: &'static str,
    runtime_version: &'static str,
    components: Vec<Component>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Component {
    name: String,
    r#type: &'static str,
    version: &'static str,
    capabilities: [&'static str; 0],
}

impl Metadata {
    pub(crate) fn new(stores: &[String]) -> Self {
        let component = |name: &String| Component {
            name: name.clone(),
            r#type: "lock.distlock",
            version: "v1",
            capabilities: [],
        };
        let components = stores.iter().map(component).collect();
        Self { id: "distlock", runtime_version: env!("CARGO_PKG_VERSION"), components }
    }
}
