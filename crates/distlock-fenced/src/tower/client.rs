//! The layer of a client: sends its fence.

use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::LOCK_FENCE_HEADER;
use crate::Refused;

/// Sends the fence of a lock with every request. Make one for each guard.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use distlock::Locks;
/// use distlock_fenced::tower::SendFenceLayer;
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let http_client = service_fn(|request: Request<()>| async move {
///     Ok::<_, std::io::Error>(Response::new(request.headers()["lock-fence"].clone()))
/// });
///
/// let guard = Locks::memory().mutex("account/17")?.lock().await?;
/// let client = SendFenceLayer::new(guard.fence()).layer(http_client);
/// let response = client.oneshot(Request::put("/accounts/17").body(())?).await?;
/// assert_eq!(response.body().to_str()?, guard.fence().to_string());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SendFenceLayer {
    fence: u64,
}

impl SendFenceLayer {
    /// Sends this fence.
    pub fn new(fence: u64) -> Self {
        Self { fence }
    }
}

impl<S> Layer<S> for SendFenceLayer {
    type Service = SendFence<S>;

    fn layer(&self, inner: S) -> SendFence<S> {
        SendFence { inner, fence: self.fence }
    }
}

/// What [`SendFenceLayer`] makes of a client.
#[derive(Clone, Copy, Debug)]
pub struct SendFence<S> {
    inner: S,
    fence: u64,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for SendFence<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.headers_mut().insert(LOCK_FENCE_HEADER, HeaderValue::from(self.fence));
        self.inner.call(request)
    }
}

/// The refusal that a response to a request with `fence` stands for, if it is one.
///
/// ```
/// use distlock_fenced::{Refused, tower::refusal};
///
/// let response = http::Response::builder().status(412).header("Lock-Fence", "8").body(())?;
/// assert_eq!(refusal(&response, 7), Some(Refused::Stale { fence: 7, newest: 8 }));
/// # Ok::<(), http::Error>(())
/// ```
pub fn refusal<B>(response: &Response<B>, fence: u64) -> Option<Refused> {
    if response.status() != StatusCode::PRECONDITION_FAILED {
        return None;
    }
    let newest = response.headers().get(LOCK_FENCE_HEADER)?.to_str().ok()?.parse().ok()?;
    Some(Refused::Stale { fence, newest })
}
