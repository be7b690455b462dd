//! Making the connections: one for each runtime, in a task of its own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::{Fault, Push};
use redis::{ConnectionAddr, PushInfo, PushKind, RedisError};
use tokio::runtime::Handle;

use super::super::connection::{Connection, dial, primary_now};
use super::super::faults::{dial_fault, is_denied};
use super::super::prepare::{load, prepare};
use super::super::push::{has_moved, read_push, unverified};
use super::{Dialled, Dialling, Live, RUNTIMES_MAX, RedisConnections};
use distlock_core::sync::lock;

impl RedisConnections {
    /// The connection of the present runtime, if there is one.
    fn known(&self) -> Option<Live> {
        let runtime = Handle::current().id();
        lock(&self.current).iter().find(|live| live.runtime == runtime).cloned()
    }

    /// True if the present runtime has a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.known().is_some()
    }

    /// The connection, dialled if there is none.
    pub(super) async fn live(&self, action: &'static str) -> Result<Live, Fault> {
        if let Some(live) = self.known() {
            return Ok(live);
        }
        // In a task of its own: a caller that is dropped or not polled holds up no other.
        let all = self.me.upgrade().ok_or_else(|| Fault::transient(action, "closed"))?;
        let dialled = tokio::spawn(async move {
            let dialled = tokio::time::timeout(all.patience(), all.dial_once(action)).await;
            dialled.map_err(|_| no_connection(action, all.patience()))?
        });
        dialled.await.map_err(|ended| Fault::transient(action, ended))?
    }

    /// The lock of the present runtime.
    fn dialling(&self) -> Dialling {
        let runtime = Handle::current().id();
        let mut all = lock(&self.dialling);
        if let Some((_, known)) = all.iter().find(|(known, _)| *known == runtime) {
            return Arc::clone(known);
        }
        if all.len() == RUNTIMES_MAX {
            all.remove(0);
        }
        let own = Dialling::default();
        all.push((runtime, Arc::clone(&own)));
        own
    }

    async fn dial_once(&self, action: &'static str) -> Result<Live, Fault> {
        let dialling = self.dialling();
        let _dialling = dialling.lock().await;
        if let Some(live) = self.known() {
            return Ok(live);
        }
        let serial = self.dialled.fetch_add(1, Ordering::SeqCst) + 1;
        let runtime = Handle::current().id();
        let listens = lock(&self.listener).is_none_or(|listener| listener == runtime);
        let dialled = self.dial(serial, listens).await;
        let (connection, primary, incarnation) =
            dialled.map_err(|error| dial_fault(action, error, &self.config))?;
        if listens {
            // Nothing of what was listened to before is listened to on a new connection.
            lock(&self.channels).clear();
        }
        // Known before anybody can use it: an answer that came over it is told from earlier ones.
        lock(&self.epoch).note(incarnation);
        let live = Live { connection, serial, runtime, listens, primary };
        let mut current = lock(&self.current);
        // A primary that was replaced still answers, but no longer decides.
        current.retain(|known| known.runtime != runtime && known.primary == live.primary);
        if current.len() == RUNTIMES_MAX {
            current.remove(0);
        }
        current.push(live.clone());
        drop(current);
        if listens && self.dialled.load(Ordering::SeqCst) > 1 {
            // What was pushed before this connection listened is lost. It need not be the second
            // one: a call of another runtime may have been quicker over a connection of its own.
            let _ = self.pushes.send(Push::Interrupted);
        }
        Ok(live)
    }

    async fn dial(&self, serial: u64, listens: bool) -> Result<Dialled, RedisError> {
        let (pushes, client) = (self.pushes.clone(), self.client.clone());
        let (channels, seen) = (Arc::clone(&self.channels), Arc::clone(&self.seen));
        let (current, cluster) = (Arc::downgrade(&self.current), self.config.is_cluster());
        let verify = self.config.verify_push;
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
                let push = if verify { unverified(push) } else { push };
                seen.note_push(&push);
                // Nobody listening is no error: the heartbeat tells.
                let _ = pushes.send(push);
            }
        };
        let (mut connection, primary) = self.dial_with(listener).await?;
        let counter = self.counter.as_deref();
        let prepare = prepare(connection.clone(), &self.library, counter, &self.seen);
        // Listening begins before anything is asked, so that no push can be missed.
        let subscribe = async {
            match self.channel.as_ref().filter(|_| listens) {
                Some(channel) => self.subscribe(&mut connection, channel).await,
                None => Ok(()),
            }
        };
        let incarnation = if cluster {
            // No call waits for a node that is silent, unless it is for that node.
            subscribe.await?;
            load(connection.clone(), &self.library);
            None
        } else {
            tokio::try_join!(subscribe, prepare)?.1
        };
        Ok((connection, primary, incarnation))
    }

    /// A further connection, which is the caller's.
    pub(crate) async fn dial_apart(&self) -> Result<Connection, RedisError> {
        self.dial_with(|_| {}).await.map(|(connection, _)| connection)
    }

    /// Asks the Sentinels, where there are any, who the primary is now. If it is another one than
    /// that of the present connection, that is not used again.
    pub(crate) async fn check_primary(&self) {
        let asking = tokio::time::timeout(self.config.connect_timeout, primary_now(&self.config));
        // Sentinels that do not answer say nothing about the primary.
        let Ok(Ok(Some(now))) = asking.await else { return };
        lock(&self.current).retain(|live| live.primary.as_ref() == Some(&now));
    }

    async fn dial_with(
        &self,
        listener: impl Fn(&PushInfo) + Send + Sync + 'static,
    ) -> Result<(Connection, Option<ConnectionAddr>), RedisError> {
        let dialling = dial(&self.config, listener);
        tokio::time::timeout(self.config.connect_timeout * 2, dialling)
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
    }

    pub(super) async fn subscribe(
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

fn no_connection(action: &'static str, patience: Duration) -> Fault {
    Fault::transient(action, format!("no connection within {patience:?}"))
        .advise("check the network and the host of the URL; raise connect_timeout_ms")
}

pub(super) fn forget(current: &Mutex<Vec<Live>>, serial: u64) {
    lock(current).retain(|live| live.serial != serial);
}
