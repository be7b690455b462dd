//! Whether the service is alive, and whether it can do its work.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::state::App;
use crate::wire::{Alive, Check, Ready};

/// A backend that does not answer within this time is not ready.
const PROBE_MAX: Duration = Duration::from_secs(3);

/// Says that the service is alive, whatever the backend does.
#[utoipa::path(get, path = "/health", tag = "health",
    responses((status = 200, description = "alive", body = Alive)))]
pub(crate) async fn health() -> Json<Alive> {
    Json(Alive { status: "ok", service: "distributed-lock" })
}

/// Says that the process turns.
#[utoipa::path(get, path = "/livez", tag = "health",
    responses((status = 200, description = "alive", body = String, content_type = "text/plain")))]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Says whether the backend answers.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "ready", body = Ready),
        (status = 503, description = "not ready", body = Ready)))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let probe = tokio::time::timeout(PROBE_MAX, app.locks.probe()).await;
    let (ok, warnings) = match probe {
        Ok(Ok(health)) => (true, health.warnings),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the backend is not ready");
            (false, vec!["the backend cannot be reached: see the log".to_owned()])
        }
        Err(_) => (false, vec!["the backend does not answer in time".to_owned()]),
    };
    let stopping = app.stop.is_cancelled();
    let accepting = Check { name: "accepting", ok: !stopping, warnings: Vec::new() };
    let checks = vec![Check { name: "backend", ok, warnings }, accepting];
    let ready = ok && !stopping;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ok" } else { "unavailable" };
    (status, Json(Ready { status: word, checks })).into_response()
}
