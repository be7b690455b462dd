//! Which path leads where.
//!
//! The dashboard is a merge away: its routes (`/` and its static files) belong into
//! `dashboard/mod.rs` as `pub(crate) fn routes() -> Router<Arc<App>>`, with files embedded by
//! `include_str!`. The content security policy of [`door`](crate::door) allows nothing inline and
//! nothing from elsewhere, so scripts and styles are files of their own.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};

use crate::problem::Problem;
use crate::state::App;
use crate::{door, health, leases, list, metrics, openapi, patterns, summary};

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
        .fallback(async || not_found())
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "Method not allowed")
        })
        .layer(from_fn_with_state(Arc::clone(app), door::door))
        .with_state(Arc::clone(app))
}

fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not-found", "Not Found")
}
