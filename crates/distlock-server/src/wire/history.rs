//! The past of the locks. Its entries are written by the library; what stands here beside them
//! describes them to those who read the OpenAPI document.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The last visits to a key, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = History)]
pub(crate) struct HistoryBody {
    pub(crate) key: String,
    #[schema(value_type = Vec<HoldRecordBody>)]
    pub(crate) visits: Vec<distlock::HoldRecord>,
}

/// Who waited and held, for how long, and how it ended.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[allow(dead_code, reason = "it stands in the description of the API only")]
#[schema(as = Visit)]
pub(crate) struct HoldRecordBody {
    key: String,
    owner: String,
    #[schema(nullable = false)]
    reason: Option<String>,
    /// `exclusive`, `shared`, or permits as `2/5`.
    mode: String,
    #[schema(nullable = false)]
    fence: Option<u64>,
    /// `waiting`, `held`, `released`, `lost`, `broken`, `gave-up` or `vanished`.
    state: String,
    /// Who broke it.
    #[schema(nullable = false)]
    by: Option<String>,
    #[schema(nullable = false)]
    why: Option<String>,
    began_at_ms: u64,
    #[schema(nullable = false)]
    granted_at_ms: Option<u64>,
    #[schema(nullable = false)]
    ended_at_ms: Option<u64>,
    #[schema(nullable = false)]
    waited_ms: Option<u64>,
    #[schema(nullable = false)]
    held_ms: Option<u64>,
    at_risk: bool,
}

/// How much of the past.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// How many visits at most. Default 50.
    #[param(minimum = 1, maximum = 200)]
    pub(crate) limit: Option<usize>,
}

/// Which events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only of keys that begin with this.
    pub(crate) prefix: String,
}

/// One server-sent event: its id, its name and its data.
pub(crate) fn event(entry: &distlock::JournalEntry) -> String {
    // The data are one line: JSON escapes what would end it.
    let data = serde_json::to_string(entry).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", entry.id, entry.note.what.name())
}
