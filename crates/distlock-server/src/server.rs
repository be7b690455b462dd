//! Listening, serving connections, and stopping without losing anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use distlock::Locks;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::delivery::Transit;
use crate::line::Line;
use crate::state::{App, Peer};
use crate::{Config, Error, metrics, router};

/// How long the head of the first request may take.
const HEAD_MAX: Duration = Duration::from_secs(5);

/// How long a connection may be idle between requests, and the head of a later one may take.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// The most that the head of a request may take up.
const HEAD_LEN_MAX: usize = 8 * 1024;

/// How long requests under way may take to end when the service stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A client that answers nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The HTTP service, listening.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

impl Server {
    /// Listens. Connections wait until [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// [`Error::Unprotected`] for an address that others can reach, without tokens;
    /// [`Error::Listen`] if the address cannot be had.
    pub async fn bind(config: Config, locks: Locks) -> Result<Self, Error> {
        let address = config.listen;
        if config.tokens.is_empty() && !address.ip().is_loopback() {
            return Err(Error::Unprotected(address));
        }
        let refuse = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Self { listener, address, app: Arc::new(App::new(config, locks)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled. Then whoever waits is sent away, operations under way are
    /// ended and their locks released; leases stay, since they belong to their clients.
    ///
    /// # Errors
    ///
    /// [`Error::Locks`] if not everything could be released in time.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { listener, app, .. } = self;
        let router = router::router(&app);
        let places = Arc::new(Semaphore::new(app.config.connections_max));
        let connections = TaskTracker::new();
        connections.spawn(metrics::tidy(Arc::clone(&app)));
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place,
                () = stop.cancelled() => break,
            };
            let Ok(place) = place else { break };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let (router, app) = (router.clone(), Arc::clone(&app));
                        connections.spawn(connection(stream, peer, router, app, place));
                    }
                    Err(error) => {
                        // Out of file descriptors, as a rule: some will be given back.
                        tracing::warn!(%error, "could not accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                () = stop.cancelled() => break,
            }
        }
        drop(listener);
        app.stop.cancel();
        connections.close();
        // Whoever is not done by then is cut off, and its locks are released below.
        let _ = tokio::time::timeout(STOP_MAX, connections.wait()).await;
        app.locks.close().await?;
        Ok(())
    }
}

/// What proxies add to the requests that they pass on.
const PASSED_ON: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Serves one connection to its end.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    app: Arc<App>,
    place: OwnedSemaphorePermit,
) {
    set_up(&stream);
    let (stream, transit) = (Arc::new(stream), Arc::new(Transit::new(app.config.behind_proxy)));
    let seen = Arc::new(AtomicBool::new(false));
    serve(&stream, &transit, &seen, peer, router, &app).await;
    transit.settle(&stream).await;
    drop(place);
}

async fn serve(
    stream: &Arc<TcpStream>,
    transit: &Arc<Transit>,
    seen: &Arc<AtomicBool>,
    peer: SocketAddr,
    router: Router,
    app: &App,
) {
    let (carried, begun) = (Arc::clone(transit), Arc::clone(seen));
    let behind_proxy = app.config.behind_proxy;
    let service = service_fn(move |request: Request<Incoming>| {
        begun.store(true, Ordering::Relaxed);
        let mut request = request.map(Body::new);
        if PASSED_ON.iter().any(|name| request.headers().contains_key(*name)) {
            carried.passed_on();
        }
        let peer = if behind_proxy { Peer(peer).behind(request.headers()) } else { Peer(peer) };
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&carried));
        router.clone().call(request)
    });
    let line = TokioIo::new(Line::new(Arc::clone(stream), Arc::clone(transit)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(line, service);
    tokio::pin!(connection);
    let head = tokio::time::sleep(HEAD_MAX);
    tokio::pin!(head);
    let (mut stopping, mut waited) = (false, false);
    loop {
        tokio::select! {
            // How a client leaves is its own affair, and what it left is settled below.
            _ = connection.as_mut() => return,
            () = app.stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = head.as_mut(), if !waited => {
                waited = true;
                if !seen.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }
}

/// Small answers go out at once, and a client that vanished without a word is noticed.
fn set_up(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(2);
    // A socket that cannot do these still works, just less well.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(SILENCE_MAX));
}
