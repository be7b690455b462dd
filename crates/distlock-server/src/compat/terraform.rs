//! Terraform's http state backend: `LOCK`, `UNLOCK`, `GET`, `POST` and `DELETE` on one address.
//!
//! Terraform never renews. So its lock is one long lease, which needs nobody to keep it alive: it
//! is there for every replica and after any restart, until UNLOCK or until its time is over. The
//! claim id is made from the id that Terraform draws for each run, which makes LOCK repeatable.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::{ClaimId, End, Error, Key, Label, Leases};
use tokio::sync::Semaphore;

use super::states::{States, Unkept};
use super::{derived, label};
use crate::auth::Caller;
use crate::body::{self, QueryOf, collect, parse};
use crate::delivery::{Transit, Undo};
use crate::ledger::Leased;
use crate::limits::BODY_MAX;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::TerraformQuery;
use crate::wire::terraform::LockInfo;

/// The largest state.
const STATE_MAX: usize = 64 * 1024 * 1024;

/// How many states may be on their way at once: each is in memory as a whole.
static UPLOADS: Semaphore = Semaphore::const_new(4);

/// How long a lock lasts if nobody unlocks it, and the longest that can be asked for.
const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest wait of a LOCK: Terraform asks again by itself.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// One state and the lock that guards it.
struct Workspace<'a> {
    app: &'a App,
    caller: &'a Caller,
    name: String,
    key: Key,
}

pub(crate) async fn terraform(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(transit): Extension<Arc<Transit>>,
    Path(name): Path<String>,
    QueryOf(query): QueryOf<TerraformQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let key = body::key(&format!("terraform/{name}"))?;
    let workspace = Workspace { app: &app, caller: &caller, name, key };
    let method = request.method().clone();
    if method == "GET" || method == "HEAD" {
        caller.may_look_at(workspace.key.as_str())?;
        return workspace.read().await;
    }
    caller.may_lock(workspace.key.as_str())?;
    match method.as_str() {
        "LOCK" => workspace.lock(&query, &transit, request).await,
        "UNLOCK" => workspace.unlock(request).await,
        "POST" => workspace.write(query.id.as_deref(), request).await,
        "DELETE" => workspace.delete().await,
        _ => {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let problem = Problem::new(status, "method", "Method not allowed").into_response();
            Ok(([(header::ALLOW, "LOCK, UNLOCK, GET, HEAD, POST, DELETE")], problem)
                .into_response())
        }
    }
}

