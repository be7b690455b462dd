//! Connections that calls take turns with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distlock_core::Fault;
use distlock_core::sync::lock;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Error, Row};

use super::config::PostgresConfig;
use super::connection::PostgresConnection;
use super::faults;
use super::pipeline::Pipeline;
use super::schema;

/// Counts how often the server was reached anew.
#[derive(Debug, Default)]
pub(super) struct ConnectionEpoch {
    number: AtomicU64,
    is_over: AtomicBool,
}

impl ConnectionEpoch {
    pub(super) fn get(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// A connection was made.
    fn connected(&self) {
        if self.is_over.swap(false, Ordering::SeqCst) || self.get() == 0 {
            self.number.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A connection broke: the next one may lead to another server, or to one that was restarted.
    fn broken(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// Connections to the server, made when they are needed and kept for the next call.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    config: Arc<PostgresConfig>,
    epoch: Arc<ConnectionEpoch>,
    permits: Semaphore,
    idle: Mutex<Vec<PostgresConnection>>,
    /// The tables have been looked for.
    has_tables: AtomicBool,
}

impl ConnectionPool {
    pub(super) fn new(
        config: Arc<PostgresConfig>,
        epoch: Arc<ConnectionEpoch>,
        most: usize,
    ) -> Self {
        Self {
            config,
            epoch,
            permits: Semaphore::new(most),
            idle: Mutex::default(),
            has_tables: AtomicBool::new(false),
        }
    }

    /// A connection for one transaction at a time. The caller has to have a deadline.
    pub(super) async fn lease(&self, action: &'static str) -> Result<ConnectionLease<'_>, Fault> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|closed| Fault::transient(action, closed))?;
        let connection = match self.idle() {
            Some(connection) => connection,
            None => {
                let made = PostgresConnection::dial(&self.config, action).await;
                let made = made.inspect_err(|_| self.epoch.broken())?;
                if !self.has_tables.load(Ordering::SeqCst) {
                    schema::ensure(made.client(), &self.config).await?;
                    self.has_tables.store(true, Ordering::SeqCst);
                }
                self.epoch.connected();
                made
            }
        };
        Ok(ConnectionLease { pool: self, connection: Some(connection), _permit: permit })
    }

    fn idle(&self) -> Option<PostgresConnection> {
        let mut idle = lock(&self.idle);
        let before = idle.len();
        idle.retain(|connection| !connection.is_closed());
        if idle.len() < before {
            self.epoch.broken();
        }
        idle.pop()
    }
}

/// The use of one connection. If it is dropped before it is finished, the connection is closed:
/// what was sent over it may still be executed.
#[derive(Debug)]
pub(super) struct ConnectionLease<'a> {
    pool: &'a ConnectionPool,
    connection: Option<PostgresConnection>,
    _permit: SemaphorePermit<'a>,
}

impl ConnectionLease<'_> {
    /// How transactions begin. Nothing is set for the session: behind a pooler it is not ours.
    pub(super) fn begin(&self) -> Arc<str> {
        Arc::clone(&self.pool.config.begin)
    }

    /// The same for those that only look, at all tables as of one moment.
    pub(super) fn begin_read(&self) -> Arc<str> {
        Arc::clone(&self.pool.config.begin_read)
    }

    /// How calls for several keys limit what one that is locked costs the others.
    pub(super) fn hurry(&self) -> Arc<str> {
        Arc::clone(&self.pool.config.hurry)
    }

    /// Sends statements and waits for their answers.
    pub(super) async fn send(&mut self, pipeline: Pipeline<'_>) -> Result<Vec<Vec<Row>>, Error> {
        match &self.connection {
            Some(connection) => pipeline.send(connection.client()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Ends the use of the connection. After an error that concerns a transaction alone it is
    /// rolled back and the connection is kept; otherwise it is closed, and with it those that are
    /// idle.
    pub(super) async fn finish<T>(
        mut self,
        action: &'static str,
        done: Result<T, Error>,
    ) -> Result<T, Fault> {
        let Some(connection) = self.connection.take() else {
            return done.map_err(|_| lost(action));
        };
        let fault = match done {
            Ok(value) => {
                lock(&self.pool.idle).push(connection);
                return Ok(value);
            }
            Err(error) => {
                let fault = faults::fault(action, &error, &self.pool.config);
                if faults::spares_connection(&error) {
                    let rolled_back = connection.client().batch_execute("ROLLBACK").await;
                    if rolled_back.is_ok() {
                        lock(&self.pool.idle).push(connection);
                    }
                    return Err(fault);
                }
                fault
            }
        };
        connection.abort();
        self.pool.epoch.broken();
        lock(&self.pool.idle).clear();
        Err(fault)
    }
}

impl Drop for ConnectionLease<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.abort();
            self.pool.epoch.broken();
        }
    }
}

fn lost(action: &'static str) -> Fault {
    Fault::transient(action, "the connection is gone")
}
