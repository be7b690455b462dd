//! The connection to the store: dialled when it is needed, given up when it fails.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use distlock_core::{Ear, Fault, Push};
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::sync::broadcast;

use super::config::Config;
use super::dial::{Connection, Node, dial};
use super::faults::{ends_connection, fault, is_denied};
use super::script::{Fill, Script, is_unknown};
use super::wire;
use crate::sync::lock;

/// How many pushes a listener may fall behind. What it misses, its next heartbeat tells.
const PUSHES_MAX: usize = 1024;

/// How many channels of a cluster are listened to at once, one for each key waited for.
const CHANNELS_MAX: usize = 1024;

/// How many calls in a row fail before the connection to a cluster is made anew.
const FAILED_MAX: u32 = 4;

/// The one connection of a client, shared by all its calls.
pub(super) struct Link {
    config: Config,
    client: String,
    /// What is listened to from the start; on a cluster nothing is.
    channel: Option<String>,
    current: Arc<Mutex<Option<Live>>>,
    /// Held while dialling, so that a hundred callers make one connection. Counts them.
    dialling: tokio::sync::Mutex<u64>,
    pushes: broadcast::Sender<Push>,
    ears: Mutex<Arc<[Weak<dyn Ear>]>>,
    push_denied: AtomicBool,
    /// The connection for those who wait for replicas, one at a time.
    apart: tokio::sync::Mutex<Option<Connection>>,
    /// The channels of keys, the one asked for last at the end.
    channels: Arc<Mutex<VecDeque<String>>>,
    /// How many calls in a row have failed.
    failed: AtomicU32,
    /// The number of the latest connection.
    epoch: AtomicU64,
}

/// A connection and its number.
#[derive(Clone)]
struct Live {
    connection: Connection,
    serial: u64,
}

