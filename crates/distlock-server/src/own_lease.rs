//! A lease in the hands of its client: renewed and released by its id, through any replica.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use distlock::{ClaimId, Error, HoldEnd, Key, Leases};

use crate::auth::Caller;
use crate::body::{JsonBody, KeyPath};
use crate::lease_quota::{LeaseQuota, LeaseSubject};
use crate::leases::{LEASE_TTL_DEFAULT, answer, lease_id, view};
use crate::limits::{self, HTTP_TTL_RANGE};
use crate::problem::Problem;
use crate::renewed_ttls;
use crate::state::App;
use crate::wire::{self, PROBLEM, ProblemBody, Refusals, RenewRequest};

/// Renews a lease, for the ttl that it has unless `ttlMs` says otherwise.
#[utoipa::path(put, path = crate::paths::LEASE_PATH, tag = "leases",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512),
        ("Lease-Id" = String, Header, description = "the secret of the lease",
            pattern = "^[0-9a-fA-F]{32}$")),
    request_body(content = RenewRequest, description = "all members are optional"),
    responses(
        (status = 200, description = "renewed", body = wire::LeaseBody),
        (status = 410, description = "lost", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    caller: Caller,
    KeyPath(key): KeyPath,
    headers: HeaderMap,
    JsonBody(request): JsonBody<RenewRequest>,
) -> Result<Response, Problem> {
    caller.may_lock(key.as_str())?;
    let id = lease_id_header(&headers)?;
    let asked = match request.ttl_ms {
        Some(_) => Some(limits::ttl(&caller, request.ttl_ms, LEASE_TTL_DEFAULT)?),
        None => None,
    };
    let quota = app.limits.quota(&caller);
    let OwnLease { leases, mut lease, about, ttl } = find(&app, quota, &key, id, asked).await?;
    let leases = leases.configure(|o| o.ttl(ttl.min(caller.ttl_max())))?;
    match leases.extend(&mut lease).await {
        Ok(()) => {
            if !quota.renewed(&lease) {
                app.renewed_ttls.renewed(&lease);
            }
            Ok(answer(StatusCode::OK, &view(&leases, &lease, about)))
        }
        Err(error) => {
            if matches!(error, Error::NotHeld { .. } | Error::Lost { .. }) {
                quota.ended(&lease);
                app.renewed_ttls.ended(&lease);
            }
            Err(Problem::under_an_id(error))
        }
    }
}

/// A lease that is to be renewed, with the ttl to renew it for.
struct OwnLease {
    leases: Leases,
    lease: distlock::Lease,
    about: Option<LeaseSubject>,
    ttl: Duration,
}

/// What is known of a lease: by the ledger if this replica granted it, else by the store.
async fn find(
    app: &App,
    quota: &LeaseQuota,
    key: &Key,
    id: ClaimId,
    asked: Option<Duration>,
) -> Result<OwnLease, Problem> {
    if let Some(known) = quota.known(id, key) {
        let ttl = asked.unwrap_or(known.lease.ttl());
        return Ok(OwnLease { leases: known.leases, lease: known.lease, about: known.about, ttl });
    }
    let leases = app.locks.lease(key)?;
    let lease = leases.lease_of(id);
    let (about, ttl) = match asked.or_else(|| app.renewed_ttls.ttl(key, id)) {
        Some(ttl) => (None, ttl),
        None => match renewed_ttls::look(app, &leases, id).await? {
            Some(seen) => {
                (seen.about, seen.ttl.clamp(*HTTP_TTL_RANGE.start(), *HTTP_TTL_RANGE.end()))
            }
            // The renewal will answer that it is gone.
            None => (None, LEASE_TTL_DEFAULT),
        },
    };
    Ok(OwnLease { leases, lease, about, ttl })
}

/// Releases a lease.
#[utoipa::path(delete, path = crate::paths::LEASE_PATH, tag = "leases",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512),
        ("Lease-Id" = String, Header, description = "the secret of the lease",
            pattern = "^[0-9a-fA-F]{32}$")),
    responses(
        (status = 204, description = "released"),
        (status = 410, description = "it had been lost", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    KeyPath(key): KeyPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may_lock(key.as_str())?;
    let id = lease_id_header(&headers)?;
    let quota = app.limits.quota(&caller);
    let (leases, lease) = match quota.known(id, &key) {
        Some(known) => (known.leases, known.lease),
        None => {
            let leases = app.locks.lease(&key)?;
            let lease = leases.lease_of(id);
            (leases, lease)
        }
    };
    let end = leases.release(&lease).await.map_err(Problem::under_an_id)?;
    quota.ended(&lease);
    app.renewed_ttls.ended(&lease);
    match end {
        HoldEnd::Released => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => Err(Problem::gone()),
    }
}

fn lease_id_header(headers: &HeaderMap) -> Result<ClaimId, Problem> {
    let value = headers.get("lease-id").and_then(|value| value.to_str().ok());
    lease_id(value.ok_or_else(|| Problem::bad_request("the header Lease-Id is missing"))?)
}
