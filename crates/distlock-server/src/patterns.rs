//! The eight ways to run something under a lock, each as one request that answers when it is done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use distlock::{Backoff, Error, Guard, Key, Locks, Order, ReentrantGuard, WaitMode, WriteGuard};

use crate::auth::Caller;
use crate::body::{self, JsonBody};
use crate::limits::{self, OPERATION_MAX, span};
use crate::problem::Problem;
use crate::state::{App, Peer};
use crate::wire::{OperationBody, PROBLEM, PatternRequest, ProblemBody, Refusals, millis};

/// The lease under an operation.
const OPERATION_TTL_DEFAULT: Duration = Duration::from_secs(25);

/// How long an operation lasts.
const DURATION_DEFAULT: Duration = Duration::from_secs(15);

/// All but the watchdog hold one lease of a fixed length, so that those who are turned away see it
/// run out. This late a renewal serves only operations that last almost as long as their lease.
const RENEW_LATE: f64 = 0.9;

/// A way to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
enum Pattern {
    /// One attempt.
    Simple,
    /// Attempts with growing pauses.
    Retry,
    /// A lease that is renewed for as long as the operation lasts.
    Watchdog,
    /// Enters again inside.
    Reentrant,
    /// With other readers.
    Read,
    /// Without readers.
    Write,
    /// In the queue.
    Fair,
    /// On a majority of independent servers.
    Redlock,
}

impl Pattern {
    const ALL: [Self; 8] = [
        Self::Simple,
        Self::Retry,
        Self::Watchdog,
        Self::Reentrant,
        Self::Read,
        Self::Write,
        Self::Fair,
        Self::Redlock,
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Retry => "retry",
            Self::Watchdog => "watchdog",
            Self::Reentrant => "reentrant",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fair => "fair",
            Self::Redlock => "redlock",
        }
    }

    fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pattern| pattern.name() == name)
    }

    /// How long to wait if the client does not say.
    fn wait(self) -> Duration {
        match self {
            Self::Retry => Duration::from_secs(5),
            Self::Fair => Duration::from_secs(30),
            _ => Duration::ZERO,
        }
    }
}

/// Runs an operation under a lock: it holds it for `durationMs` and answers when that is over.
#[utoipa::path(post, path = crate::paths::PATTERN_PATH, tag = "patterns",
    params(
        ("pattern" = Pattern, Path, description = "the way to lock"),
        ("resourceId" = String, Path, description = "the key, percent-encoded", max_length = 512)),
    request_body(content = PatternRequest, description = "all members are optional"),
    responses(
        (status = 200, description = "done", body = OperationBody),
        (status = 409, description = "locked", body = ProblemBody,
            content_type = PROBLEM),
        (status = 501, description = "the backend cannot do this", body = ProblemBody,
            content_type = PROBLEM),
        (status = 503, description = "no quorum, or no backend", body = ProblemBody,
            content_type = PROBLEM),
        Refusals))]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(Peer(peer)): Extension<Peer>,
    Path((pattern, resource)): Path<(String, String)>,
    JsonBody(request): JsonBody<PatternRequest>,
) -> Result<Json<OperationBody>, Problem> {
    let key = body::key(&resource)?;
    caller.may_lock(key.as_str())?;
    let pattern = Pattern::find(&pattern).ok_or_else(|| {
        let problem = Problem::new(StatusCode::NOT_FOUND, "not-found", "Not Found");
        problem.detail("there is no such pattern")
    })?;
    let operation =
        Operation::read(&app, &caller, pattern, key, request, || format!("http@{}", peer.ip()))?;
    let _waiting = app.limits.wait(&caller)?;
    let outcome = tokio::select! {
        biased;
        outcome = operation.acquire() => match outcome {
            Ok(hold) => Ok(hold),
            Err(error) => Err(operation.refuse(error).await),
        },
        () = app.stop.cancelled() => Err(Problem::stopping()),
    };
    let hold = outcome?;
    tokio::select! {
        biased;
        done = operation.run(hold) => done.map(Json),
        () = app.stop.cancelled() => Err(Problem::stopping()),
    }
}

/// What is to be done under a lock.
struct Operation {
    pattern: Pattern,
    key: Key,
    locks: Locks,
    ttl: Duration,
    duration: Duration,
    order: Order,
}

/// What an operation holds.
enum OperationHold {
    Plain(Guard),
    Write(WriteGuard),
    /// Twice, the second time inside the first.
    Nested(ReentrantGuard, ReentrantGuard),
}

impl OperationHold {
    fn guard(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Write(guard) => guard,
            Self::Nested(outer, _) => outer,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Plain(guard) => guard.release().await?,
            Self::Write(guard) => guard.release().await?,
            Self::Nested(outer, inner) => {
                inner.release().await?;
                outer.release().await?
            }
        };
        Ok(())
    }
}

