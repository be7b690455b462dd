//! Leases: asked for, renewed and released by their clients, through any replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::{ClaimId, End, Error, Key, Leases, Turn};

use crate::auth::Caller;
use crate::body::{JsonBody, KeyPath};
use crate::delivery::{Transit, Undo};
use crate::ledger::Leased;
use crate::limits::{TTL, span};
use crate::problem::Problem;
use crate::state::{App, Peer};
use crate::wire::{self, LeaseRequest, Mode, PROBLEM, ProblemBody, Refusals, RenewRequest, millis};

/// The lease of those who do not say.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);

const LOCK_FENCE: HeaderName = HeaderName::from_static("lock-fence");

/// What a client asks for, checked.
struct Wish {
    key: Key,
    leases: Leases,
    owner: String,
    mode: Mode,
    wait: Duration,
    id: Option<ClaimId>,
    keep_place: bool,
    begun: Instant,
}

/// Asks for a lease, waiting in the queue for up to `waitMs`.
#[utoipa::path(post, path = "/api/v1/locks/{key}/leases", tag = "leases",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512)),
    request_body(content = LeaseRequest, description = "all members are optional"),
    responses(
        (status = 201, description = "granted", body = wire::Lease),
        (status = 200, description = "granted before, under the same lease id", body = wire::Lease),
        (status = 202, description = "still waiting; the place is kept", body = wire::Ticket),
        (status = 409, description = "held by others", body = ProblemBody,
            content_type = PROBLEM),
        (status = 410, description = "the lease id was given up", body = ProblemBody,
            content_type = PROBLEM),
        (status = 429, description = "too many wait", body = ProblemBody,
            content_type = PROBLEM),
        (status = 504, description = "outcome unknown: repeat it", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(Peer(peer)): Extension<Peer>,
    Extension(transit): Extension<Arc<Transit>>,
    KeyPath(key): KeyPath,
    JsonBody(request): JsonBody<LeaseRequest>,
) -> Result<Response, Problem> {
    caller.may_lock(key.as_str())?;
    let wish = Wish::read(&app, key, request, || format!("http@{}", peer.ip()))?;
    let account = app.limits.account(&caller);
    let slot = account.slot(wish.id)?;
    let _waiting = match wish.wait.is_zero() {
        true => None,
        false => Some(app.limits.wait(&caller)?),
    };
    let outcome = tokio::select! {
        biased;
        outcome = wish.take() => outcome,
        () = app.stop.cancelled() => Err(Problem::stopping()),
    };
    match outcome? {
        Taken::Lease { lease, again } => {
            let leased = Leased::new(lease.clone(), wish.leases.clone());
            slot.leased(leased.about(&wish.owner, wish.mode));
            let status = if again { StatusCode::OK } else { StatusCode::CREATED };
            let answer = wish.answer(status, &lease);
            if !again {
                transit.carry(Undo::new(wish.leases, lease, account));
            }
            Ok(answer)
        }
        Taken::Place(ticket) => Ok((StatusCode::ACCEPTED, Json(ticket)).into_response()),
    }
}

/// What a request came to.
enum Taken {
    Lease { lease: distlock::Lease, again: bool },
    Place(wire::Ticket),
}

impl Wish {
    fn read(
        app: &App,
        key: Key,
        request: LeaseRequest,
        owner: impl FnOnce() -> String,
    ) -> Result<Self, Problem> {
        let ttl = span("ttlMs", request.ttl_ms, TTL_DEFAULT, TTL)?;
        let wait = span("waitMs", request.wait_ms, Duration::ZERO, app.waits())?;
        let id = request.lease_id.as_deref().map(lease_id).transpose()?;
        let keep_place = request.keep_place;
        if keep_place && id.is_none() {
            return Err(Problem::invalid("keepPlace needs a leaseId to come back with"));
        }
        let owner = request.owner.unwrap_or_else(owner);
        let mode = request.mode.unwrap_or_default();
        let leases = app.locks.lease(&key)?.configure(|o| {
            let o = o.ttl(ttl).max_wait(wait).owner(&owner).patience(wait.max(TTL_DEFAULT));
            let o = if keep_place { o.place(app.config.place) } else { o };
            match request.reason {
                Some(reason) => o.reason(reason),
                None => o,
            }
        })?;
        let leases = match request.order {
            Some(order) => leases.order(order.to_core()),
            None if mode == Mode::Shared => leases.order(app.default_order()),
            None => leases,
        };
        let leases = match (mode, request.permits, request.limit) {
            (Mode::Exclusive, None, None) => leases,
            (Mode::Shared, None, None) => leases.shared(),
            (Mode::Exclusive, permits, Some(limit)) => {
                leases.permits(permits.unwrap_or(1), limit)?
            }
            (Mode::Exclusive, Some(_), None) => {
                return Err(Problem::invalid("permits need a limit: so many of how many?"));
            }
            (Mode::Shared, ..) => {
                return Err(Problem::invalid("mode shared goes without permits and limit"));
            }
        };
        let begun = Instant::now();
        Ok(Self { key, leases, owner, mode, wait, id, keep_place, begun })
    }

    async fn take(&self) -> Result<Taken, Problem> {
        let Some(id) = self.id else {
            let lease = self.leases.acquire().await.map_err(Problem::from)?;
            return Ok(Taken::Lease { lease, again: false });
        };
        let again = self.leases.find(id).await.map_err(Problem::under_an_id)?.is_some();
        if !self.keep_place {
            let lease = self.leases.acquire_as(id).await.map_err(Problem::under_an_id)?;
            return Ok(Taken::Lease { lease, again });
        }
        match self.leases.acquire_or_queue(id).await.map_err(Problem::under_an_id)? {
            Turn::Granted(lease) => Ok(Taken::Lease { lease, again }),
            Turn::Waiting { ticket, ahead, retry_after, place, .. } => {
                Ok(Taken::Place(wire::Ticket {
                    lease_id: id.reveal(),
                    key: self.key.to_string(),
                    ticket,
                    position: ahead + 1,
                    retry_after_ms: retry_after.map(millis),
                    come_back_within_ms: millis(place),
                    waited_ms: millis(self.begun.elapsed()),
                }))
            }
            _ => Err(Problem::unavailable()),
        }
    }

    fn answer(&self, status: StatusCode, lease: &distlock::Lease) -> Response {
        let body = wire::Lease {
            owner: Some(self.owner.clone()),
            mode: Some(self.mode),
            waited_ms: millis(self.begun.elapsed()),
            ..view(&self.leases, lease)
        };
        let place = format!("/api/v1/locks/{}/lease", encode(self.key.as_str()));
        let mut answer = answer(status, &body);
        if let Ok(place) = HeaderValue::from_str(&place) {
            answer.headers_mut().insert(header::LOCATION, place);
        }
        answer
    }
}

/// Renews a lease.
#[utoipa::path(put, path = "/api/v1/locks/{key}/lease", tag = "leases",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512),
        ("Lease-Id" = String, Header, description = "the secret of the lease",
            pattern = "^[0-9a-fA-F]{32}$")),
    request_body(content = RenewRequest, description = "all members are optional"),
    responses(
        (status = 200, description = "renewed", body = wire::Lease),
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
    let ttl = span("ttlMs", request.ttl_ms, TTL_DEFAULT, TTL)?;
    let account = app.limits.account(&caller);
    let (leases, known, about) = match account.known(id, &key) {
        Some(Leased { lease, leases, about, .. }) => (leases, Some(lease), about),
        None => (app.locks.lease(&key)?, None, None),
    };
    let leases = leases.configure(|o| o.ttl(ttl))?;
    let mut lease = known.unwrap_or_else(|| leases.lease_of(id));
    match leases.extend(&mut lease).await {
        Ok(()) => {
            account.renewed(&lease);
            let (owner, mode) = about.unzip();
            let body = wire::Lease { owner, mode, ..view(&leases, &lease) };
            Ok(answer(StatusCode::OK, &body))
        }
        Err(error) => {
            if matches!(error, Error::NotHeld { .. } | Error::Lost { .. }) {
                account.ended(id);
            }
            Err(Problem::under_an_id(error))
        }
    }
}

