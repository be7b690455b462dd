//! Looking at locks, and an operator's break.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use distlock::{Cursor, Error};

use crate::audit::{self, AUDIT};
use crate::auth::Caller;
use crate::body::{JsonBody, KeyPath, QueryOf};
use crate::problem::Problem;
use crate::state::App;
use crate::wire::{self, BreakRequest, HistoryQuery, ListQuery, PROBLEM, ProblemBody, Refusals};

/// The longest cursor that is handed on.
const CURSOR_LEN_MAX: usize = 2_048;

/// How many visits a look at the past shows.
const HISTORY_DEFAULT: usize = 50;
const HISTORY_MAX: usize = 200;

/// Lists the keys that are held or waited for, page by page.
#[utoipa::path(get, path = crate::paths::LOCKS_PATH, tag = "locks", params(ListQuery),
    responses(
        (status = 200, description = "a page", body = wire::LockPageBody),
        Refusals))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<wire::LockPageBody>, Problem> {
    caller.may_look_at(&query.prefix)?;
    if query.prefix.len() > distlock::Key::LEN_MAX {
        return Err(Problem::invalid("a prefix has at most 512 bytes"));
    }
    let cursor = match query.cursor {
        Some(cursor) if cursor.len() > CURSOR_LEN_MAX => {
            return Err(Problem::invalid("this is no cursor of ours"));
        }
        cursor => cursor.map(Cursor),
    };
    let page = app.locks.list(&query.prefix, cursor.as_ref()).await?;
    let locks = page.locks.into_iter().map(|seen| app.watcher.view(seen)).collect();
    Ok(Json(wire::LockPageBody { locks, next: page.next.map(|Cursor(next)| next) }))
}

/// Looks at one key.
#[utoipa::path(get, path = crate::paths::LOCK_PATH, tag = "locks",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512)),
    responses(
        (status = 200, description = "as it stands", body = wire::LockBody),
        Refusals))]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    KeyPath(key): KeyPath,
) -> Result<Json<wire::LockBody>, Problem> {
    caller.may_look_at(key.as_str())?;
    let seen = app.locks.inspect(&key).await?;
    Ok(Json(app.watcher.view(seen)))
}

/// Shows the last visits to a key: who waited and held, and how it ended.
#[utoipa::path(get, path = crate::paths::HISTORY_PATH, tag = "locks",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512),
        HistoryQuery),
    responses((status = 200, description = "newest first", body = wire::HistoryBody), Refusals))]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    KeyPath(key): KeyPath,
    QueryOf(query): QueryOf<HistoryQuery>,
) -> Result<Json<wire::HistoryBody>, Problem> {
    caller.may_look_at(key.as_str())?;
    let limit = query.limit.unwrap_or(HISTORY_DEFAULT);
    if !(1..=HISTORY_MAX).contains(&limit) {
        return Err(Problem::invalid(format!("limit must be between 1 and {HISTORY_MAX}")));
    }
    let visits = app.locks.history(&key, limit).await?;
    Ok(Json(wire::HistoryBody { key: key.to_string(), visits }))
}

/// Takes a hold away from the client that has it, if its fence is still the one that was seen.
#[utoipa::path(post, path = crate::paths::BREAK_PATH, tag = "locks",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512)),
    request_body = BreakRequest,
    responses(
        (status = 204, description = "broken"),
        (status = 412, description = "the fence has moved on", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn break_hold(
    State(app): State<Arc<App>>,
    caller: Caller,
    KeyPath(key): KeyPath,
    JsonBody(request): JsonBody<BreakRequest>,
) -> Result<Response, Problem> {
    caller.may_break()?;
    let (fence, by) = (request.fence, caller.name());
    let operator = audit::operator(&app, &caller, &request.reason)?;
    match operator.break_hold(&key, fence).await {
        Ok(()) => {
            app.limits.broken(&key, fence);
            let reason = request.reason;
            tracing::warn!(target: AUDIT, %key, fence, by, reason, "a hold was broken");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Err(Error::NotHeld { .. }) => {
            let status = StatusCode::PRECONDITION_FAILED;
            let problem = Problem::new(status, "fence-moved", "The fence has moved on");
            Err(problem.detail("no client holds the key under this fence any more: look again"))
        }
        Err(error) => Err(error.into()),
    }
}
