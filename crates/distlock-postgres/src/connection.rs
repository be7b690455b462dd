//! One connection to the server.

use distlock_core::Fault;
use tokio::task::AbortHandle;
use tokio_postgres::Client;

use super::config::PostgresConfig;
use super::faults;

/// A connection whose messages are carried by a task of its own.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    client: Client,
    task: AbortHandle,
}

impl PostgresConnection {
    /// Connects and logs in.
    pub(super) async fn dial(config: &PostgresConfig, action: &'static str) -> Result<Self, Fault> {
        let dialled = config.dial(&config.server).await;
        let (client, connection) =
            dialled.map_err(|error| faults::dial_fault(action, &error, config))?;
        let task = tokio::spawn(async move {
            // The calls in flight get the error.
            let _ = connection.await;
        });
        Ok(Self { client, task: task.abort_handle() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Closes it at once, whatever is on its way.
    pub(super) fn abort(self) {
        self.task.abort();
    }
}
