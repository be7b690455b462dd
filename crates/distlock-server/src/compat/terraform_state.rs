//! The contents of Terraform's states: read, written and deleted under their own scope.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use distlock::Error;

use super::states::{Right, States, Unkept};
use super::terraform::Workspace;
use super::transfers::Direction;
use crate::audit;
use crate::auth::Caller;
use crate::body::QueryOf;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::{PROBLEM, ProblemBody, Refusals, StateQuery};

/// Reads a Terraform state. Needs the scope `state:<prefix>`.
#[utoipa::path(get, path = crate::paths::TERRAFORM_PATH, tag = "terraform",
    params(("name" = String, Path, description = "the name of the state, percent-encoded",
        max_length = 500)),
    responses(
        (status = 200, description = "the state", body = serde_json::Value),
        (status = 404, description = "there is no such state", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    QueryOf(_query): QueryOf<StateQuery>,
) -> Result<Response, Problem> {
    let workspace = Workspace::new(app, caller, name)?;
    workspace.caller.may_use_state(workspace.key.as_str())?;
    let states = workspace.states()?;
    let transfer = workspace.app.transfers.begin(&workspace.caller, Direction::Down)?;
    match states.get(workspace.name.clone()).await.map_err(|error| unkept(&error))? {
        Some(state) => state.send(transfer),
        None => Err(Problem::not_found()),
    }
}

/// Writes a Terraform state, for the holder of its lock alone. Needs the scopes `lock:<prefix>` and
/// `state:<prefix>`.
#[utoipa::path(post, path = crate::paths::TERRAFORM_PATH, tag = "terraform",
    params(("name" = String, Path, description = "the name of the state, percent-encoded",
        max_length = 500), StateQuery),
    request_body(content = serde_json::Value, description = "the state: at most 64 MiB"),
    responses(
        (status = 200, description = "written"),
        (status = 409, description = "the state is not locked under this ID", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn write(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    QueryOf(query): QueryOf<StateQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let workspace = Workspace::new(app, caller, name)?;
    workspace.caller.may_lock(workspace.key.as_str())?;
    workspace.caller.may_use_state(workspace.key.as_str())?;
    let states = workspace.states()?;
    let _transfer = workspace.app.transfers.begin(&workspace.caller, Direction::Up)?;
    let spool = states.spool().await.map_err(|error| unkept(&error))?;
    let body = spool.receive(request).await?;
    let (fence, guard) = match query.id.as_deref() {
        Some(id) => (workspace.lease(id).await?.ok_or_else(not_the_holder)?.fence(), None),
        // Without a lock a state is written only while it is free.
        None => match workspace.app.locks.mutex(&workspace.key)?.try_lock().await {
            Ok(guard) => (guard.fence(), Some(guard)),
            Err(Error::Held { .. }) => return Err(not_the_holder()),
            Err(error) => return Err(error.into()),
        },
    };
    let name = workspace.name.clone();
    let written = states.put(name, fence, body).await.map_err(|error| unkept(&error))?;
    if let Some(guard) = guard {
        guard.release().await?;
    }
    if written { Ok(StatusCode::OK.into_response()) } else { Err(not_the_holder()) }
}

/// Deletes a Terraform state, for the holder of its lock or for an operator. Needs the scope
/// `state:<prefix>` and the lock's `ID`, or the scope `admin`.
#[utoipa::path(delete, path = crate::paths::TERRAFORM_PATH, tag = "terraform",
    params(("name" = String, Path, description = "the name of the state, percent-encoded",
        max_length = 500), StateQuery),
    responses(
        (status = 200, description = "deleted, or there was none"),
        (status = 409, description = "the state is not locked under this ID", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    QueryOf(query): QueryOf<StateQuery>,
) -> Result<Response, Problem> {
    let workspace = Workspace::new(app, caller, name)?;
    workspace.caller.may_use_state(workspace.key.as_str())?;
    let states = workspace.states()?;
    let right = match query.id.as_deref() {
        Some(id) => {
            workspace.caller.may_lock(workspace.key.as_str())?;
            Right::Fence(workspace.lease(id).await?.ok_or_else(not_the_holder)?.fence())
        }
        None => {
            workspace.caller.may_break()?;
            Right::Operator
        }
    };
    let name = workspace.name.clone();
    let deleted = states.delete(name, right).await.map_err(|error| unkept(&error))?;
    if !deleted {
        return Err(not_the_holder());
    }
    audit::record(&workspace.app, &workspace.caller, &workspace.key, "state-deleted");
    Ok(StatusCode::OK.into_response())
}

impl Workspace {
    fn states(&self) -> Result<&States, Problem> {
        self.app.states.as_ref().ok_or_else(|| {
            let status = StatusCode::NOT_IMPLEMENTED;
            let problem = Problem::new(status, "unsupported", "Not supported");
            problem.detail("this service keeps no states, only locks (--terraform-state)")
        })
    }
}

fn not_the_holder() -> Problem {
    let problem = Problem::new(StatusCode::CONFLICT, "not-the-holder", "Not the holder");
    problem.detail("the state is not locked under this ID: it was not changed")
}

fn unkept(error: &Unkept) -> Problem {
    tracing::error!(%error, "a Terraform state could not be kept");
    Problem::unavailable()
}
