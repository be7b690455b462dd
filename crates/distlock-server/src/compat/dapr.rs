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
use distlock::{ClaimId, Error, HoldEnd, Holder, Key, Leases};

use super::{derived, label};
use crate::audit;
use crate::auth::Caller;
use crate::body::{collect, parse};
use crate::delivery::{Transit, Undo};
use crate::lease_quota::Leased;
use crate::limits::BODY_MAX;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::Refusals;
use crate::wire::dapr::{DaprFailed, DaprLock, DaprLocked, DaprMetadata, DaprUnlock, DaprUnlocked};

/// What stands before the random word in the reason of a lock.
const DAPR_MARK: &str = "dapr ";

/// The longest that a lock may last without anybody renewing it: a day.
const EXPIRY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A refusal, in Dapr's words where it has any.
pub(crate) enum DaprRefusal {
    Said(StatusCode, &'static str, String),
    Ours(Problem),
}

impl DaprRefusal {
    fn bad(code: &'static str, message: &str) -> Self {
        Self::Said(StatusCode::BAD_REQUEST, code, message.to_owned())
    }
}

impl From<Problem> for DaprRefusal {
    fn from(problem: Problem) -> Self {
        Self::Ours(problem)
    }
}

impl IntoResponse for DaprRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Said(status, error_code, message) => {
                (status, Json(DaprFailed { error_code, message })).into_response()
            }
            Self::Ours(problem) => problem.into_response(),
        }
    }
}

/// How an unlock went, in Dapr's numbers.
#[derive(Clone, Copy)]
enum DaprUnlockStatus {
    Done = 0,
    NotThere = 1,
    SomebodyElses = 2,
    Failed = 3,
}

/// Takes a lock, as Dapr's API does: a lock that is taken is `{"success":false}`. Needs the scope
/// `lock:dapr/<store>/`.
#[utoipa::path(post, path = crate::paths::DAPR_LOCK_PATH, tag = "dapr",
    params(("store" = String, Path, description = "a lock store (--dapr-store)",
        pattern = "^lockstore$")),
    request_body = DaprLock,
    responses(
        (status = 200, description = "granted or not", body = DaprLocked),
        (status = 400, description = "not acceptable", body = DaprFailed),
        (status = 404, description = "no such lock store", body = DaprFailed),
        (status = 500, description = "the store of the locks failed", body = DaprFailed),
        Refusals))]
pub(crate) async fn lock(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(transit): Extension<Arc<Transit>>,
    Path(store): Path<String>,
    request: Request,
) -> Result<Json<DaprLocked>, DaprRefusal> {
    let lock: DaprLock = read(&app, &store, request).await?;
    let key = key(&store, &lock.resource_id, &lock.lock_owner)?;
    if lock.expiry_in_seconds <= 0 {
        return Err(DaprRefusal::bad(
            "ERR_EXPIRY_NOT_POSITIVE",
            "expiryInSeconds must be positive",
        ));
    }
    caller.may_lock(key.as_str())?;
    let ttl = Duration::from_secs(lock.expiry_in_seconds.unsigned_abs().into()).min(EXPIRY_MAX);
    let ttl = ttl.min(caller.ttl_max());
    let nonce = ClaimId::random().map_err(|fault| failed(&Error::Backend(fault)))?.reveal();
    let leases = app.locks.lease(&key).map_err(Problem::from)?;
    let leases = leases
        .configure(|o| {
            o.ttl(ttl).owner(owner(&lock.lock_owner)).reason(format!("{DAPR_MARK}{nonce}"))
        })
        .map_err(Problem::from)?;
    let id = id(&caller, &key, &lock.lock_owner, &nonce);
    let quota = app.limits.quota(&caller);
    let slot = quota.slot(&key, Some(id))?;
    match leases.try_acquire_as(id).await {
        Ok(lease) => {
            slot.leased(Leased::new(lease.clone(), leases.clone()));
            transit.carry(Undo::new(leases, lease, quota));
            Ok(Json(DaprLocked { success: true }))
        }
        Err(Error::Held { .. }) => Ok(Json(DaprLocked { success: false })),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &Error) -> DaprRefusal {
    tracing::warn!(%error, "a lock of Dapr's failed");
    let why = "the store cannot be reached".to_owned();
    DaprRefusal::Said(StatusCode::INTERNAL_SERVER_ERROR, "ERR_TRY_LOCK", why)
}

/// Releases a lock of this token and this owner, as Dapr's API does.
#[utoipa::path(post, path = crate::paths::DAPR_UNLOCK_PATH, tag = "dapr",
    params(("store" = String, Path, description = "a lock store (--dapr-store)",
        pattern = "^lockstore$")),
    request_body = DaprUnlock,
    responses(
        (status = 200, description = "how it went", body = DaprUnlocked),
        (status = 400, description = "not acceptable", body = DaprFailed),
        (status = 404, description = "no such lock store", body = DaprFailed),
        Refusals))]
