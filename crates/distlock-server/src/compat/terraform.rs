//! Terraform's http state backend: `LOCK`, `UNLOCK`, `GET`, `POST` and `DELETE` on one address.
//!
//! Terraform never renews. So its lock is one long lease, which needs no renewals: it
//! is there for every replica and after any restart, until UNLOCK or until its time is over. The
//! claim id is made from the token and the id that Terraform draws for each run, which makes LOCK
//! repeatable. The id of the run is public: everybody who is refused gets to see it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::{ClaimId, Error, HoldEnd, Key, Label, Lease, Leases};

use super::{derived, label};
use crate::audit::{self, AUDIT};
use crate::auth::Caller;
use crate::body::{self, QueryOf, collect, parse};
use crate::delivery::{Transit, Undo};
use crate::lease_quota::Leased;
use crate::limits::BODY_MAX;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::TerraformQuery;
use crate::wire::terraform::LockInfo;

/// What it answers to.
const ALLOWED: &str = "LOCK, UNLOCK, GET, HEAD, POST, DELETE";

/// How long a lock lasts without an UNLOCK, and the longest that can be asked for.
const TERRAFORM_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest wait of a LOCK: Terraform asks again by itself.
const TERRAFORM_WAIT_MAX: Duration = Duration::from_secs(20);

/// One state and the lock that guards it.
pub(super) struct Workspace {
    pub(super) app: Arc<App>,
    pub(super) caller: Caller,
    pub(super) name: String,
    pub(super) key: Key,
}

/// `LOCK` and `UNLOCK`, which no router and no OpenAPI document knows by name; every other method
/// that is not served.
pub(crate) async fn terraform(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(transit): Extension<Arc<Transit>>,
    Path(name): Path<String>,
    QueryOf(query): QueryOf<TerraformQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let workspace = Workspace::new(app, caller, name)?;
    workspace.caller.may_lock(workspace.key.as_str())?;
    match request.method().as_str() {
        "LOCK" => workspace.lock(&query, &transit, request).await,
        "UNLOCK" => workspace.unlock(request).await,
        _ => {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let problem = Problem::new(status, "method", "Method not allowed").into_response();
            Ok(([(header::ALLOW, ALLOWED)], problem).into_response())
        }
    }
}

impl Workspace {
    pub(super) fn new(app: Arc<App>, caller: Caller, name: String) -> Result<Self, Problem> {
        let key = body::key(&format!("terraform/{name}"))?;
        Ok(Self { app, caller, name, key })
    }

    async fn lock(
        &self,
        query: &TerraformQuery,
        transit: &Transit,
        request: Request,
    ) -> Result<Response, Problem> {
        let info: LockInfo = parse(&collect(request, BODY_MAX).await?)?;
        if info.id.is_empty() {
            return Err(Problem::bad_request("the lock has no ID"));
        }
        let ttl =
            span("ttl", query.ttl.as_deref(), TERRAFORM_TTL_MAX)?.unwrap_or(TERRAFORM_TTL_MAX);
        let ttl = ttl.min(self.caller.ttl_max());
        let wait = span("wait", query.wait.as_deref(), TERRAFORM_WAIT_MAX)?.unwrap_or_default();
        let reason = info.pack(Label::LEN_MAX);
        let reason = reason.ok_or_else(|| Problem::invalid("the ID of the lock is too long"))?;
        let owner = if info.who.is_empty() { "terraform".to_owned() } else { label(&info.who) };
        let leases =
            self.app.locks.lease(&self.key)?.configure(|o| {
                o.ttl(ttl).max_wait(wait).owner(owner).reason(reason).patience(wait)
            })?;
        let _waiting = self.app.limits.wait(&self.caller)?;
        let (id, quota) = (self.id(&info.id), self.app.limits.quota(&self.caller));
        let slot = quota.slot(&self.key, Some(id))?;
        let again = leases.find(id).await?.is_some();
        let taken = tokio::select! {
            biased;
            taken = leases.acquire_as(id) => taken,
            () = self.app.stop.cancelled() => return Err(Problem::stopping()),
        };
        match taken {
            Ok(lease) => {
                slot.leased(Leased::new(lease.clone(), leases.clone()));
                if !again {
                    transit.carry(Undo::new(leases, lease, quota));
                }
                Ok(Json(info).into_response())
            }
            Err(
                Error::Held { .. } | Error::Timeout { source: None, .. } | Error::NotHeld { .. },
            ) => self.locked().await,
            Err(error) => Err(error.into()),
        }
    }

