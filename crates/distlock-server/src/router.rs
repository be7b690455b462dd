//! Which path leads where.
//!
//! The content security policy of [`door`](crate::door) allows nothing inline and nothing from
//! elsewhere, so the scripts and styles of pages are files of their own.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post, put};

use crate::compat::{dapr, terraform};
use crate::problem::Problem;
use crate::state::App;
use crate::{dashboard, door, events, health, leases, list, metrics, openapi, patterns, summary};

/// All routes.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/api/locks/{pattern}/{resource}", post(patterns::run))
        .route("/api/v1/locks", get(list::list))
        .route("/api/v1/locks/{key}", get(list::one))
        .route("/api/v1/locks/{key}/leases", post(leases::create))
        .route("/api/v1/locks/{key}/lease", put(leases::renew).delete(leases::release))
        .route("/api/v1/locks/{key}/history", get(list::history))
        .route("/api/v1/locks/{key}/break", post(list::break_hold))
        .route("/api/v1/events", get(events::events))
        .route("/api/v1/summary", get(summary::summary))
        .route("/api/openapi.json", get(openapi::document))
        .route("/api/docs", get(openapi::reader))
        .route("/api/docs.js", get(openapi::reader_script))
        .route("/api/docs.css", get(openapi::reader_style))
        .route("/api/compat/terraform/{name}", any(terraform::terraform))
        .route("/v1.0-alpha1/lock/{store}", post(dapr::lock))
        .route("/v1.0-alpha1/unlock/{store}", post(dapr::unlock))
        .route("/v1.0/metadata", get(dapr::metadata))
        .merge(dashboard::routes())
        .fallback(async || Problem::not_found())
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "Method not allowed")
        })
        .layer(from_fn_with_state(Arc::clone(app), door::door))
        .with_state(Arc::clone(app))
}
