//! Asking for a lease, through any replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::{ClaimId, Error, Key, Leases, QueueOutcome};

use crate::auth::Caller;
use crate::body::{JsonBody, KeyPath};
use crate::delivery::{Transit, Undo};
use crate::lease_quota::{LeaseSubject, Leased};
use crate::limits::{self, span};
use crate::problem::Problem;
use crate::state::{App, Peer};
use crate::wire::{self, LeaseRequest, ModeBody, PROBLEM, ProblemBody, Refusals, millis};

/// The lease of those who do not say.
pub(crate) const LEASE_TTL_DEFAULT: Duration = distlock::TTL_DEFAULT;

const LOCK_FENCE: HeaderName = HeaderName::from_static("lock-fence");

/// What a client asks for, checked.
struct LeaseSpec {
    key: Key,
    leases: Leases,
    about: LeaseSubject,
    wait: Duration,
    id: Option<ClaimId>,
    keep_place: bool,
    begun: Instant,
}

/// Asks for a lease, waiting in the queue for up to `waitMs`.
#[utoipa::path(post, path = crate::paths::LEASES_PATH, tag = "leases",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512)),
    request_body(content = LeaseRequest, description = "all members are optional"),
    responses(
        (status = 201, description = "granted", body = wire::LeaseBody),
        (status = 200, body = wire::LeaseBody,
         description = "granted before, under the same lease id"),
        (status = 202, description = "still waiting; the place is kept", body = wire::TicketBody),
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
    let wish = LeaseSpec::read(&app, &caller, key, request, || format!("http@{}", peer.ip()))?;
    wish.check_limit(&app, &caller).await?;
    let quota = app.limits.quota(&caller);
    let slot = quota.slot(&wish.key, wish.id)?;
    let _waiting = match wish.wait.is_zero() {
        true => None,
        false => Some(app.limits.wait(&caller)?),
    };
    let outcome = tokio::select! {
        biased;
        outcome = wish.take(&app) => outcome,
        () = app.stop.cancelled() => Err(Problem::stopping()),
    };
    match outcome? {
        Taken::Lease { lease, again } => {
            let leased = Leased::new(lease.clone(), wish.leases.clone());
            slot.leased(leased.about(wish.about.clone()));
            let status = if again { StatusCode::OK } else { StatusCode::CREATED };
            let answer = wish.answer(status, &lease);
            if !again {
                transit.carry(Undo::new(wish.leases, lease, quota));
            }
            Ok(answer)
        }
        Taken::Place(ticket) => Ok((StatusCode::ACCEPTED, Json(ticket)).into_response()),
    }
}

/// What a request came to.
enum Taken {
    Lease { lease: distlock::Lease, again: bool },
    Place(wire::TicketBody),
}

impl LeaseSpec {
    fn read(
        app: &App,
        caller: &Caller,
        key: Key,
        request: LeaseRequest,
        owner: impl FnOnce() -> String,
    ) -> Result<Self, Problem> {
        let ttl = limits::ttl(caller, request.ttl_ms, LEASE_TTL_DEFAULT)?;
        let wait = span("waitMs", request.wait_ms, Duration::ZERO, app.waits())?;
        let id = request.lease_id.as_deref().map(lease_id).transpose()?;
        let keep_place = request.keep_place;
        if keep_place && id.is_none() {
            return Err(Problem::invalid("keepPlace needs a leaseId to come back with"));
        }
        let (mode, permits) = mode(&request)?;
        let owner = request.owner.unwrap_or_else(owner);
        let leases = app.locks.lease(&key)?.configure(|o| {
            let o = o.ttl(ttl).max_wait(wait).owner(&owner).patience(wait.max(LEASE_TTL_DEFAULT));
            let o = if keep_place { o.place(app.config.place) } else { o };
            match request.reason {
                Some(reason) => o.reason(reason),
                None => o,
            }
        })?;
        let leases = match request.order {
            Some(order) => leases.order(order.to_core()),
            None => leases,
        };
        let leases = match (mode, permits) {
            (_, Some((permits, limit))) => leases.permits(permits, limit)?,
            (ModeBody::Shared, None) => leases.shared(),
            (_, None) => leases,
        };
        let (permits, limit) = permits.unzip();
        let about = LeaseSubject { owner, mode, permits, limit };
        let begun = Instant::now();
        Ok(Self { key, leases, about, wait, id, keep_place, begun })
    }