    /// 423, with the lock of the holder.
    async fn locked(&self) -> Result<Response, Problem> {
        let seen = self.app.locks.inspect(&self.key).await?;
        let info = seen.holders.first().map_or_else(LockInfo::default, |holder| {
            let reason = holder.reason.as_ref().map(Label::as_str);
            LockInfo::unpack(holder.owner.as_str(), reason)
        });
        Ok((StatusCode::LOCKED, Json(info)).into_response())
    }

    async fn unlock(&self, request: Request) -> Result<Response, Problem> {
        let bytes = collect(request, BODY_MAX).await?;
        if bytes.is_empty() {
            return self.force_unlock().await;
        }
        let info: LockInfo = parse(&bytes)?;
        let leases = self.app.locks.lease(&self.key)?;
        let (id, quota) = (self.id(&info.id), self.app.limits.quota(&self.caller));
        let known = quota.known(id, &self.key).map(|known| known.lease);
        let found = if known.is_some() { known } else { leases.find(id).await? };
        let ended = match found {
            Some(lease) => {
                let ended = self.named(&leases, &info)?.release(&lease).await?;
                quota.ended(&lease);
                if ended == HoldEnd::Released {
                    audit::record(&self.app, &self.caller, &self.key, "unlock");
                }
                ended
            }
            None => HoldEnd::Lost(distlock::LossReason::Gone),
        };
        // What is free needs no unlocking; what others hold stays theirs.
        if ended == HoldEnd::Released || self.app.locks.inspect(&self.key).await?.holders_total == 0
        {
            return Ok(StatusCode::OK.into_response());
        }
        self.locked().await
    }

    /// The leases under the name of the caller, for the journal.
    fn named(&self, leases: &Leases, info: &LockInfo) -> Result<Leases, Problem> {
        let reason = info.pack(Label::LEN_MAX);
        Ok(leases.configure(|o| {
            let o = if info.who.is_empty() { o } else { o.owner(label(&info.who)) };
            if let Some(reason) = reason { o.reason(reason) } else { o }
        })?)
    }

    /// `terraform force-unlock`: an operator takes the lock away from its holder.
    async fn force_unlock(&self) -> Result<Response, Problem> {
        self.caller.may_break()?;
        let (app, key) = (&self.app, &self.key);
        let seen = app.locks.inspect(key).await?;
        if let Some(holder) = seen.holders.first() {
            let operator = audit::operator(app, &self.caller, "force-unlock")?;
            match operator.break_hold(key, holder.fence).await {
                Ok(()) | Err(Error::NotHeld { .. }) => app.limits.broken(key, holder.fence),
                Err(error) => return Err(error.into()),
            }
            let (fence, owner, by) = (holder.fence, &holder.owner, self.caller.name());
            tracing::warn!(target: AUDIT, %key, fence, %owner, by, "forced unlock");
        }
        Ok(StatusCode::OK.into_response())
    }

    /// The lease under an id of Terraform's, if it holds.
    pub(super) async fn lease(&self, id: &str) -> Result<Option<Lease>, Problem> {
        Ok(self.app.locks.lease(&self.key)?.find(self.id(id)).await?)
    }

    fn id(&self, id: &str) -> ClaimId {
        derived(&self.caller, &["terraform", self.key.as_str(), id])
    }
}

/// Reads `500ms`, `20s`, `5m` or `2h`; longer than allowed counts as the longest allowed.
fn span(what: &str, text: Option<&str>, most: Duration) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    match digits.parse::<u64>() {
        Ok(count) if unit_ms > 0 => {
            Ok(Some(Duration::from_millis(count.saturating_mul(unit_ms)).min(most)))
        }
        _ => Err(Problem::bad_request(format!("{what} must be a time such as 500ms, 20s or 2h"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        let hour = Duration::from_secs(3_600);
        let read = |text| span("wait", Some(text), hour).ok().flatten();
        assert_eq!(read("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(read("20s"), Some(Duration::from_secs(20)));
        assert_eq!(
            (read("1h"), read("99999999999999999999h"), read("2h")),
            (Some(hour), None, Some(hour))
        );
        for bad in ["", "s", "5", "-1s", "1.5s", "5 s", "5d", "é"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
