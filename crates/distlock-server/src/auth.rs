//! Who is asking, and what they may do.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::audit::AUDIT;
use crate::auth_throttle::Refusal;
use crate::connections::TrackedConnection;
use crate::limits::{HTTP_TTL_RANGE, Share};
use crate::problem::Problem;
use crate::scope::Scope;
use crate::state::{App, Peer};
use crate::tokens::Token;

/// The longest credentials that are looked at.
const CREDENTIALS_LEN_MAX: usize = 4_096;

/// Where a request came from if the connection does not say.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The name of callers where there are no tokens.
const ANONYMOUS: &str = "anonymous";

/// The client that sent a request, with what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// None where there are no tokens: then everything is allowed.
    token: Option<Arc<Token>>,
    /// What this caller has in use.
    pub(crate) share: Arc<Share>,
}

impl Caller {
    /// The name of the token; `anonymous` where there are none.
    pub(crate) fn name(&self) -> &str {
        self.token.as_ref().map_or(ANONYMOUS, |token| token.name.as_str())
    }

    /// True if the caller had to present a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// True while the token of this caller would let it in again. For answers that go on and on.
    pub(crate) fn is_current(&self, app: &App) -> bool {
        self.token.as_ref().is_none_or(|token| {
            !token.has_expired(SystemTime::now()) && app.tokens.load().contains(token)
        })
    }

    /// The longest lease this caller may have.
    pub(crate) fn ttl_max(&self) -> Duration {
        let cap = self.token.as_ref().and_then(|token| token.ttl_max);
        cap.unwrap_or(*HTTP_TTL_RANGE.end()).min(*HTTP_TTL_RANGE.end())
    }

    /// May this caller look at every key?
    pub(crate) fn may_read(&self) -> Result<(), Problem> {
        self.check(|scope| matches!(scope, Scope::Read), "read")
    }

    /// May this caller read the numbers for Prometheus?
    pub(crate) fn may_read_metrics(&self) -> Result<(), Problem> {
        self.check(|scope| matches!(scope, Scope::Read | Scope::Metrics), "metrics")
    }

    /// May this caller look at keys that begin with this?
    pub(crate) fn may_look_at(&self, prefix: &str) -> Result<(), Problem> {
        let allows = |scope: &Scope| match scope {
            Scope::Read => true,
            Scope::Lock(theirs) => prefix.starts_with(theirs.as_str()),
            _ => false,
        };
        self.check(allows, "read")
    }

    /// May this caller lock this key?
    pub(crate) fn may_lock(&self, key: &str) -> Result<(), Problem> {
        let allows = |scope: &Scope| matches!(scope, Scope::Lock(p) if key.starts_with(p.as_str()));
        self.check(allows, "lock:<prefix>")
    }

    /// May this caller read and write the Terraform state under this key?
    pub(crate) fn may_use_state(&self, key: &str) -> Result<(), Problem> {
        let allows =
            |scope: &Scope| matches!(scope, Scope::State(p) if key.starts_with(p.as_str()));
        self.check(allows, "state:<prefix>")
    }

    /// What only the bearers of this token know; empty where there are no tokens. It goes into ids
    /// that must not follow from what others may read.
    pub(crate) fn seal(&self) -> &[u8] {
        self.token.as_ref().map_or(&[], |token| token.digest.as_slice())
    }

    /// May this caller break holds of others?
    pub(crate) fn may_break(&self) -> Result<(), Problem> {
        self.check(|_| false, "admin")
    }

    fn check(&self, allows: impl Fn(&Scope) -> bool, needed: &'static str) -> Result<(), Problem> {
        let Some(token) = &self.token else { return Ok(()) };
        if token.scopes.iter().any(|scope| *scope == Scope::Admin || allows(scope)) {
            return Ok(());
        }
        let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed");
        Err(problem.detail(format!("the token needs the scope {needed} for this")))
    }

    fn find(app: &App, from: IpAddr, headers: &HeaderMap) -> Result<Self, Problem> {
        let tokens = app.tokens.load();
        if tokens.is_empty() {
            return Ok(Self { token: None, share: app.limits.share(ANONYMOUS) });
        }
        // A request without a token guesses nothing.
        let Some((scheme, secret)) = secret(headers) else { return Err(Problem::unauthorized()) };
        match tokens.find(&secret) {
            Some(token) if !token.has_expired(SystemTime::now()) => {
                let share = app.limits.share(&token.name);
                Ok(Self { token: Some(Arc::clone(token)), share })
            }
            found => Err(refuse(app, from, scheme, found.map(|token| token.name.as_str()))),
        }
    }
}

/// Refuses a token that is unknown, or expired: then its name is known. What is written about it
/// is bounded by the throttle, and never the token.
fn refuse(app: &App, from: IpAddr, scheme: &'static str, expired: Option<&str>) -> Problem {
    match app.auth_throttle.failed(from, Instant::now()) {
        Refusal::Wrong => {
            app.metrics.refused(if expired.is_some() { "expired" } else { "wrong" });
            match expired {
                Some(name) => {
                    let why = "login refused: expired token";
                    tracing::warn!(target: AUDIT, %from, scheme, name, "{why}");
                }
                None => {
                    tracing::warn!(target: AUDIT, %from, scheme, "login refused: unknown token");
                }
            }
            Problem::unauthorized()
        }
        Refusal::Throttled(wait) => {
            app.metrics.refused("throttled");
            tracing::debug!(%from, scheme, "login refused: too many wrong tokens");
            let problem = Problem::too_many("too many wrong tokens");
            problem.retry_after(wait).and_close()
        }
    }
}

/// What a client presents as a token, and how: as bearer, as the password of Basic, or Dapr's way.
fn secret(headers: &HeaderMap) -> Option<(&'static str, Vec<u8>)> {
    if let Some(token) = headers.get("dapr-api-token") {
        return Some(("dapr", token.as_bytes().to_vec()));
    }
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    if value.len() > CREDENTIALS_LEN_MAX {
        return None;
    }
    let blank = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&value[..blank], value[blank..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(("bearer", rest.to_vec()));
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        let decoded = STANDARD.decode(rest).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        return Some(("basic", decoded[colon + 1..].to_vec()));
    }
    None
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let from = parts.extensions.get().map_or(NOWHERE, |Peer(peer)| peer.ip());
        let caller = Self::find(app, from, &parts.headers)?;
        if let Some(connection) = parts.extensions.get::<Arc<TrackedConnection>>() {
            app.connections.authenticated(connection);
        }
        Ok(caller)
    }
}