    /// Each claim on a semaphore counts by its own limit, so a larger one than the holders have
    /// would let more of them in. An operator may raise it; for others it is as it is while it is
    /// in use.
    async fn check_limit(&self, app: &App, caller: &Caller) -> Result<(), Problem> {
        let Some(limit) = self.about.limit else { return Ok(()) };
        if caller.may_break().is_ok() {
            return Ok(());
        }
        let seen = app.locks.inspect(&self.key).await?;
        let limits =
            seen.holders.into_iter().filter_map(|holder| wire::HolderBody::from(holder).limit);
        match limits.max() {
            Some(in_force) if limit > in_force => Err(Problem::forbidden(format!(
                "limit {limit} is above {in_force}, the limit of those who hold permits now: that \
                 needs the scope admin",
            ))),
            _ => Ok(()),
        }
    }

    async fn take(&self, app: &App) -> Result<Taken, Problem> {
        let Some(id) = self.id else {
            return match self.leases.acquire().await {
                Ok(lease) => Ok(Taken::Lease { lease, again: false }),
                Err(error) => Err(self.refuse(app, error, Problem::from).await),
            };
        };
        let again = self.leases.find(id).await.map_err(Problem::under_an_id)?.is_some();
        if !self.keep_place {
            return match self.leases.acquire_as(id).await {
                Ok(lease) => Ok(Taken::Lease { lease, again }),
                Err(error) => Err(self.refuse(app, error, Problem::under_an_id).await),
            };
        }
        match self.leases.acquire_or_queue(id).await.map_err(Problem::under_an_id)? {
            QueueOutcome::Granted(lease) => Ok(Taken::Lease { lease, again }),
            QueueOutcome::Waiting { ticket, ahead, retry_after, place, .. } => {
                Ok(Taken::Place(wire::TicketBody {
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

    async fn refuse(
        &self,
        app: &App,
        error: Error,
        convert: impl FnOnce(Error) -> Problem,
    ) -> Problem {
        let (locks, key) = (&app.locks, &self.key);
        Problem::after_a_wait(error, locks, key, LEASE_TTL_DEFAULT, convert).await
    }

    fn answer(&self, status: StatusCode, lease: &distlock::Lease) -> Response {
        let waited_ms = millis(self.begun.elapsed());
        let about = Some(self.about.clone());
        let body = wire::LeaseBody { waited_ms, ..view(&self.leases, lease, about) };
        let place = crate::paths::LEASE_PATH.replace("{key}", &encode(self.key.as_str()));
        let mut answer = answer(status, &body);
        if let Ok(place) = HeaderValue::from_str(&place) {
            answer.headers_mut().insert(header::LOCATION, place);
        }
        answer
    }
}

/// Reads a lease id. What was wrong with it is not repeated: it may be most of a secret.
pub(crate) fn lease_id(text: &str) -> Result<ClaimId, Problem> {
    let id: ClaimId =
        text.parse().map_err(|_| Problem::invalid("a lease id is a UUID or 32 hex digits"))?;
    // Not random: a default of some client.
    if id.as_bytes().iter().all(|byte| *byte == id.as_bytes()[0]) {
        return Err(Problem::invalid("a lease id must be drawn at random"));
    }
    Ok(id)
}

/// The mode, and so many of how many permits.
fn mode(request: &LeaseRequest) -> Result<(ModeBody, Option<(u32, u32)>), Problem> {
    let mode = match (request.mode, request.limit) {
        (None | Some(ModeBody::Exclusive), Some(_)) => ModeBody::Permits,
        (mode, _) => mode.unwrap_or_default(),
    };
    match (mode, request.permits, request.limit) {
        (ModeBody::Permits, permits, Some(limit)) => {
            Ok((mode, Some((permits.unwrap_or(1), limit))))
        }
        (ModeBody::Shared, None, None) | (ModeBody::Exclusive, None, None) => Ok((mode, None)),
        (ModeBody::Shared, ..) => {
            Err(Problem::invalid("mode shared goes without permits and limit"))
        }
        _ => Err(Problem::invalid("permits need a limit: so many of how many?")),
    }
}

/// A lease as its client sees it.
pub(crate) fn view(
    leases: &Leases,
    lease: &distlock::Lease,
    about: Option<LeaseSubject>,
) -> wire::LeaseBody {
    let (permits, limit) = about.as_ref().map_or((None, None), |a| (a.permits, a.limit));
    let (owner, mode) = about.map(|about| (about.owner, about.mode)).unzip();
    wire::LeaseBody {
        lease_id: lease.id().reveal(),
        key: lease.key().to_string(),
        owner,
        mode,
        permits,
        limit,
        fence: lease.fence(),
        ttl_ms: millis(lease.ttl()),
        remaining_ms: millis(leases.remaining(lease)),
        renew_after_ms: millis(lease.ttl() / 3),
        waited_ms: 0,
    }
}

pub(crate) fn answer(status: StatusCode, lease: &wire::LeaseBody) -> Response {
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
