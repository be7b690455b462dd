//! Dapr's lock API.
//!
//! A client of Dapr names its lock by resource and owner and keeps nothing else. Each acquisition
//! gets a claim id of its own all the same: it is made from the token, the owner's name and a
//! random word that stands in the lock's reason, where the unlock finds it. So an owner that locks
//! twice is refused the second time, as with Dapr's own stores, and an unlock touches only its own
//! hold. What others may read of the lock is not enough to release it: that needs the token.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use distlock::{ClaimId, End, Error, Holder, Key, Leases};

use super::{derived, label};
use crate::audit;
use crate::auth::Caller;
use crate::body::{collect, parse};
use crate::delivery::{Transit, Undo};
use crate::ledger::Leased;
use crate::limits::BODY_MAX;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::Refusals;
use crate::wire::dapr::{Failed, Lock, Locked, Metadata, Unlock, Unlocked};

/// What stands before the random word in the reason of a lock.
const MARK: &str = "dapr ";

/// The longest that a lock may last without anybody renewing it: a day.
const EXPIRY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A refusal, in Dapr's words where it has any.
pub(crate) enum Refused {
    Said(StatusCode, &'static str, String),
    Ours(Problem),
}

impl Refused {
    fn bad(code: &'static str, message: &str) -> Self {
        Self::Said(StatusCode::BAD_REQUEST, code, message.to_owned())
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Ours(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Said(status, error_code, message) => {
                (status, Json(Failed { error_code, message })).into_response()
            }
            Self::Ours(problem) => problem.into_response(),
        }
    }
}

/// How an unlock went, in Dapr's numbers.
#[derive(Clone, Copy)]
enum Status {
    Done = 0,
    NotThere = 1,
    SomebodyElses = 2,
    Failed = 3,
}

/// Takes a lock, as Dapr's API does: a lock that is taken is `{"success":false}`. Needs the scope
/// `lock:dapr/<store>/`.
#[utoipa::path(post, path = "/v1.0-alpha1/lock/{store}", tag = "dapr",
    params(("store" = String, Path, description = "a lock store (--dapr-store)",
        pattern = "^lockstore$")),
    request_body = Lock,
    responses(
        (status = 200, description = "granted or not", body = Locked),
        (status = 400, description = "not acceptable", body = Failed),
        (status = 404, description = "no such lock store", body = Failed),
        (status = 500, description = "the store of the locks failed", body = Failed),
        Refusals))]
pub(crate) async fn lock(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(transit): Extension<Arc<Transit>>,
    Path(store): Path<String>,
    request: Request,
) -> Result<Json<Locked>, Refused> {
    let lock: Lock = read(&app, &store, request).await?;
    let key = key(&store, &lock.resource_id, &lock.lock_owner)?;
    if lock.expiry_in_seconds <= 0 {
        return Err(Refused::bad("ERR_EXPIRY_NOT_POSITIVE", "expiryInSeconds must be positive"));
    }
    caller.may_lock(key.as_str())?;
    let ttl = Duration::from_secs(lock.expiry_in_seconds.unsigned_abs().into()).min(EXPIRY_MAX);
    let ttl = ttl.min(caller.ttl_max());
    let nonce = ClaimId::random().map_err(|fault| failed(&Error::Backend(fault)))?.reveal();
    let leases = app.locks.lease(&key).map_err(Problem::from)?;
    let leases = leases
        .configure(|o| o.ttl(ttl).owner(owner(&lock.lock_owner)).reason(format!("{MARK}{nonce}")))
        .map_err(Problem::from)?;
    let id = id(&caller, &key, &lock.lock_owner, &nonce);
    let account = app.limits.account(&caller);
    let slot = account.slot(&key, Some(id))?;
    match leases.try_acquire_as(id).await {
        Ok(lease) => {
            slot.leased(Leased::new(lease.clone(), leases.clone()));
            transit.carry(Undo::new(leases, lease, account));
            Ok(Json(Locked { success: true }))
        }
        Err(Error::Held { .. }) => Ok(Json(Locked { success: false })),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &Error) -> Refused {
    tracing::warn!(%error, "a lock of Dapr's failed");
    let why = "the store cannot be reached".to_owned();
    Refused::Said(StatusCode::INTERNAL_SERVER_ERROR, "ERR_TRY_LOCK", why)
}

/// Releases a lock of this token and this owner, as Dapr's API does.
#[utoipa::path(post, path = "/v1.0-alpha1/unlock/{store}", tag = "dapr",
    params(("store" = String, Path, description = "a lock store (--dapr-store)",
        pattern = "^lockstore$")),
    request_body = Unlock,
    responses(
        (status = 200, description = "how it went", body = Unlocked),
        (status = 400, description = "not acceptable", body = Failed),
        (status = 404, description = "no such lock store", body = Failed),
        Refusals))]
