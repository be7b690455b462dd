//! Leases of several keys in one request: all or none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use distlock::{Error, Key, Lease, Leases, Locks, MultiLock};

use crate::auth::Caller;
use crate::body::{self, JsonBody};
use crate::delivery::{Transit, Undo};
use crate::lease_quota::{LeaseSubject, Leased};
use crate::leases::{LEASE_TTL_DEFAULT, view};
use crate::limits::{self, span};
use crate::problem::Problem;
use crate::state::{App, Peer};
use crate::wire::{
    ManyLeasesBody, ManyLeasesRequest, ModeBody, PROBLEM, ProblemBody, Refusals, millis,
};

/// Asks for leases of several keys, all or none, waiting for up to `waitMs` for all of them. Each
/// is then renewed and released at its own key.
#[utoipa::path(post, path = crate::paths::MANY_LEASES_PATH, tag = "leases",
    request_body(content = ManyLeasesRequest, description = "`keys` is required"),
    responses(
        (status = 201, description = "all are granted", body = ManyLeasesBody),
        (status = 409, description = "one is held by others; none is granted",
            body = ProblemBody, content_type = PROBLEM),
        (status = 429, description = "too many wait", body = ProblemBody,
            content_type = PROBLEM),
        (status = 504, description = "outcome unknown", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(Peer(peer)): Extension<Peer>,
    Extension(transit): Extension<Arc<Transit>>,
    JsonBody(request): JsonBody<ManyLeasesRequest>,
) -> Result<Response, Problem> {
    let spec = ManyLeasesSpec::read(&app, &caller, request, || format!("http@{}", peer.ip()))?;
    let quota = app.limits.quota(&caller);
    let slots = spec.all.keys().iter().map(|key| quota.slot(key, None));
    let slots = slots.collect::<Result<Vec<_>, _>>()?;
    let _waiting = match spec.wait.is_zero() {
        true => None,
        false => Some(app.limits.wait(&caller)?),
    };
    let got = tokio::select! {
        biased;
        got = spec.take() => got?,
        () = app.stop.cancelled() => return Err(Problem::stopping()),
    };
    let mut leases = Vec::with_capacity(got.len());
    for ((of_key, lease), slot) in got.iter().zip(slots) {
        slot.leased(Leased::new(lease.clone(), of_key.clone()).about(spec.about.clone()));
        leases.push(view(of_key, lease, Some(spec.about.clone())));
    }
    let answer = ManyLeasesBody { leases, waited_ms: millis(spec.begun.elapsed()) };
    transit.carry(Undo::all(got, quota));
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// What a client asks for, checked.
struct ManyLeasesSpec {
    locks: Locks,
    all: MultiLock,
    about: LeaseSubject,
    wait: Duration,
    begun: Instant,
}

impl ManyLeasesSpec {
    fn read(
        app: &App,
        caller: &Caller,
        request: ManyLeasesRequest,
        owner: impl FnOnce() -> String,
    ) -> Result<Self, Problem> {
        let ttl = limits::ttl(caller, request.ttl_ms, LEASE_TTL_DEFAULT)?;
        let wait = span("waitMs", request.wait_ms, Duration::ZERO, app.waits())?;
        let keys =
            request.keys.iter().map(|key| body::key(key)).collect::<Result<Vec<Key>, _>>()?;
        for key in &keys {
            caller.may_lock(key.as_str())?;
        }
        let owner = request.owner.unwrap_or_else(owner);
        let locks = app.locks.configure(|o| {
            let o = o.ttl(ttl).max_wait(wait).owner(&owner).patience(wait.max(LEASE_TTL_DEFAULT));
            // No lease is renewed before its client does.
            let o = o.full_ttl();
            match request.reason {
                Some(reason) => o.reason(reason),
                None => o,
            }
        })?;
        let all = locks.all(keys)?;
        let mode = ModeBody::Exclusive;
        let about = LeaseSubject { owner, mode, permits: None, limit: None };
        Ok(Self { locks, all, about, wait, begun: Instant::now() })
    }

    async fn take(&self) -> Result<Vec<(Leases, Lease)>, Problem> {
        let guard = match self.all.lock().await {
            Ok(guard) => guard,
            Err(error) => return Err(self.refuse(error).await),
        };
        // Nothing is awaited from here on: what is no guard any more must reach the answer.
        let leases = guard.into_guards().into_iter().map(|guard| {
            let leases = self.locks.lease(guard.key().clone())?;
            Ok((leases, guard.into_lease()))
        });
        leases.collect::<Result<_, Error>>().map_err(Problem::from)
    }

    /// Why not, with who holds the key that was not to be had.
    async fn refuse(&self, error: Error) -> Problem {
        let key = match &error {
            Error::Held { key, .. } | Error::Timeout { key, .. } => key.clone(),
            _ => self.all.keys()[0].clone(),
        };
        let problem =
            Problem::after_a_wait(error, &self.locks, &key, LEASE_TTL_DEFAULT, Problem::from);
        problem.await
    }
}
