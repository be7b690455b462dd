//! The layer of a server: admits requests by their fence.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::LOCK_FENCE_HEADER;
use super::resources::{Resources, Running};
use crate::Refused;

/// How many resources are remembered at least.
const RESOURCES: usize = 100_000;

/// How long a request waits for those of older holders.
const WAIT_MAX: Duration = Duration::from_secs(30);

type ResourceOf = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Refuses requests whose `Lock-Fence` is smaller than the largest that their resource has seen.
///
/// Clones, and all services that one layer wraps, share the fences. A request counts as being
/// answered until its response is ready, so a handler must have made its writes by then.
#[derive(Clone)]
pub struct FenceLayer {
    resources: Arc<Resources>,
    resource_of: ResourceOf,
    capacity: usize,
    unfenced_writes: bool,
    wait_max: Duration,
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resources: _, resource_of: _, capacity, unfenced_writes, wait_max } = self;
        f.debug_struct("FenceLayer")
            .field("capacity", capacity)
            .field("unfenced_writes", unfenced_writes)
            .field("wait_max", wait_max)
            .finish_non_exhaustive()
    }
}

impl FenceLayer {
    /// A layer that finds the resource of a request by `resource_of`. All requests under one key of
    /// a lock must have one resource. Requests for which it returns `None` are not checked.
    pub fn new(resource_of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            resources: Arc::new(Resources::new(RESOURCES, 0)),
            resource_of: Arc::new(resource_of),
            capacity: RESOURCES,
            unfenced_writes: false,
            wait_max: WAIT_MAX,
        }
    }

    /// Refuses all fences below this one. Give it after a restart: the largest fence that was
    /// stored with the data, or that any lock has handed out.
    #[must_use]
    pub fn floor(mut self, floor: u64) -> Self {
        self.resources = Arc::new(Resources::new(self.capacity, floor));
        self
    }

    /// Admits writes without a fence, for as long as some clients do not send one. Such a write is
    /// not protected, and does not protect others.
    #[must_use]
    pub fn allow_unfenced_writes(mut self) -> Self {
        self.unfenced_writes = true;
        self
    }

    /// How long a request of a newer holder waits for those of older ones before it is answered
    /// with 503. 30 s unless set.
    #[must_use]
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// What to do with a request.
    fn demand(&self, parts: &Parts) -> Result<Option<(String, u64)>, Rejection> {
        let Some(resource) = (self.resource_of)(parts) else { return Ok(None) };
        let mut sent = parts.headers.get_all(LOCK_FENCE_HEADER).iter();
        let Some(first) = sent.next() else {
            let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
            return if reads || self.unfenced_writes { Ok(None) } else { Err(Rejection::Missing) };
        };
        let fence = first.to_str().ok().and_then(|text| text.parse().ok());
        match fence.filter(|_| sent.next().is_none()) {
            Some(fence) => Ok(Some((resource, fence))),
            None => Err(Rejection::Malformed),
        }
    }

    async fn admit(&self, resource: &str, fence: u64) -> Result<Running, Rejection> {
        let admitted = self.resources.admit(resource, fence);
        match tokio::time::timeout(self.wait_max, admitted).await {
            Ok(admitted) => admitted.map_err(Rejection::Refused),
            Err(_) => Err(Rejection::Busy),
        }
    }
}

/// Why a request does not reach the service.
#[derive(Clone, Copy, Debug)]
enum Rejection {
    Missing,
    Malformed,
    Refused(Refused),
    Busy,
}

impl Rejection {
    fn into_response<B: From<String>>(self) -> Response<B> {
        let (status, text) = match self {
            Self::Missing => {
                let text = "send the fence of your lock in the header Lock-Fence";
                (StatusCode::PRECONDITION_REQUIRED, text.to_owned())
            }
            Self::Malformed | Self::Refused(Refused::Invalid { .. }) => {
                let text = "Lock-Fence is one number between 1 and 2^53 - 1";
                (StatusCode::BAD_REQUEST, text.to_owned())
            }
            Self::Refused(refused) => (StatusCode::PRECONDITION_FAILED, refused.to_string()),
            Self::Busy => {
                let text = "a request of an earlier holder has not ended: try again";
                (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            }
        };
        let mut response = Response::new(B::from(text));
        *response.status_mut() = status;
        match self {
            Self::Refused(Refused::Stale { newest, .. }) => {
                response.headers_mut().insert(LOCK_FENCE_HEADER, HeaderValue::from(newest));
            }
            Self::Busy => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
            }
            _ => (),
        }
        response
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, layer: self.clone() }
    }
}

/// What [`FenceLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready is the one to call; its clone may not be.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let admitted = match layer.demand(&parts) {
                Ok(None) => None,
                Ok(Some((resource, fence))) => match layer.admit(&resource, fence).await {
                    Ok(running) => Some(running),
                    Err(rejection) => return Ok(rejection.into_response()),
                },
                Err(rejection) => return Ok(rejection.into_response()),
            };
            let answered = inner.call(Request::from_parts(parts, body)).await;
            drop(admitted);
            answered
        })
    }
}
