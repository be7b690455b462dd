//! The connection to the store: dialled when it is needed, given up when it fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use distlock_core::{Fault, Push};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::broadcast;

use super::config::{Config, Topology};
use super::faults::{ends_connection, fault, is_denied};
use super::script::{Script, is_unknown};
use super::wire;

/// How many pushes a listener may fall behind. What it misses, its next heartbeat tells.
const PUSHES_MAX: usize = 1024;

/// The one connection of a client, shared by all its calls.
pub(super) struct Link {
    config: Config,
    current: Mutex<Option<Live>>,
    /// Held while dialling, so that a hundred callers make one connection.
    dialling: tokio::sync::Mutex<u64>,
    pushes: broadcast::Sender<Push>,
    channel: String,
    push_denied: AtomicBool,
}

/// A connection and its number.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    serial: u64,
}

impl Link {
    /// A link that listens on `channel`. Nothing is dialled yet.
    pub(super) fn new(config: Config, channel: String) -> Self {
        Self {
            config,
            current: Mutex::new(None),
            dialling: tokio::sync::Mutex::new(0),
            pushes: broadcast::channel(PUSHES_MAX).0,
            channel,
            push_denied: AtomicBool::new(false),
        }
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Push> {
        self.pushes.subscribe()
    }

    /// True unless the server does not let this user listen.
    pub(super) fn can_push(&self) -> bool {
        !self.push_denied.load(Ordering::Relaxed)
    }

    /// Runs a script by its hash, or by its text if the server does not know the hash.
    pub(super) async fn eval(
        &self,
        action: &'static str,
        script: &Script,
        keys: &[String],
        args: &[Vec<u8>],
    ) -> Result<Value, Fault> {
        let mut answer = self.send(action, &script.by_hash(keys, args)).await?;
        if is_unknown(&answer) {
            answer = self.send(action, &script.by_text(keys, args)).await?;
        }
        answer.map_err(|error| fault(action, error))
    }

    /// Sends one command.
    pub(super) async fn run(&self, action: &'static str, cmd: &Cmd) -> Result<Value, Fault> {
        self.send(action, cmd).await?.map_err(|error| fault(action, error))
    }

    /// The outer result is about the connection, the inner one is the server's answer.
    async fn send(
        &self,
        action: &'static str,
        cmd: &Cmd,
    ) -> Result<Result<Value, RedisError>, Fault> {
        let mut live = self.live(action).await?;
        let answer = live.connection.req_packed_command(cmd).await;
        if let Err(error) = &answer
            && ends_connection(error)
        {
            self.give_up(live.serial);
        }
        Ok(answer.and_then(Value::extract_error))
    }

    fn current(&self) -> MutexGuard<'_, Option<Live>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self, serial: u64) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|live| live.serial == serial) {
            *current = None;
        }
    }

    /// The connection, dialled if there is none.
    async fn live(&self, action: &'static str) -> Result<Live, Fault> {
        if let Some(live) = self.current().clone() {
            return Ok(live);
        }
        let mut dialled = self.dialling.lock().await;
        if let Some(live) = self.current().clone() {
            return Ok(live);
        }
        let connection = self.dial().await.map_err(|error| fault(action, error))?;
        *dialled += 1;
        let live = Live { connection, serial: *dialled };
        *self.current() = Some(live.clone());
        if *dialled > 1 {
            // Whatever was pushed between the two connections is lost.
            let _ = self.pushes.send(Push::Interrupted);
        }
        Ok(live)
    }

    async fn dial(&self) -> Result<MultiplexedConnection, RedisError> {
        let client = match &self.config.topology {
            Topology::Server(info) => redis::Client::open(info.clone())?,
        };
        let (pushes, channel) = (self.pushes.clone(), self.channel.clone());
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.connect_timeout))
            .set_response_timeout(Some(self.config.response_timeout))
            .set_push_sender(move |info: PushInfo| {
                if let Some(push) = read_push(&info, &channel) {
                    // Nobody listening is no error: the heartbeat tells.
                    let _ = pushes.send(push);
                }
                Ok::<_, redis::aio::SendError>(())
            });
        let mut connection = client.get_multiplexed_async_connection_with_config(&settings).await?;
        self.subscribe(&mut connection).await?;
        Ok(connection)
    }

    /// Listens before anything is asked, so that no push can be missed.
    async fn subscribe(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        match connection.subscribe(&self.channel).await {
            Err(error) if is_denied(&error) => {
                if !self.push_denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        channel = %self.channel,
                        "the user may not subscribe: waiters are told by heartbeats only"
                    );
                }
                Ok(())
            }
            other => other,
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("config", &self.config).finish_non_exhaustive()
    }
}

fn read_push(info: &PushInfo, channel: &str) -> Option<Push> {
    match (&info.kind, info.data.as_slice()) {
        (PushKind::Message, [name, message]) if wire::as_text(name).ok()? == channel => {
            wire::push(&wire::as_text(message).ok()?)
        }
        (PushKind::Disconnection, _) => Some(Push::Interrupted),
        _ => None,
    }
}
