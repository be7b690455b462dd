//! What went wrong, as RFC 9457 says it, and which status it is.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::{Error, FaultKind, Holder, Key, Locks};

use crate::wire::{self, ProblemBody};

/// How long a look at the holder may take, for an answer that says no in any case.
const HOLDER_LOOKUP_MAX: Duration = Duration::from_secs(2);

/// An answer that says no, and why.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    body: Box<ProblemBody>,
    retry_after: Option<Duration>,
    /// The connection ends with this answer.
    close: bool,
}

impl Problem {
    /// A problem of this kind. `error` says it in a few words, always the same.
    pub(crate) fn new(status: StatusCode, kind: &'static str, error: &'static str) -> Self {
        let body = Box::new(ProblemBody::new(status.as_u16(), kind, error));
        Self { status, body, retry_after: None, close: false }
    }

    /// Says more about this one case.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.body.detail = Some(detail.into());
        self
    }

    /// Changes the members that only some problems have.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut ProblemBody)) -> Self {
        change(&mut self.body);
        self
    }

    /// Says when to come back, in the header as well.
    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        self.body.retry_after_ms = Some(wire::millis(after));
        self.retry_after = Some(after);
        self
    }

    /// Ends the connection, so that the next attempt costs a new one.
    pub(crate) fn and_close(mut self) -> Self {
        self.close = true;
        self
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "Bad request").detail(detail)
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid value").detail(detail)
    }

    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not Found")
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed").detail(detail)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized")
    }

    pub(crate) fn too_many(detail: &'static str) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many requests")
            .detail(detail)
            .retry_after(Duration::from_secs(1))
    }

    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "Service is stopping")
            .detail("ask another replica, or come back")
            .retry_after(Duration::from_secs(1))
    }

    /// The hold that was to be renewed, released or taken up again is over.
    pub(crate) fn gone() -> Self {
        Self::new(StatusCode::GONE, "gone", "Lease lost")
            .detail("nothing is held under this lease id: it expired, was released or was broken")
    }

    /// Another client has it.
    fn locked(retry_after: Option<Duration>) -> Self {
        let problem = Self::new(StatusCode::CONFLICT, "locked", "Resource locked");
        match retry_after {
            Some(after) => problem.retry_after(after),
            None => problem,
        }
    }

    /// The problem of a wait that ran out, with who holds the key and when to come back: the error
    /// alone does not say, so this looks. `ttl` stands for a holder that cannot be seen.
    pub(crate) async fn after_a_wait(
        error: Error,
        locks: &Locks,
        key: &Key,
        ttl: Duration,
        convert: impl FnOnce(Error) -> Self,
    ) -> Self {
        let ran_out =
            matches!(error, Error::Timeout { source: None, .. } | Error::RetriesExhausted { .. });
        if let Error::Held { retry_after: None, .. } = &error {
            return convert(error).retry_after(ttl);
        }
        if !ran_out {
            return convert(error);
        }
        let seen = tokio::time::timeout(HOLDER_LOOKUP_MAX, locks.inspect(key)).await;
        let holder = seen.ok().and_then(Result::ok).and_then(|seen| {
            let first = |holder: &&Holder| holder.expires_in.unwrap_or(Duration::MAX);
            seen.holders.iter().min_by_key(first).cloned()
        });
        let left = holder.as_ref().and_then(|holder| holder.expires_in).unwrap_or(ttl);
        let problem = convert(error).retry_after(left);
        problem.with(|body| body.holder = holder.map(wire::HolderBody::from))
    }

    /// The backend did not answer; a client that asks again under the same id gets the same lease.
    fn unknown() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "unknown", "Outcome unknown")
            .detail("the backend did not answer; repeat the request with the same lease id")
            .retry_after(Duration::from_secs(1))
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Backend unavailable")
            .retry_after(Duration::from_secs(1))
    }

    /// The problem that an error of a call under a known lease id amounts to: the client can
    /// repeat it, so it is told when the outcome is unknown.
    pub(crate) fn under_an_id(error: Error) -> Self {
        match &error {
            Error::ReleaseUncertain { .. } => Self::unknown(),
            Error::Backend(fault) if fault.is_transient() && !never_left(fault.action()) => {
                Self::unknown()
            }
            _ => error.into(),
        }
    }
}

/// True if the fault came before anything was sent.
fn never_left(action: &str) -> bool {
    action.starts_with("connect")
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Held { retry_after, holder, ahead, .. } => {
                Self::locked(retry_after).detail(detail).with(|body| {
                    body.ahead = Some(ahead);
                    body.holder = holder.map(|holder| wire::HolderBody::from(*holder));
                })
            }
            Error::Timeout { source: Some(fault), .. } => {
                tracing::warn!(%fault, "the backend did not answer until the end of a wait");
                Self::unavailable()
            }
            Error::Timeout { .. } | Error::RetriesExhausted { .. } => {
                Self::locked(None).detail(detail)
            }
            Error::TooManyWaiters { .. } => Self::too_many("too many are waiting for this key"),
            Error::Conflict { .. } => {
                Self::new(StatusCode::CONFLICT, "conflict", "Order conflict").detail(detail)
            }
            Error::Lost { .. } | Error::NotHeld { .. } => Self::gone(),
            Error::Unsupported { what } => {
                Self::new(StatusCode::NOT_IMPLEMENTED, "unsupported", "Not supported")
                    .detail(format!("the backend does not support {what}"))
            }
            Error::NoQuorum { needed, granted, faults, .. } => {
                tracing::warn!(needed, granted, %faults, "no quorum");
                Self::no_quorum()
            }
            Error::Invalid(invalid) => Self::invalid(invalid.to_string()),
            Error::Closed => Self::stopping(),
            Error::Backend(fault) => {
                let mend = fault.kind() != FaultKind::Transient;
                tracing::warn!(%fault, mend, "the backend failed");
                Self::unavailable()
            }
            error => {
                tracing::warn!(%error, "the backend failed");
                Self::unavailable()
            }
        }
    }
}

impl Problem {
    pub(crate) fn no_quorum() -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "no-quorum", "Quorum not reached")
            .with(|body| {
                body.message = Some("Unable to acquire lock on majority of instances".to_owned());
            })
            .retry_after(Duration::from_secs(1))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(*self.body)).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(after) = self.retry_after {
            let seconds = after.as_millis().div_ceil(1_000);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                headers.insert(header::RETRY_AFTER, value);
            }
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            // Basic works as well, but a browser that were told so would ask for a user and a
            // password before the dashboard can ask for a token.
            let challenge = HeaderValue::from_static("Bearer realm=\"distlock\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
