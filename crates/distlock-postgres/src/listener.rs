//! ListenState of grants: a connection of its own that listens.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_core::Push;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Connection, Error, Socket};

use super::notifier::{self, PROBE};
use super::shared::PostgresShared;
use super::tls::EncryptedStream;

/// How long a message of this client to itself may take before it counts as not heard: a pooler in
/// between has no sessions to listen in.
const PROBE_MAX: Duration = Duration::from_millis(500);

/// Whether this client hears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListenState {
    /// Not yet, or not any more.
    #[default]
    Off,
    /// A connection is being made.
    Starting,
    On,
    /// What is sent to this client does not arrive. That is final.
    Impossible,
}

/// The connection that listens, made again by the next call that waits after it broke.
#[derive(Debug, Default)]
pub(super) struct PushListener {
    state: watch::Sender<ListenState>,
    has_listened: AtomicBool,
}

impl PushListener {
    /// True unless it turned out that nothing arrives.
    pub(super) fn can_listen(&self) -> bool {
        *self.state.borrow() != ListenState::Impossible
    }

    /// Listens, and waits until it is known whether that works. A listener that cannot be had costs
    /// waiters their pushes and nothing else.
    pub(super) async fn ensure(&self, shared: &Arc<PostgresShared>) {
        let mut is_new = false;
        self.state.send_if_modified(|state| {
            is_new = *state == ListenState::Off;
            if is_new {
                *state = ListenState::Starting;
            }
            is_new
        });
        if is_new {
            tokio::spawn(listen(Arc::clone(shared)));
        }
        let within = shared.config.response_timeout / 2;
        let mut state = self.state.subscribe();
        // The caller asks its question anyway, and has a deadline of its own.
        let _ = timeout(within, state.wait_for(|state| *state != ListenState::Starting)).await;
    }

    fn set(&self, state: ListenState) {
        self.state.send_replace(state);
    }
}

type Stream = Connection<Socket, EncryptedStream<Socket>>;

/// Listens until the connection ends.
async fn listen(shared: Arc<PostgresShared>) {
    let Some(server) = &shared.config.listen else {
        shared.listener.set(ListenState::Impossible);
        return;
    };
    let dialled = timeout(shared.config.response_timeout, shared.config.dial(server)).await;
    let Ok(Ok((client, mut stream))) = dialled else {
        shared.listener.set(ListenState::Off);
        return;
    };
    let own = notifier::channel(shared.client);
    let ask = format!("LISTEN {own}");
    let send_probe = async {
        client.batch_execute(&ask).await?;
        // Over another connection: that is the way of all other messages.
        let probe = [(own.clone(), PROBE.to_owned())];
        if let Err(fault) = notifier::notify(&shared, &probe).await {
            tracing::debug!(%fault, "the listener cannot be tried");
        }
        std::future::pending::<Result<bool, Error>>().await
    };
    let heard = timeout(PROBE_MAX, async {
        tokio::select! {
            failed = send_probe => failed,
            heard = receive(&shared, &mut stream, true) => heard,
        }
    });
    match heard.await {
        Ok(Ok(true)) => {}
        Ok(ended) => {
            tracing::debug!(?ended, "this client cannot listen yet");
            shared.listener.set(ListenState::Off);
            return;
        }
        Err(_) => {
            let cure = "name the server itself with listen=postgres://HOST, or say listen=off";
            tracing::warn!(cure, "grants are not pushed: a pooler is in between");
            shared.listener.set(ListenState::Impossible);
            return;
        }
    }
    if shared.listener.has_listened.swap(true, Ordering::SeqCst) {
        // What came while this client did not listen is lost.
        let _ = shared.pushes.send(Push::Interrupted);
    }
    shared.listener.set(ListenState::On);
    let ended = receive(&shared, &mut stream, false).await;
    tracing::debug!(?ended, "the listener has ended");
    drop(client);
    shared.listener.set(ListenState::Off);
    let _ = shared.pushes.send(Push::Interrupted);
}

/// Passes on what arrives until the connection ends, or until the first probe, which is true.
async fn receive(
    shared: &PostgresShared,
    stream: &mut Stream,
    until_probe: bool,
) -> Result<bool, Error> {
    while let Some(message) = poll_fn(|cx| stream.poll_message(cx)).await {
        let AsyncMessage::Notification(told) = message? else { continue };
        if until_probe && told.payload() == PROBE {
            return Ok(true);
        }
        for push in notifier::decode(told.payload()) {
            let push = if shared.config.verify_push { unverified(push) } else { push };
            // A client without a receiver is no error: the heartbeat finds the grant.
            let _ = shared.pushes.send(push);
        }
    }
    Ok(false)
}

/// What is left of a message that another user may have sent: a reason to ask the server.
fn unverified(push: Push) -> Push {
    match push {
        Push::Granted { id, .. } | Push::Broken { id } => Push::Check { id },
        other => other,
    }
}