/// Releases a lease.
#[utoipa::path(delete, path = "/api/v1/locks/{key}/lease", tag = "leases",
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
    let account = app.limits.account(&caller);
    let (leases, lease) = match account.known(id, &key) {
        Some(known) => (known.leases, known.lease),
        None => found(&app, &key, id).await?,
    };
    let end = leases.release(&lease).await.map_err(Problem::under_an_id)?;
    account.ended(id);
    match end {
        End::Released => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => Err(Problem::gone()),
    }
}

/// A lease that was granted elsewhere, or before a restart. Only the journal wants to know more of
/// it than its id: who held it, and under which fence.
async fn found(app: &App, key: &Key, id: ClaimId) -> Result<(Leases, distlock::Lease), Problem> {
    let leases = app.locks.lease(key)?;
    if !app.journal {
        let lease = leases.lease_of(id);
        return Ok((leases, lease));
    }
    let Some(lease) = leases.find(id).await.map_err(Problem::under_an_id)? else {
        return Err(Problem::gone());
    };
    let seen = app.locks.inspect(key).await.ok();
    let holder = seen.and_then(|seen| seen.holders.into_iter().find(|h| h.fence == lease.fence()));
    let leases = match holder {
        Some(holder) => leases.configure(|o| {
            let o = o.owner(holder.owner.as_str());
            if let Some(reason) = &holder.reason { o.reason(reason.as_str()) } else { o }
        })?,
        None => leases,
    };
    Ok((leases, lease))
}

fn lease_id_header(headers: &HeaderMap) -> Result<ClaimId, Problem> {
    let value = headers.get("lease-id").and_then(|value| value.to_str().ok());
    lease_id(value.ok_or_else(|| Problem::bad_request("the header Lease-Id is missing"))?)
}

/// Reads a lease id. What was wrong with it is not repeated: it may be most of a secret.
fn lease_id(text: &str) -> Result<ClaimId, Problem> {
    let id: ClaimId =
        text.parse().map_err(|_| Problem::invalid("a lease id is 32 hexadecimal digits"))?;
    // Not chance, but somebody's idea of a default.
    if id.as_bytes().iter().all(|byte| *byte == id.as_bytes()[0]) {
        return Err(Problem::invalid("a lease id must be drawn at random"));
    }
    Ok(id)
}

fn view(leases: &Leases, lease: &distlock::Lease) -> wire::Lease {
    wire::Lease {
        lease_id: lease.id().reveal(),
        key: lease.key().to_string(),
        owner: None,
        mode: None,
        fence: lease.fence(),
        ttl_ms: millis(lease.ttl()),
        remaining_ms: millis(leases.remaining(lease)),
        renew_after_ms: millis(lease.ttl() / 3),
        waited_ms: 0,
    }
}

fn answer(status: StatusCode, lease: &wire::Lease) -> Response {
    let fence = HeaderValue::from(lease.fence);
    let mut answer = (status, Json(lease)).into_response();
    answer.headers_mut().insert(LOCK_FENCE, fence);
    answer
}

/// A key as one segment of a path.
pub(crate) fn encode(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
