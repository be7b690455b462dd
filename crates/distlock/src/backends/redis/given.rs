//! A connection that the program has made itself and shares with the locks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, Value};

type Answering = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send>>;

/// A connection of any kind that can be shared.
#[derive(Clone)]
pub(super) struct Given {
    send: Arc<dyn Fn(Cmd) -> Answering + Send + Sync>,
    /// No call is without a deadline, whatever the program has set.
    patience: Duration,
}

impl Given {
    pub(super) fn new<C>(connection: C, patience: Duration) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let send = move |cmd: Cmd| {
            let mut connection = connection.clone();
            Box::pin(async move { connection.req_packed_command(&cmd).await }) as Answering
        };
        Self { send: Arc::new(send), patience }
    }

    pub(super) async fn send(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        tokio::time::timeout(self.patience, (self.send)(cmd.clone()))
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
    }
}
