//! The connection to the store: dialled when it is needed, given up when it fails.

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
use super::config::Config;
use super::dial::{Connection, Node};
use super::faults::{ends_connection, fault};
use super::prepare::Seen;
use super::script::{Fill, Script, is_unknown};
use super::wire;
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
pub(super) struct Link {
    config: Config,
    client: String,
    /// What is listened to from the start; on a cluster nothing is.
    channel: Option<String>,
    /// The fence counter, where all keys share one.
    counter: Option<String>,
    pub(super) seen: Arc<Seen>,
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

impl Link {
    /// A link of the client of this id. Nothing is dialled yet.
    pub(super) fn new(
        config: Config,
        client: String,
        channel: Option<String>,
        counter: Option<String>,
    ) -> Arc<Self> {
        let push_denied = AtomicBool::new(config.is_given());
        if config.is_given() {
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
        self.config.is_given()
    }

    /// Runs a script by its hash, or by its text if the server does not know the hash.
    pub(super) async fn eval(
        &self,
        action: &'static str,
        script: &Script,
        fill: Fill<'_>,
    ) -> Result<Value, Fault> {
        self.try_eval(action, script, fill).await?.map_err(|error| fault(action, error))
    }

    /// The same; the inner result is the server's answer.
    pub(super) async fn try_eval(
        &self,
        action: &'static str,
        script: &Script,
        fill: Fill<'_>,
    ) -> Result<Result<Value, RedisError>, Fault> {
        let answer = self.send(action, &script.by_hash(fill)).await?;
        if is_unknown(&answer) {
            let text = script.by_text(fill);
            return Box::pin(self.send(action, &text)).await;
        }
        Ok(answer)
    }

    /// Runs a script once for each part, all of them in one message.
    pub(super) async fn eval_each<T: Sync>(
        &self,
        action: &'static str,
        script: &Script,
        parts: &[T],
        fill: &(dyn Fn(&T, &mut Cmd) + Send + Sync),
    ) -> Result<Vec<Result<Value, RedisError>>, Fault> {
        let by_hash = |part: &T| script.by_hash(&|cmd: &mut Cmd| fill(part, cmd));
        let mut cmds = Pipeline::with_capacity(parts.len());
        for part in parts {
            cmds.add_command(by_hash(part));
        }
        let mut answers = self.send_all(action, &cmds).await?;
        let unknown: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
        if let Some((first, others)) = unknown.split_first() {
            // The first brings the text, so that the server knows the script when the others come.
            let mut cmds = Pipeline::with_capacity(unknown.len());
            cmds.add_command(script.by_text(&|cmd: &mut Cmd| fill(&parts[*first], cmd)));
            for at in others {
                cmds.add_command(by_hash(&parts[*at]));
            }
            let again = Box::pin(self.send_all(action, &cmds)).await?;
            for (at, answer) in unknown.into_iter().zip(again) {
                answers[at] = answer;
            }
        }
        Ok(answers)
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
        let mut nodes = Node::primaries(&wire::as_str(&answer)?);
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
        let answer = live.connection.send(cmd).await;
        match &answer {
            Err(error) if ends_connection(error) => self.give_up(live.serial),
            _ => self.failed.store(0, Ordering::Relaxed),
        }
        Ok(answer)
    }

    /// The same for many commands in one message.
    async fn send_all(
        &self,
        action: &'static str,
        cmds: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Fault> {
        let mut live = self.live(action).await?;
        let answers = live.connection.send_all(cmds).await;
        let doubtful = match &answers {
            Err(error) => ends_connection(error),
            Ok(all) => all.iter().any(|answer| answer.as_ref().is_err_and(ends_connection)),
        };
        if doubtful {
            self.give_up(live.serial);
        } else {
            self.failed.store(0, Ordering::Relaxed);
        }
        let answers = answers.map_err(|error| fault(action, error))?;
        if answers.len() != cmds.len() {
            self.distrust();
            return Err(wire::garbled(&Value::Nil));
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

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("config", &self.config).finish_non_exhaustive()
    }
}
