//! Confirmation by replicas: a write of the hold, then `WAIT`, over connections of their own.
//!
//! `WAIT` blocks its connection until the replicas have what was written over it, so each has one
//! confirmation at a time. Every confirmation is the work of a task: a caller that is dropped, or
//! alive and not polled, keeps no connection from others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use distlock_core::{Confirmed, Fault, Renewal, Standing};
use redis::{Pipeline, RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::connection::Connection;
use super::faults::fault;
use super::library::{LibraryCall, LibraryVerb, Words, is_missing};
use super::{RedisClient, codec};
use distlock_core::sync::lock;

/// What a confirmation that fails could not do.
const ACTION: &str = "confirm";

/// How many confirmations of one runtime are under way at once, each over its connection.
const CONNECTIONS_MAX: usize = 16;

/// Of how many runtimes connections are kept.
const CONFIRMING_RUNTIMES_MAX: usize = 8;

/// The connections for confirmations. A connection works only while the runtime that made it does,
/// so every runtime has its own.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    pools: Mutex<VecDeque<(Id, Arc<Pool>)>>,
}

struct Pool {
    permits: Semaphore,
    /// Those that have answered everything, and with which epoch they belong together:
    /// after that they may lead to an old primary. Others are closed, for what they still owe would
    /// shift the replies.
    idle: Mutex<Vec<(u64, Connection)>>,
}

impl Confirmations {
    fn of(&self, runtime: Id) -> Arc<Pool> {
        let mut pools = lock(&self.pools);
        if let Some((_, pool)) = pools.iter().find(|(known, _)| *known == runtime) {
            return Arc::clone(pool);
        }
        let permits = Semaphore::new(CONNECTIONS_MAX);
        let pool = Arc::new(Pool { permits, idle: Mutex::default() });
        pools.push_back((runtime, Arc::clone(&pool)));
        if pools.len() > CONFIRMING_RUNTIMES_MAX {
            pools.pop_front();
        }
        pool
    }
}

impl Pool {
    /// A connection of this epoch; those of earlier ones are closed.
    fn idle(&self, epoch: u64) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        idle.retain(|(of, _)| *of == epoch);
        idle.pop().map(|(_, connection)| connection)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl RedisClient {
    /// Renews a hold and says how many replicas have it.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        renewal: &Renewal,
        replicas: u32,
    ) -> Result<Confirmed, Fault> {
        let runtime = Handle::try_current().map_err(|error| Fault::permanent(ACTION, error))?;
        let pool = self.confirmations.of(runtime.id());
        let (inner, renewal) = (Arc::clone(self), renewal.clone());
        let (mut tell, told) = oneshot::channel();
        let patience = self.connections.patience();
        runtime.spawn(async move {
            let confirming = timeout(patience, inner.confirm_over(&pool, &renewal, replicas));
            let confirmed = tokio::select! {
                confirmed = confirming => confirmed,
                // The caller has gone: the next confirmation gets the connection.
                () = tell.closed() => return,
            };
            let confirmed = confirmed.unwrap_or_else(|late| Err(Fault::transient(ACTION, late)));
            // A caller that has gone needs no answer.
            let _ = tell.send(confirmed);
        });
        // Later than the task, which knows more about what went wrong.
        let told = timeout(2 * patience, told).await.map_err(|e| Fault::transient(ACTION, e))?;
        told.map_err(|_| Fault::transient(ACTION, "the runtime that was to do it has ended"))?
    }

    async fn confirm_over(
        &self,
        pool: &Pool,
        renewal: &Renewal,
        replicas: u32,
    ) -> Result<Confirmed, Fault> {
        let permit = pool.permits.acquire().await;
        let _permit = permit.map_err(|closed| Fault::transient(ACTION, closed))?;
        let epoch = self.connections.epoch();
        let mut connection = match pool.idle(epoch) {
            Some(connection) => connection,
            None => self.connections.dial_apart().await.map_err(|error| fault(ACTION, error))?,
        };
        let sent = self.write_and_wait(&mut connection, renewal, replicas).await;
        let (written, copies) = sent.map_err(|error| fault(ACTION, error))?;
        let standing = codec::standing(renewal.claim.id, &written)?;
        let copies = codec::as_str(&copies)?.parse();
        let copies = copies.map_err(|error| Fault::permanent(ACTION, error))?;
        lock(&pool.idle).push((epoch, connection));
        let held = matches!(standing, Standing::Held { .. });
        if !held || copies < replicas {
            // What was granted by an old primary is unknown to the new one and its replicas.
            self.connections.check_primary().await;
        }
        Ok(if held { Confirmed::By(copies) } else { Confirmed::Gone })
    }

    /// What the library answers, and how many replicas have what it wrote.
    async fn write_and_wait(
        &self,
        connection: &mut Connection,
        renewal: &Renewal,
        replicas: u32,
    ) -> Result<(Value, Value), RedisError> {
        let key = &renewal.claim.key;
        let (mut args, main) = (Words::default(), self.namespace.main(key));
        args.push(codec::Hex(renewal.claim.id)).push(codec::millis(renewal.span));
        let call = LibraryCall { verb: LibraryVerb::Confirm, keys: self.namespace.keys(key), args };
        let library = &self.connections.library;
        // Less than the time after which the client crate gives up on the answer.
        let patience = self.connections.config().response_timeout.mul_f64(0.8).as_millis();
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(u64::try_from(patience).unwrap_or(1).max(1));
        let mut cmds = Pipeline::with_capacity(2);
        cmds.add_command(library.command(&call)).add_command(wait.clone());
        let mut answers = connection.send_all_beside(&main, &cmds).await?;
        if answers.first().is_some_and(is_missing) {
            answers = library.call_again(connection, &[&call]).await?;
            cmds.clear();
            answers.extend(connection.send_all_beside(&main, cmds.add_command(wait)).await?);
        }
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
        Ok((next()?, next()?))
    }
}
