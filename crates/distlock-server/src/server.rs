//! Listening, accepting connections, and stopping without losing anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use distlock::Locks;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth_throttle::Range;
use crate::listen::Listener;
use crate::serving::{Accepted, serve};
use crate::state::App;
use crate::{Listen, ServerConfig, ServerError, ServerTls, Tokens, losses, metrics, router};

/// How long requests under way may take to end when the service stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The HTTP service, listening.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    app: Arc<App>,
}

/// Replaces what a running service was configured with. Connections stay open.
#[derive(Clone, Debug)]
pub struct Reloader(Arc<App>);

impl Server {
    /// Listens. Connections wait until [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// [`ServerError::Unprotected`] for an address that others can reach, without tokens;
    /// [`ServerError::Listen`] if the address cannot be had.
    pub async fn bind(config: ServerConfig, locks: Locks) -> Result<Self, ServerError> {
        if let Listen::Tcp(address) = config.listen
            && config.tokens.is_empty()
            && !config.listen.is_local()
        {
            return Err(ServerError::Unprotected(address));
        }
        let listener = Listener::bind(&config.listen).await?;
        Ok(Self { listener, app: Arc::new(App::new(config, locks)) })
    }

    /// The address it listens on; none for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Where clients find it: `http://127.0.0.1:3009`, `https://…`, or `unix:` and a path.
    pub fn url(&self) -> String {
        let scheme = if self.app.tls.is_some() { "https" } else { "http" };
        match self.address() {
            Some(address) => format!("{scheme}://{address}"),
            None => self.app.config.listen.to_string(),
        }
    }

    /// A handle that replaces tokens and certificates while the service runs.
    pub fn reloader(&self) -> Reloader {
        Reloader(Arc::clone(&self.app))
    }

    /// Serves until `stop` is cancelled. Then requests that wait are sent away, operations in
    /// progress are ended and their locks released; leases stay, since they belong to their
    /// clients.
    ///
    /// # Errors
    ///
    /// [`ServerError::Locks`] if not everything could be released in time. The locks that were not
    /// end with their leases.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServerError> {
        let Self { listener, app } = self;
        let router = router::router(&app);
        let tasks = TaskTracker::new();
        tasks.spawn(metrics::tidy(Arc::clone(&app)));
        tasks.spawn(losses::count(Arc::clone(&app)));
        loop {
            let accepted = tokio::select! {
                accepted = async {
                    app.connections.room().await;
                    listener.accept().await
                } => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((socket, peer)) => {
                    let connection = app.connections.open(range(&app, peer));
                    let (socket, app) = (Arc::new(socket), Arc::clone(&app));
                    tasks.spawn(serve(Accepted { socket, peer, connection, app }, router.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, as a rule: some will be given back.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        app.stop.cancel();
        tasks.close();
        // Requests that are not done by then are cut off, and their locks are released below.
        let _ = tokio::time::timeout(STOP_MAX, tasks.wait()).await;
        let redlock = match &app.redlock {
            Some(redlock) => redlock.close().await,
            None => Ok(()),
        };
        app.locks.close().await?;
        Ok(redlock?)
    }
}

impl Reloader {
    /// Replaces the tokens. Requests that were let in go on; the next ones need a new token.
    ///
    /// A service that was started without tokens stays without: it refuses none.
    pub fn replace_tokens(&self, tokens: Tokens) {
        if self.0.tokens.load().is_empty() || tokens.is_empty() {
            return;
        }
        self.0.limits.keep(|name| tokens.names().any(|known| known == name));
        self.0.tokens.store(tokens);
    }

    /// Replaces certificate and key for new connections, where the service has TLS.
    pub fn replace_tls(&self, tls: ServerTls) {
        if let Some(present) = &self.0.tls {
            present.store(tls);
        }
    }
}

/// Which connections count together; none where all clients have the same address.
fn range(app: &App, peer: SocketAddr) -> Option<Range> {
    let shared = app.config.behind_proxy || matches!(app.config.listen, Listen::Unix(_));
    (!shared).then(|| Range::of(peer.ip()))
}