impl Operation {
    fn read(
        app: &App,
        caller: &Caller,
        pattern: Pattern,
        key: Key,
        request: PatternRequest,
        owner: impl FnOnce() -> String,
    ) -> Result<Self, Problem> {
        let ttl = limits::ttl(caller, request.ttl_ms, OPERATION_TTL_DEFAULT)?;
        let most = app.waits();
        let default = pattern.wait().min(*most.end());
        let wait = span("waitMs", request.wait_ms, default, most)?;
        let most = Duration::ZERO..=OPERATION_MAX;
        // Those who ask for a short lease only mean a short operation.
        let default = if DURATION_DEFAULT < ttl { DURATION_DEFAULT } else { ttl / 2 };
        let duration = span("durationMs", request.duration_ms, default, most)?;
        if pattern != Pattern::Watchdog && duration >= ttl {
            let why = "durationMs must be shorter than ttlMs: only the watchdog renews its lease";
            return Err(Problem::invalid(why));
        }
        let order = app.locks.capabilities().default_order();
        let store = match (pattern, &app.redlock) {
            (Pattern::Redlock, Some(redlock)) => redlock,
            (Pattern::Redlock, None) if !app.config.quorum => return Err(no_redlock()),
            _ => &app.locks,
        };
        if pattern == Pattern::Fair && !app.locks.capabilities().queue {
            // Without a queue the order would be chance: refused rather than approximated.
            return Err(Error::Unsupported { what: "a queue" }.into());
        }
        let owner = request.owner.unwrap_or_else(owner);
        let locks = store.configure(|o| {
            let o = o.ttl(ttl).max_wait(wait).owner(owner).patience(wait);
            let o = if pattern == Pattern::Watchdog { o } else { o.renew_at(RENEW_LATE) };
            if pattern == Pattern::Retry { o.wait_mode(WaitMode::Poll(backoff())) } else { o }
        })?;
        Ok(Self { pattern, key, locks, ttl, duration, order })
    }

    async fn acquire(&self) -> Result<OperationHold, Error> {
        let (locks, key) = (&self.locks, &self.key);
        Ok(match self.pattern {
            Pattern::Simple
            | Pattern::Retry
            | Pattern::Watchdog
            | Pattern::Fair
            | Pattern::Redlock => OperationHold::Plain(locks.mutex(key)?.lock().await?),
            Pattern::Read => {
                OperationHold::Plain(locks.rwlock(key)?.order(self.order).read().await?)
            }
            Pattern::Write => {
                OperationHold::Write(locks.rwlock(key)?.order(self.order).write().await?)
            }
            Pattern::Reentrant => {
                let owner = locks.reentrant(key)?.owner()?;
                let outer = owner.lock().await?;
                OperationHold::Nested(outer, owner.lock().await?)
            }
        })
    }

    /// Holds on for as long as was asked, or until the lock is lost.
    async fn run(&self, hold: OperationHold) -> Result<OperationBody, Problem> {
        let (fence, begun) = (hold.guard().fence(), Instant::now());
        let done = hold.guard().run(tokio::time::sleep(self.duration)).await;
        let released = match hold.release().await {
            // The work was done under the lock, which ends with its lease at the latest.
            Err(Error::ReleaseUncertain { .. }) => Ok(()),
            released => released,
        };
        match done.and(released) {
            Ok(()) => Ok(OperationBody {
                success: true,
                resource_id: self.key.to_string(),
                duration_ms: millis(begun.elapsed()),
                fence,
            }),
            Err(error) => {
                tracing::warn!(key = %self.key, %error, "an operation failed");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let problem = Problem::new(status, "failed", "Operation failed");
                let message = "Failed to complete operation".to_owned();
                Err(problem.with(|body| body.message = Some(message)))
            }
        }
    }

    /// Why the lock was not to be had. Those who are turned away always learn when to come back.
    async fn refuse(&self, error: Error) -> Problem {
        let message = format!("Resource '{}' is being processed by another request", self.key);
        let locked = matches!(
            error,
            Error::Held { .. }
                | Error::Timeout { source: None, .. }
                | Error::RetriesExhausted { .. }
        );
        let (locks, key) = (&self.locks, &self.key);
        let problem = Problem::after_a_wait(error, locks, key, self.ttl, Problem::from).await;
        if locked { problem.with(|body| body.message = Some(message)) } else { problem }
    }
}

fn no_redlock() -> Problem {
    let status = StatusCode::NOT_IMPLEMENTED;
    let problem = Problem::new(status, "unsupported", "Not supported");
    problem.detail(
        "redlock needs a quorum of independent servers: start the service with \
         --redlock 'quorum:?node=URL&node=URL&node=URL', or with such a --backend",
    )
}

/// Pauses that grow from 50 ms to a second.
fn backoff() -> Backoff {
    Backoff::exponential(Duration::from_millis(50), Duration::from_secs(1))
}
