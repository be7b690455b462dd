//! Whether the service is alive, and whether it can do its work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use distlock::Locks;
use tokio::sync::Mutex;

use crate::auth::Caller;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::{Alive, Check, Ready};

/// A backend that does not answer within this time is not ready.
const READINESS_PROBE_MAX: Duration = Duration::from_secs(3);

/// An answer that is younger than this is good enough for callers without a token.
const READINESS_FRESH: Duration = Duration::from_secs(1);

/// Says that the service is alive, whatever the backend does.
#[utoipa::path(get, path = crate::paths::HEALTH_PATH, tag = "health",
    responses((status = 200, description = "alive", body = Alive)))]
pub(crate) async fn health() -> Json<Alive> {
    Json(Alive { status: "ok", service: "distributed-lock" })
}

/// Says that the process turns.
#[utoipa::path(get, path = crate::paths::LIVEZ_PATH, tag = "health",
    responses((status = 200, description = "alive", body = String, content_type = "text/plain")))]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Says whether the stores answer. Callers without a token get an answer that is up to a second
/// old and has no details.
#[utoipa::path(get, path = crate::paths::READYZ_PATH, tag = "health",
    responses(
        (status = 200, description = "ready", body = Ready),
        (status = 503, description = "not ready", body = Ready)))]
pub(crate) async fn readyz(
    State(app): State<Arc<App>>,
    caller: Result<Caller, Problem>,
) -> Response {
    let known = caller.is_ok_and(|caller| caller.has_token() && caller.may_read().is_ok());
    let mut checks = match known {
        true => probe(&app).await,
        false => app.readiness.checks(&app).await,
    };
    let stopping = app.stop.is_cancelled();
    checks.push(Check { name: "accepting", ok: !stopping, warnings: Vec::new() });
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ok" } else { "unavailable" };
    (status, Json(Ready { status: word, checks })).into_response()
}

/// The last answer of the stores. However many ask, the stores are asked once a second.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Vec<Check>)>>);

impl Readiness {
    async fn checks(&self, app: &App) -> Vec<Check> {
        let mut last = self.0.lock().await;
        if let Some((at, checks)) = &*last
            && at.elapsed() < READINESS_FRESH
        {
            return checks.clone();
        }
        let mut checks = probe(app).await;
        // They may name hosts and files.
        checks.iter_mut().for_each(|check| check.warnings.clear());
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

async fn probe(app: &App) -> Vec<Check> {
    let redlock = async {
        match &app.redlock {
            Some(redlock) => Some(check("redlock", redlock).await),
            None => None,
        }
    };
    let (backend, redlock) = tokio::join!(check("backend", &app.locks), redlock);
    [Some(backend), redlock].into_iter().flatten().collect()
}

async fn check(name: &'static str, locks: &Locks) -> Check {
    let (ok, warnings) = match tokio::time::timeout(READINESS_PROBE_MAX, locks.probe()).await {
        Ok(Ok(health)) => (true, health.warnings),
        Ok(Err(error)) => {
            tracing::warn!(store = name, %error, "a store is not ready");
            (false, vec![format!("the {name} cannot be reached: see the log")])
        }
        Err(_) => (false, vec![format!("the {name} does not answer in time")]),
    };
    Check { name, ok, warnings }
}
