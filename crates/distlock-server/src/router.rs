//! Which path leads where.
//!
//! The content security policy of [`door`](crate::door) allows nothing inline and nothing from
//! elsewhere, so the scripts and styles of pages are files of their own.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};

use crate::problem::Problem;
use crate::state::App;
use crate::{dashboard, door, health, leases, list, metrics, openapi, patterns, summary};

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
        .route("/api/v1/locks/{key}/break", post(list::break_hold))
        .route("/api/v1/summary", get(summary::summary))
        .route("/api/openapi.json", get(openapi::document))
        .merge(dashboard::routes())
        .fallback(async || Problem::not_found())
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "Method not allowed")
        })
        .layer(from_fn_with_state(Arc::clone(app), door::door))
        .with_state(Arc::clone(app))
}