impl Link {
    /// A link of the client of this id. Nothing is dialled yet.
    pub(super) fn new(config: Config, client: String, channel: Option<String>) -> Self {
        let push_denied = AtomicBool::new(config.is_given());
        if config.is_given() {
            tracing::warn!(
                "nothing is pushed over a shared connection: waiters look by themselves"
            );
        }
        Self {
            config,
            client,
            channel,
            current: Arc::default(),
            dialling: tokio::sync::Mutex::new(0),
            pushes: broadcast::channel(PUSHES_MAX).0,
            ears: Mutex::new(Arc::new([])),
            push_denied,
            apart: tokio::sync::Mutex::new(None),
            channels: Arc::default(),
            failed: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// The number of the latest connection. A server that restarts ends the one before; a cluster
    /// is a store of its own that looks after its nodes.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Push> {
        self.pushes.subscribe()
    }

    /// Adds an ear, and forgets those that are gone.
    pub(super) fn lend(&self, ear: Weak<dyn Ear>) {
        let mut ears = lock(&self.ears);
        let others = ears.iter().filter(|ear| ear.strong_count() > 0).cloned();
        *ears = others.chain([ear]).collect();
    }

    /// Tells those who lend an ear what the answer to a call said; without any, those who listen.
    pub(super) fn whisper(&self, push: Push) {
        let ears = Arc::clone(&lock(&self.ears));
        let mut heard = false;
        for ear in ears.iter().filter_map(Weak::upgrade) {
            ear.hear(push);
            heard = true;
        }
        if !heard {
            self.tell(push);
        }
    }

    /// Tells those who listen, as if the server had.
    pub(super) fn tell(&self, push: Push) {
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

    /// Runs a script once for each part, all of them in one message. The first goes by the text, so
    /// that a server which has forgotten the script knows it when the others come.
    pub(super) async fn eval_each<T: Sync>(
        &self,
        action: &'static str,
        script: &Script,
        parts: &[T],
        fill: &(dyn Fn(&T, &mut Cmd) + Send + Sync),
    ) -> Result<Vec<Result<Value, RedisError>>, Fault> {
        let mut cmds = Pipeline::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let fill = |cmd: &mut Cmd| fill(part, cmd);
            cmds.add_command(if at == 0 { script.by_text(&fill) } else { script.by_hash(&fill) });
        }
        let mut answers = self.send_all(action, &cmds).await?;
        if answers.iter().any(is_unknown) {
            let mut cmds = Pipeline::new();
            for (part, _) in parts.iter().zip(&answers).filter(|(_, answer)| is_unknown(answer)) {
                cmds.add_command(script.by_text(&|cmd| fill(part, cmd)));
            }
            let told = Box::pin(self.send_all(action, &cmds)).await?;
            let unknown = answers.iter_mut().filter(|answer| is_unknown(answer));
            unknown.zip(told).for_each(|(answer, told)| *answer = told);
        }
        Ok(answers)
    }

    /// Sends one command.
    pub(super) async fn run(&self, action: &'static str, cmd: &Cmd) -> Result<Value, Fault> {
        self.send(action, cmd).await?.map_err(|error| fault(action, error))
    }

    /// Runs a script and waits until this many replicas have what it wrote, all over a connection
    /// of its own: `WAIT` counts only what was written over the same one, and holds it up.
    pub(super) async fn eval_and_wait(
        &self,
        script: &Script,
        main: &str,
        fill: Fill<'_>,
        replicas: u32,
    ) -> Result<(Value, u32), Fault> {
        let action = "confirm";
        let mut apart = self.apart.lock().await;
        let mut connection = match apart.take() {
            Some(connection) => connection,
            None => self.dial_with(|_| {}).await.map_err(|error| fault(action, error))?,
        };
        let mut answer = connection.send(&script.by_hash(fill)).await;
        if is_unknown(&answer) {
            answer = connection.send(&script.by_text(fill)).await;
        }
        let value = answer.map_err(|error| fault(action, error))?;
        let mut wait = redis::cmd("WAIT");
        // Less than the time after which the client crate gives up on the answer.
        let patience = self.config.response_timeout.mul_f64(0.8).as_millis();
        wait.arg(replicas).arg(u64::try_from(patience).unwrap_or(1).max(1));
        let copies = connection.send_beside(main, &wait).await;
        let copies = copies.map_err(|error| fault(action, error))?;
        // Kept only after it has answered everything: what it still owes would shift the replies.
        *apart = Some(connection);
        let copies = wire::as_str(&copies)?.parse();
        Ok((value, copies.map_err(|error| Fault::permanent(action, error))?))
    }

    /// The nodes that hold the keys: just one unless it is a cluster.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, Fault> {
        if !self.config.is_cluster() {
            return Ok(vec![Node::Any]);
        }
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("NODES");
        let answer = self.run("look at the cluster", &cmd).await?;
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
        *lock(&self.current) = None;
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

    /// The connection, dialled if there is none.
    async fn live(&self, action: &'static str) -> Result<Live, Fault> {
        if let Some(live) = lock(&self.current).clone() {
            return Ok(live);
        }
        // Boxed: dialling is rare and its future large, and every call would carry it along.
        Box::pin(self.dial_once(action)).await
    }

    async fn dial_once(&self, action: &'static str) -> Result<Live, Fault> {
        // Whoever dials may do so on a runtime that does not turn any more.
        let dialled = tokio::time::timeout(self.patience(), self.dialling.lock()).await;
        let mut dialled = dialled.map_err(|elapsed| Fault::transient(action, elapsed))?;
        if let Some(live) = lock(&self.current).clone() {
            return Ok(live);
        }
        *dialled += 1;
        let serial = *dialled;
        let connection = self.dial(serial).await.map_err(|error| fault(action, error))?;
        // Nothing of what was listened to before is listened to on a new connection.
        lock(&self.channels).clear();
        // Known before anybody can use it: an answer that came over it is told from earlier ones.
        self.epoch.store(serial, Ordering::SeqCst);
        let live = Live { connection, serial };
        *lock(&self.current) = Some(live.clone());
        if *dialled > 1 {
            // Whatever was pushed between the two connections is lost.
            let _ = self.pushes.send(Push::Interrupted);
        }
        Ok(live)
    }

    async fn dial(&self, serial: u64) -> Result<Connection, RedisError> {
        let (pushes, client) = (self.pushes.clone(), self.client.clone());
        let channels = Arc::clone(&self.channels);
        let (current, cluster) = (Arc::downgrade(&self.current), self.config.is_cluster());
        let listener = move |info: &PushInfo| {
            // Known to be closed before anybody stumbles over it: the next call dials.
            if info.kind == PushKind::Disconnection
                && !cluster
                && let Some(current) = current.upgrade()
            {
                forget(&current, serial);
            }
            if has_moved(info, &mut lock(&channels)) {
                let _ = pushes.send(Push::Interrupted);
            }
            if let Some(push) = read_push(info, &client) {
                // Nobody listening is no error: the heartbeat tells.
                let _ = pushes.send(push);
            }
        };
        let mut connection = self.dial_with(listener).await?;
        // Listening begins before anything is asked, so that no push can be missed.
        if let Some(channel) = &self.channel {
            self.subscribe(&mut connection, channel).await?;
        }
        Ok(connection)
    }

    async fn dial_with(
        &self,
        listener: impl Fn(&PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, RedisError> {
        let dialling = dial(&self.config, listener);
        tokio::time::timeout(self.config.connect_timeout * 2, dialling)
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
    }

    async fn subscribe(
        &self,
        connection: &mut Connection,
        channel: &str,
    ) -> Result<(), RedisError> {
        match connection.subscribe(channel).await {
            Err(error) if is_denied(&error) => {
                if !self.push_denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the user may not subscribe: waiters go by their heartbeats");
                }
                Ok(())
            }
            other => other,
        }
    }
}

/// Forgets the channels that are no longer listened to; true if one of them went with its slot.
/// What a broken connection listened to is asked for anew: its node may have been replaced.
fn has_moved(info: &PushInfo, channels: &mut VecDeque<String>) -> bool {
    let before = channels.len();
    match (&info.kind, info.data.first().map(wire::as_str)) {
        (PushKind::Disconnection, _) => channels.clear(),
        (PushKind::SUnsubscribe, Some(Ok(channel))) => {
            channels.retain(|known| **known != *channel);
            return channels.len() < before;
        }
        _ => {}
    }
    false
}

fn forget(current: &Mutex<Option<Live>>, serial: u64) {
    let mut current = lock(current);
    if current.as_ref().is_some_and(|live| live.serial == serial) {
        *current = None;
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A message on a channel of this client; the name of every channel ends in its id.
fn read_push(info: &PushInfo, client: &str) -> Option<Push> {
    match (&info.kind, info.data.as_slice()) {
        (PushKind::Message | PushKind::SMessage, [channel, message])
            if wire::as_str(channel).ok()?.ends_with(client) =>
        {
            wire::push(&wire::as_str(message).ok()?)
        }
        (PushKind::Disconnection, _) => Some(Push::Interrupted),
        _ => None,
    }
}
