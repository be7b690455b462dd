//! The connections of a client to its store: dialled when they are needed, given up when they fail.

mod dialling;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use distlock_core::{Fault, Push};
use redis::{Cmd, ConnectionAddr, Pipeline, RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::broadcast;

use self::dialling::forget;
use super::codec;
use super::config::Config;
use super::connection::{Connection, Node};
use super::faults::{ends_connection, fault};
use super::library::{Library, LibraryCall, is_missing};
use super::prepare::SeenFences;

use distlock_core::sync::lock;

/// How many pushes a listener may fall behind. What it misses, its next heartbeat tells.
const PUSHES_MAX: usize = 1024;

/// How many channels of a cluster are listened to at once, one for each key waited for.
const CHANNELS_MAX: usize = 1024;

/// How many calls in a row fail before the connection to a cluster is made anew.
const FAILED_MAX: u32 = 4;

/// How many runtimes have a connection at once. Beyond it the oldest connection is given up.
const RUNTIMES_MAX: usize = 16;

/// The connections of a client: one for each runtime that calls. A connection is driven by a task
/// of the runtime that made it, so no call depends on another runtime being polled.
pub(super) struct RedisConnections {
    config: Config,
    client: String,
    /// What is listened to from the start; on a cluster nothing is.
    channel: Option<String>,
    /// The fence counter, where all keys share one.
    counter: Option<String>,
    pub(super) seen: Arc<SeenFences>,
    pub(super) library: Arc<Library>,
    current: Arc<Mutex<Vec<Live>>>,
    /// The runtime whose connection listens to pushes; any if none is chosen.
    listener: Mutex<Option<Id>>,
    /// Of each runtime a lock that is held while dialling, so that a hundred callers make one
    /// connection.
    dialling: Mutex<Vec<(Id, Dialling)>>,
    /// This value, for tasks that go on when the caller that started them does not.
    me: Weak<Self>,
    pushes: broadcast::Sender<Push>,
    push_denied: AtomicBool,
    /// The channels of keys, the one asked for last at the end.
    channels: Arc<Mutex<VecDeque<String>>>,
    /// How many calls in a row have failed.
    failed: AtomicU32,
    epoch: Mutex<Epoch>,
    /// How many connections were dialled.
    dialled: AtomicU64,
}

/// The incarnation of the server that the latest connection reached. It is unknown on a cluster,
/// and where the user may not ask: there, every connection begins an epoch.
#[derive(Debug, Default)]
struct Epoch {
    number: u64,
    incarnation: Option<String>,
}

impl Epoch {
    /// Notes what a connection reached. Another runtime's connection to the same incarnation
    /// begins no epoch: what the server promised before it still knows.
    fn note(&mut self, incarnation: Option<String>) {
        if incarnation.is_none() || self.incarnation != incarnation {
            self.number += 1;
            self.incarnation = incarnation;
        }
    }
}

type Dialling = Arc<tokio::sync::Mutex<()>>;

/// A connection, where the primary is, if Sentinels named it, and the incarnation of the server.
type Dialled = (Connection, Option<ConnectionAddr>, Option<String>);

/// A connection, its number, and the runtime that drives it.
#[derive(Clone)]
struct Live {
    connection: Connection,
    serial: u64,
    runtime: Id,
    /// It is subscribed to the channel of this client.
    listens: bool,
    /// Where the primary is, if Sentinels named it.
    primary: Option<ConnectionAddr>,
}

impl RedisConnections {
    /// The connections of the client of this id. Nothing is dialled yet.
    pub(super) fn new(
        config: Config,
        client: String,
        channel: Option<String>,
        counter: Option<String>,
    ) -> Arc<Self> {
        let push_denied = AtomicBool::new(config.is_shared());
        if config.is_shared() {
            tracing::warn!(
                "nothing is pushed over a shared connection: waiters look by themselves"
            );
        }
        Arc::new_cyclic(|me| Self {
            config,
            client,
            channel,
            counter,
            seen: Arc::default(),
            library: Arc::default(),
            current: Arc::default(),
            listener: Mutex::default(),
            dialling: Mutex::default(),
            me: me.clone(),
            pushes: broadcast::channel(PUSHES_MAX).0,
            push_denied,
            channels: Arc::default(),
            failed: AtomicU32::new(0),
            epoch: Mutex::default(),
            dialled: AtomicU64::new(0),
        })
    }

    /// Changes when a connection reaches another incarnation of the server than the one before it.
    pub(super) fn epoch(&self) -> u64 {
        lock(&self.epoch).number
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Pushes from now on. The connection of the runtime that asks listens to them, and no other.
    pub(super) fn listen(&self) -> broadcast::Receiver<Push> {
        if let Ok(runtime) = Handle::try_current() {
            *lock(&self.listener) = Some(runtime.id());
        }
        self.pushes.subscribe()
    }

    /// Sees to it that the connection of the present runtime listens, if it is the one to do so. A
    /// connection that cannot be made is made by the next call.
    pub(super) async fn begin_to_listen(&self) {
        if *lock(&self.listener) != Some(Handle::current().id()) {
            return;
        }
        // Made now, and not when the first lease is about to end.
        let Ok(mut live) = self.live("listen").await else { return };
        let Some(channel) = &self.channel else { return };
        if !live.listens && self.subscribe(&mut live.connection, channel).await.is_ok() {
            let mut current = lock(&self.current);
            if let Some(known) = current.iter_mut().find(|known| known.serial == live.serial) {
                known.listens = true;
            }
            drop(current);
            // Whatever was pushed before is lost.
            self.tell(Push::Interrupted);
        }
    }

    /// Tells those who listen, as if the server had.
    pub(super) fn tell(&self, push: Push) {
        self.seen.note_push(&push);
        // Nobody listening is no error: the heartbeat tells.
        let _ = self.pushes.send(push);
    }

    /// How long a call may take, with a connection to be made first.
    pub(super) fn patience(&self) -> Duration {
        2 * (self.config.connect_timeout + self.config.response_timeout)
    }

    /// True unless the server does not let this user listen.
    pub(super) fn can_push(&self) -> bool {
        !self.push_denied.load(Ordering::Relaxed)
    }

    /// True if others speak over the same connection.
    pub(super) fn is_shared(&self) -> bool {
        self.config.is_shared()
    }

    /// Calls a verb of the library.
    pub(super) async fn call(
        &self,
        action: &'static str,
        call: &LibraryCall,
    ) -> Result<Value, Fault> {
        self.try_call(action, call).await?.map_err(|error| fault(action, error))
    }

    /// The same; the inner result is the server's answer.
    pub(super) async fn try_call(
        &self,
        action: &'static str,
        call: &LibraryCall,
    ) -> Result<Result<Value, RedisError>, Fault> {
        let mut live = self.live(action).await?;
        let answer = self.send_over(&mut live, &self.library.command(call)).await;
        if is_missing(&answer) {
            let again = Box::pin(self.call_again(action, &[call])).await?;
            return Ok(again.into_iter().next().unwrap_or(answer));
        }
        Ok(answer)
    }

    /// Calls verbs, all of them in one message.
    pub(super) async fn call_each(
        &self,
        action: &'static str,
        calls: &[LibraryCall],
    ) -> Result<Vec<Result<Value, RedisError>>, Fault> {
        if let [call] = calls {
            return Ok(vec![self.try_call(action, call).await?]);
        }
        let mut live = self.live(action).await?;
        let mut cmds = Pipeline::with_capacity(calls.len());
        for call in calls {
            cmds.add_command(self.library.command(call));
        }
        let answers = live.connection.send_all(&cmds).await;
        let mut answers = self.check(action, live.serial, calls.len(), answers)?;
        let missing: Vec<_> = (0..answers.len()).filter(|at| is_missing(&answers[*at])).collect();
        if !missing.is_empty() {
            let calls: Vec<_> = missing.iter().map(|at| &calls[*at]).collect();
            let again = Box::pin(self.call_again(action, &calls)).await?;
            for (at, answer) in missing.into_iter().zip(again) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    /// Calls once more what the server did not know.
    async fn call_again(
        &self,
        action: &'static str,
        calls: &[&LibraryCall],
    ) -> Result<Vec<Result<Value, RedisError>>, Fault> {
        let mut live = self.live(action).await?;
        let answers = self.library.call_again(&mut live.connection, calls).await;
        self.check(action, live.serial, calls.len(), answers)
    }

    /// Sends one command.
    pub(super) async fn run(&self, action: &'static str, cmd: &Cmd) -> Result<Value, Fault> {
        self.send(action, cmd).await?.map_err(|error| fault(action, error))
    }

    /// The nodes that hold the keys: just one unless it is a cluster.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, Fault> {
        if !self.config.is_cluster() {
            return Ok(vec![Node::Any]);
        }
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("NODES");
        let answer = self.run_at(&Node::Any, "look at the cluster", &cmd).await?;
        let mut nodes = Node::primaries(&codec::as_str(&answer)?);
        nodes.sort();
        Ok(nodes)
    }

    /// Sends one command to one node.
    pub(super) async fn run_at(
        &self,
        node: &Node,
        action: &'static str,
        cmd: &Cmd,
    ) -> Result<Value, Fault> {
        let mut live = self.live(action).await?;
        live.connection.send_to(node, cmd).await.map_err(|error| fault(action, error))
    }

    /// Listens to the channel of a key from now on. True if it did not before, so that a push may
    /// have been missed.
    pub(super) async fn listen_to(&self, channel: String) -> Result<bool, Fault> {
        let known = lock(&self.channels).contains(&channel);
        if known || !self.can_push() {
            return Ok(false);
        }
        let mut live = self.live("subscribe").await?;
        self.subscribe(&mut live.connection, &channel).await.map_err(|e| fault("subscribe", e))?;
        let oldest = {
            let mut channels = lock(&self.channels);
            channels.push_back(channel);
            if channels.len() > CHANNELS_MAX { channels.pop_front() } else { None }
        };
        if let Some(oldest) = oldest {
            // A channel that is listened to for nothing does no harm.
            let _ = live.connection.unsubscribe(&oldest).await;
        }
        Ok(true)
    }

    /// The outer result is about the connection, the inner one is the server's answer.
    async fn send(
        &self,
        action: &'static str,
        cmd: &Cmd,
    ) -> Result<Result<Value, RedisError>, Fault> {
        let mut live = self.live(action).await?;
        Ok(self.send_over(&mut live, cmd).await)
    }

    async fn send_over(&self, live: &mut Live, cmd: &Cmd) -> Result<Value, RedisError> {
        let answer = live.connection.send(cmd).await;
        match &answer {
            Err(error) if ends_connection(error) => self.give_up(live.serial),
            _ => self.failed.store(0, Ordering::Relaxed),
        }
        answer
    }

    /// Checks the answers to one message. A connection that has become doubtful is given up.
    fn check(
        &self,
        action: &'static str,
        serial: u64,
        expected: usize,
        answers: Result<Vec<Result<Value, RedisError>>, RedisError>,
    ) -> Result<Vec<Result<Value, RedisError>>, Fault> {
        let doubtful = match &answers {
            Err(error) => ends_connection(error),
            Ok(all) => all.iter().any(|answer| answer.as_ref().is_err_and(ends_connection)),
        };
        if doubtful {
            self.give_up(serial);
        } else {
            self.failed.store(0, Ordering::Relaxed);
        }
        let answers = answers.map_err(|error| fault(action, error))?;
        if answers.len() != expected {
            self.distrust();
            return Err(codec::garbled(&Value::Nil));
        }
        Ok(answers)
    }

    /// What came over the present connection makes no sense: it is not used again.
    pub(super) fn distrust(&self) {
        let runtime = Handle::current().id();
        lock(&self.current).retain(|live| live.runtime != runtime);
    }

    fn give_up(&self, serial: u64) {
        // A cluster's connection looks after its nodes by itself, but one that has lost them all
        // never finds them again.
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.config.is_cluster() || failed >= FAILED_MAX {
            self.failed.store(0, Ordering::Relaxed);
            forget(&self.current, serial);
        }
    }
}

impl std::fmt::Debug for RedisConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConnections").field("config", &self.config).finish_non_exhaustive()
    }
}