impl Workspace<'_> {
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
        let ttl = span("ttl", query.ttl.as_deref(), TTL_MAX)?.unwrap_or(TTL_MAX);
        let wait = span("wait", query.wait.as_deref(), WAIT_MAX)?.unwrap_or_default();
        let reason = info.pack(Label::LEN_MAX);
        let reason = reason.ok_or_else(|| Problem::invalid("the ID of the lock is too long"))?;
        let owner = if info.who.is_empty() { "terraform".to_owned() } else { label(&info.who) };
        let leases =
            self.app.locks.lease(&self.key)?.configure(|o| {
                o.ttl(ttl).max_wait(wait).owner(owner).reason(reason).patience(wait)
            })?;
        let _waiting = self.app.limits.wait(self.caller)?;
        let (id, account) = (self.id(&info.id), self.app.limits.account(self.caller));
        let slot = account.slot(Some(id))?;
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
                    transit.carry(Undo::new(leases, lease, account));
                }
                Ok(Json(info).into_response())
            }
            Err(
                Error::Held { .. } | Error::Timeout { source: None, .. } | Error::NotHeld { .. },
            ) => self.locked().await,
            Err(error) => Err(error.into()),
        }
    }

    /// 423, with the lock of whoever has it.
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
        let (id, account) = (self.id(&info.id), self.app.limits.account(self.caller));
        let known = account.known(id, &self.key).map(|known| known.lease);
        let found = if known.is_some() { known } else { leases.find(id).await? };
        let ended = match found {
            Some(lease) => self.named(leases, &info)?.release(&lease).await?,
            None => End::Lost(distlock::Reason::Gone),
        };
        account.ended(id);
        // What is free needs no unlocking; what is somebody else's stays theirs.
        if ended == End::Released || self.app.locks.inspect(&self.key).await?.holders_total == 0 {
            return Ok(StatusCode::OK.into_response());
        }
        self.locked().await
    }

    /// The leases under the name of whoever unlocks, for the journal.
    fn named(&self, leases: Leases, info: &LockInfo) -> Result<Leases, Problem> {
        let reason = info.pack(Label::LEN_MAX);
        Ok(leases.configure(|o| {
            let o = if info.who.is_empty() { o } else { o.owner(label(&info.who)) };
            if let Some(reason) = reason { o.reason(reason) } else { o }
        })?)
    }

    /// `terraform force-unlock`: takes the lock away from whoever has it.
    async fn force_unlock(&self) -> Result<Response, Problem> {
        let (app, key) = (self.app, &self.key);
        let seen = app.locks.inspect(key).await?;
        if let Some(holder) = seen.holders.first() {
            let operator = app.locks.configure(|o| o.owner("terraform").reason("force-unlock"))?;
            match operator.break_hold(key, holder.fence).await {
                Ok(()) | Err(Error::NotHeld { .. }) => app.limits.broken(key, holder.fence),
                Err(error) => return Err(error.into()),
            }
            tracing::warn!(%key, fence = holder.fence, owner = %holder.owner, "forced unlock");
        }
        Ok(StatusCode::OK.into_response())
    }

    async fn read(&self) -> Result<Response, Problem> {
        match self.states()?.get(self.name.clone()).await.map_err(|error| unkept(&error))? {
            Some(body) => Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response()),
            None => Err(Problem::new(StatusCode::NOT_FOUND, "not-found", "Not Found")),
        }
    }

    /// Writes the state for whoever has the lock, and for nobody else.
    async fn write(&self, id: Option<&str>, request: Request) -> Result<Response, Problem> {
        let states = self.states()?;
        let Ok(_upload) = UPLOADS.acquire().await else { return Err(Problem::stopping()) };
        let body = collect(request, STATE_MAX).await?;
        let conflict = || {
            let problem = Problem::new(StatusCode::CONFLICT, "not-the-holder", "Not the holder");
            problem.detail("the state is not locked under this ID: it was not written")
        };
        let leases = self.app.locks.lease(&self.key)?;
        let (fence, guard) = match id {
            Some(id) => {
                let lease = leases.find(self.id(id)).await?.ok_or_else(conflict)?;
                (lease.fence(), None)
            }
            // Whoever works without a lock does so while nobody has it.
            None => match self.app.locks.mutex(&self.key)?.try_lock().await {
                Ok(guard) => (guard.fence(), Some(guard)),
                Err(Error::Held { .. }) => return Err(conflict()),
                Err(error) => return Err(error.into()),
            },
        };
        let written =
            states.put(self.name.clone(), fence, body).await.map_err(|error| unkept(&error))?;
        if let Some(guard) = guard {
            guard.release().await?;
        }
        if written { Ok(StatusCode::OK.into_response()) } else { Err(conflict()) }
    }

    async fn delete(&self) -> Result<Response, Problem> {
        self.states()?.delete(self.name.clone()).await.map_err(|error| unkept(&error))?;
        Ok(StatusCode::OK.into_response())
    }

    fn states(&self) -> Result<&States, Problem> {
        self.app.states.as_ref().ok_or_else(|| {
            let status = StatusCode::NOT_IMPLEMENTED;
            let problem = Problem::new(status, "unsupported", "Not supported");
            problem.detail("this service keeps no states, only locks (--terraform-state)")
        })
    }

    fn id(&self, id: &str) -> ClaimId {
        derived(&["terraform", self.key.as_str(), id])
    }
}

fn unkept(error: &Unkept) -> Problem {
    tracing::error!(%error, "a Terraform state could not be kept");
    Problem::unavailable()
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