pub(crate) async fn unlock(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(store): Path<String>,
    request: Request,
) -> Result<Json<Unlocked>, Refused> {
    let unlock: Unlock = read(&app, &store, request).await?;
    let key = key(&store, &unlock.resource_id, &unlock.lock_owner)?;
    caller.may_lock(key.as_str())?;
    let status = release(&app, &caller, &key, &unlock.lock_owner).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "an unlock of Dapr's failed");
        Status::Failed
    });
    Ok(Json(Unlocked { status: status as u8 }))
}

async fn release(app: &App, caller: &Caller, key: &Key, name: &str) -> Result<Status, Error> {
    let seen = app.locks.inspect(key).await?;
    let Some(holder) = seen.holders.first() else { return Ok(Status::NotThere) };
    let Some(nonce) = nonce(holder, name) else { return Ok(Status::SomebodyElses) };
    let leases: Leases = app.locks.lease(key)?.configure(|o| {
        let o = o.owner(holder.owner.as_str());
        if let Some(reason) = &holder.reason { o.reason(reason.as_str()) } else { o }
    })?;
    let (id, account) = (id(caller, key, name, nonce), app.limits.account(caller));
    let lease = match account.known(id, key) {
        Some(known) => known.lease,
        None => match leases.find(id).await? {
            Some(lease) => lease,
            None => return Ok(Status::SomebodyElses),
        },
    };
    let end = leases.release(&lease).await?;
    account.ended(&lease);
    match end {
        End::Released => {
            audit::record(app, caller, key, "unlock");
            Ok(Status::Done)
        }
        // It ended between the two looks.
        _ => Ok(Status::NotThere),
    }
}

/// The word under which this owner locked; none if it is somebody else's lock.
fn nonce<'a>(holder: &'a Holder, name: &str) -> Option<&'a str> {
    let reason = holder.reason.as_ref()?.as_str();
    reason.strip_prefix(MARK).filter(|_| holder.owner.as_str() == owner(name))
}

fn id(caller: &Caller, key: &Key, name: &str, nonce: &str) -> ClaimId {
    derived(caller, &["dapr", key.as_str(), name, nonce])
}

/// The owner as people see it.
fn owner(name: &str) -> String {
    label(name)
}

/// Every store has keys of its own.
fn key(store: &str, resource: &str, owner: &str) -> Result<Key, Refused> {
    if resource.is_empty() {
        return Err(Refused::bad("ERR_RESOURCE_ID_EMPTY", "resourceId must not be empty"));
    }
    if owner.is_empty() {
        return Err(Refused::bad("ERR_OWNER_EMPTY", "lockOwner must not be empty"));
    }
    Key::new(format!("dapr/{store}/{resource}"))
        .map_err(|invalid| Refused::bad("ERR_MALFORMED_REQUEST", &invalid.to_string()))
}

async fn read<T>(app: &App, store: &str, request: Request) -> Result<T, Refused>
where
    T: serde::de::DeserializeOwned,
{
    if !app.config.dapr_stores.iter().any(|known| known == store) {
        let why = format!("lock store {:?} is not known", label(store));
        return Err(Refused::Said(StatusCode::NOT_FOUND, "ERR_LOCK_STORE_NOT_FOUND", why));
    }
    let bytes = collect(request, BODY_MAX).await?;
    let why = "the body is not the expected JSON";
    parse(&bytes).map_err(|_| Refused::bad("ERR_MALFORMED_REQUEST", why))
}

/// Shows the lock stores: what Dapr's clients look at before they begin.
#[utoipa::path(get, path = "/v1.0/metadata", tag = "dapr",
    responses((status = 200, description = "the lock stores", body = Metadata), Refusals))]
pub(crate) async fn metadata(State(app): State<Arc<App>>, _: Caller) -> Json<Metadata> {
    Json(Metadata::new(&app.config.dapr_stores))
}