pub(crate) async fn unlock(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(store): Path<String>,
    request: Request,
) -> Result<Json<DaprUnlocked>, DaprRefusal> {
    let unlock: DaprUnlock = read(&app, &store, request).await?;
    let key = key(&store, &unlock.resource_id, &unlock.lock_owner)?;
    caller.may_lock(key.as_str())?;
    let status = release(&app, &caller, &key, &unlock.lock_owner).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "an unlock of Dapr's failed");
        DaprUnlockStatus::Failed
    });
    Ok(Json(DaprUnlocked { status: status as u8 }))
}

async fn release(
    app: &App,
    caller: &Caller,
    key: &Key,
    name: &str,
) -> Result<DaprUnlockStatus, Error> {
    let seen = app.locks.inspect(key).await?;
    let Some(holder) = seen.holders.first() else { return Ok(DaprUnlockStatus::NotThere) };
    let Some(nonce) = nonce(holder, name) else { return Ok(DaprUnlockStatus::SomebodyElses) };
    let leases: Leases = app.locks.lease(key)?.configure(|o| {
        let o = o.owner(holder.owner.as_str());
        if let Some(reason) = &holder.reason { o.reason(reason.as_str()) } else { o }
    })?;
    let (id, quota) = (id(caller, key, name, nonce), app.limits.quota(caller));
    let lease = match quota.known(id, key) {
        Some(known) => known.lease,
        None => match leases.find(id).await? {
            Some(lease) => lease,
            None => return Ok(DaprUnlockStatus::SomebodyElses),
        },
    };
    let end = leases.release(&lease).await?;
    quota.ended(&lease);
    match end {
        HoldEnd::Released => {
            audit::record(app, caller, key, "unlock");
            Ok(DaprUnlockStatus::Done)
        }
        // It ended between the two looks.
        _ => Ok(DaprUnlockStatus::NotThere),
    }
}

/// The word under which this owner locked; none if it is another client's lock.
fn nonce<'a>(holder: &'a Holder, name: &str) -> Option<&'a str> {
    let reason = holder.reason.as_ref()?.as_str();
    reason.strip_prefix(DAPR_MARK).filter(|_| holder.owner.as_str() == owner(name))
}

fn id(caller: &Caller, key: &Key, name: &str, nonce: &str) -> ClaimId {
    derived(caller, &["dapr", key.as_str(), name, nonce])
}

/// The owner as people see it.
fn owner(name: &str) -> String {
    label(name)
}

/// Every store has keys of its own.
fn key(store: &str, resource: &str, owner: &str) -> Result<Key, DaprRefusal> {
    if resource.is_empty() {
        return Err(DaprRefusal::bad("ERR_RESOURCE_ID_EMPTY", "resourceId must not be empty"));
    }
    if owner.is_empty() {
        return Err(DaprRefusal::bad("ERR_OWNER_EMPTY", "lockOwner must not be empty"));
    }
    Key::new(format!("dapr/{store}/{resource}"))
        .map_err(|invalid| DaprRefusal::bad("ERR_MALFORMED_REQUEST", &invalid.to_string()))
}

async fn read<T>(app: &App, store: &str, request: Request) -> Result<T, DaprRefusal>
where
    T: serde::de::DeserializeOwned,
{
    if !app.config.dapr_stores.iter().any(|known| known == store) {
        let why = format!("lock store {:?} is not known", label(store));
        return Err(DaprRefusal::Said(StatusCode::NOT_FOUND, "ERR_LOCK_STORE_NOT_FOUND", why));
    }
    let bytes = collect(request, BODY_MAX).await?;
    let why = "the body is not the expected JSON";
    parse(&bytes).map_err(|_| DaprRefusal::bad("ERR_MALFORMED_REQUEST", why))
}

/// Shows the lock stores: what Dapr's clients look at before they begin.
#[utoipa::path(get, path = crate::paths::DAPR_METADATA_PATH, tag = "dapr",
    responses((status = 200, description = "the lock stores", body = DaprMetadata), Refusals))]
pub(crate) async fn metadata(State(app): State<Arc<App>>, _: Caller) -> Json<DaprMetadata> {
    Json(DaprMetadata::new(&app.config.dapr_stores))
}
