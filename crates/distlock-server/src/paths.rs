//! The paths of the HTTP API, each written once: for the router and for the OpenAPI document.

pub(crate) const HEALTH_PATH: &str = "/health";
pub(crate) const LIVEZ_PATH: &str = "/livez";
pub(crate) const READYZ_PATH: &str = "/readyz";
pub(crate) const METRICS_PATH: &str = "/metrics";
pub(crate) const PATTERN_PATH: &str = "/api/locks/{pattern}/{resourceId}";
pub(crate) const LOCKS_PATH: &str = "/api/v1/locks";
pub(crate) const LOCK_PATH: &str = "/api/v1/locks/{key}";
pub(crate) const LEASES_PATH: &str = "/api/v1/locks/{key}/leases";
pub(crate) const LEASE_PATH: &str = "/api/v1/locks/{key}/lease";
pub(crate) const LEADER_PATH: &str = "/api/v1/locks/{key}/leader";
pub(crate) const MANY_LEASES_PATH: &str = "/api/v1/leases";
pub(crate) const HISTORY_PATH: &str = "/api/v1/locks/{key}/history";
pub(crate) const BREAK_PATH: &str = "/api/v1/locks/{key}/break";
pub(crate) const EVENTS_PATH: &str = "/api/v1/events";
pub(crate) const SUMMARY_PATH: &str = "/api/v1/summary";
pub(crate) const OPENAPI_PATH: &str = "/api/openapi.json";
pub(crate) const TERRAFORM_PATH: &str = "/api/compat/terraform/{name}";
pub(crate) const DAPR_LOCK_PATH: &str = "/v1.0-alpha1/lock/{store}";
pub(crate) const DAPR_UNLOCK_PATH: &str = "/v1.0-alpha1/unlock/{store}";
pub(crate) const DAPR_METADATA_PATH: &str = "/v1.0/metadata";
pub(crate) const DOCS_PATH: &str = "/api/docs";
pub(crate) const DOCS_SCRIPT_PATH: &str = "/api/docs.js";
pub(crate) const DOCS_STYLE_PATH: &str = "/api/docs.css";
