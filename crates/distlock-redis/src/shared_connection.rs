//! A connection that the program has made itself and shares with the locks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, Value};

type Answering<T> = Pin<Box<dyn Future<Output = Result<T, RedisError>> + Send>>;

/// A connection of any kind that can be shared.
#[derive(Clone)]
pub(super) struct SharedConnection {
    send: Arc<dyn Fn(Cmd) -> Answering<Value> + Send + Sync>,
    send_all: Arc<dyn Fn(Pipeline) -> Answering<Vec<Value>> + Send + Sync>,
    /// No call is without a deadline, whatever the program has set.
    patience: Duration,
}

impl SharedConnection {
    pub(super) fn new<C>(connection: C, patience: Duration) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let other = connection.clone();
        let send = move |cmd: Cmd| {
            let mut connection = connection.clone();
            Box::pin(async move { connection.req_packed_command(&cmd).await }) as Answering<_>
        };
        let send_all = move |cmds: Pipeline| {
            let mut connection = other.clone();
            let answers = async move { connection.req_packed_commands(&cmds, 0, cmds.len()).await };
            Box::pin(answers) as Answering<_>
        };
        Self { send: Arc::new(send), send_all: Arc::new(send_all), patience }
    }

    pub(super) async fn send(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        self.in_time((self.send)(cmd.clone())).await
    }

    pub(super) async fn send_all(&self, cmds: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.in_time((self.send_all)(cmds.clone())).await
    }

    async fn in_time<T>(&self, answering: Answering<T>) -> Result<T, RedisError> {
        tokio::time::timeout(self.patience, answering)
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
    }
}
