//! One connection from its first byte to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::connections::{TrackedConnection, UNKNOWN_IDLE_MAX};
use crate::delivery::Transit;
use crate::socket::{Socket, SocketIo};
use crate::state::{App, Peer};
use crate::tracked_stream::TrackedStream;

/// How long a connection may be idle between requests, and the head of a later one may take.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// The most that the head of a request may take up.
const HEAD_LEN_MAX: usize = 8 * 1024;

/// What proxies add to the requests that they pass on.
const PROXY_HEADERS: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// A connection that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Arc<TrackedConnection>,
    pub(crate) app: Arc<App>,
}

/// Counts a connection until it is dropped, also if its task is.
struct OpenConnection(Arc<App>, Arc<TrackedConnection>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.close(&self.1);
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(accepted: Accepted, router: Router) {
    let _open = OpenConnection(Arc::clone(&accepted.app), Arc::clone(&accepted.connection));
    let Accepted { app, socket, .. } = &accepted;
    let io = SocketIo(Arc::clone(socket));
    let tls = app.tls.as_ref().map(|tls| tls.load().config());
    // What a TLS library reads ahead or answers by itself makes resets say nothing about a grant.
    let transit = Arc::new(Transit::new(app.config.behind_proxy || tls.is_some()));
    match tls {
        None => speak(&accepted, &transit, io, router).await,
        Some(config) => {
            let handshake = TlsAcceptor::from(config).accept(io);
            let encrypted = tokio::select! {
                done = tokio::time::timeout(UNKNOWN_IDLE_MAX, handshake) => done,
                () = accepted.connection.evicted() => return,
                () = app.stop.cancelled() => return,
            };
            match encrypted {
                Ok(Ok(stream)) => speak(&accepted, &transit, stream, router).await,
                Ok(Err(error)) => {
                    tracing::debug!(peer = %accepted.peer, %error, "TLS handshake failed");
                }
                Err(_) => tracing::debug!(peer = %accepted.peer, "TLS handshake took too long"),
            }
        }
    }
    transit.settle(socket).await;
}

/// Speaks HTTP until the client leaves, is idle for too long, or the service stops.
async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
    accepted: &Accepted,
    transit: &Arc<Transit>,
    inner: S,
    router: Router,
) {
    let Accepted { socket, peer, connection, app } = accepted.clone();
    let (carried, counted, behind_proxy) =
        (Arc::clone(transit), Arc::clone(&connection), app.config.behind_proxy);
    let service = service_fn(move |request: Request<Incoming>| {
        counted.begin();
        let mut request = request.map(Body::new);
        if PROXY_HEADERS.iter().any(|name| request.headers().contains_key(*name)) {
            carried.passed_on();
        }
        let peer = if behind_proxy { Peer(peer).behind(request.headers()) } else { Peer(peer) };
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&carried));
        request.extensions_mut().insert(Arc::clone(&counted));
        let (answering, counted) = (router.clone().call(request), Arc::clone(&counted));
        async move {
            let answer = answering.await;
            counted.end();
            answer
        }
    });
    let (transit, tracked) = (Arc::clone(transit), Arc::clone(&connection));
    let stream = TrackedStream { inner, socket, transit, connection: tracked };
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(http);
    let idle = tokio::time::sleep(UNKNOWN_IDLE_MAX);
    tokio::pin!(idle);
    let (mut stopping, mut watched) = (false, true);
    loop {
        tokio::select! {
            // How a client leaves is its own affair, and what it left is settled by the caller.
            _ = http.as_mut() => return,
            () = connection.evicted() => return,
            () = app.stop.cancelled(), if !stopping => {
                stopping = true;
                http.as_mut().graceful_shutdown();
            }
            () = idle.as_mut(), if watched => {
                let now = Instant::now();
                match connection.idle_until(now) {
                    Some(until) if until <= now => return,
                    Some(until) => idle.as_mut().reset(until.into()),
                    None => watched = false,
                }
            }
        }
    }
}
