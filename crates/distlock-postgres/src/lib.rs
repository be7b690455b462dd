#![doc = include_str!("../README.md")]

mod cells;
mod config;
mod confirm;
mod connection;
mod faults;
mod fenced;
mod health;
mod journal;
mod libpq;
mod listener;
mod load;
mod look;
mod notifier;
mod pipeline;
mod pool;
mod queue;
mod renew;
mod save;
mod schema;
mod shared;
mod simple;
mod thread;
mod tidy;
mod tls;
mod transaction;
mod verb;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use distlock_core::{
    Answer, Ask, Backend, Background, Capabilities, Confirmed, Cursor, Extensions, Fault, Health,
    Invalid, Key, Page, Pending, Push, Reconnecting, ReleaseOptions, ReleaseOutcome, Renewal,
    Replicated, Snapshot, Standing, Streaming, Target,
};
use futures_util::stream;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};

pub use self::fenced::{StaleHold, fenced};
pub use self::schema::schema_sql;

use self::config::PostgresConfig;
use self::shared::PostgresShared;
use self::thread::PostgresThread;
use self::verb::{Verb, VerbReply};

/// How many calls of one client may be on their way.
const CALLS_MAX: usize = 4096;

/// How many answers of a batch of renewals wait to be read.
const ANSWERS_MAX: usize = 1024;

/// A PostgreSQL database that carries locks. Needs version 12 or later.
///
/// One value is one client of the database, with connections of its own that are made with the
/// first call and again after every failure, and with a thread of its own that carries them.
#[derive(Clone, Debug)]
pub struct Postgres {
    inner: Arc<PostgresClient>,
}

#[derive(Debug)]
struct PostgresClient {
    shared: Arc<PostgresShared>,
    calls: Arc<Semaphore>,
    thread: PostgresThread,
}

impl Postgres {
    /// A client of the database that the URL names. What the URL leaves out comes from the
    /// environment and the password file, as for libpq. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the URL cannot be used, or has an option that does not exist.
    pub fn open(url: &str) -> Result<Self, Invalid> {
        let config = PostgresConfig::parse(url, &|name| std::env::var(name).ok())?;
        let shared = PostgresShared::new(config)
            .map_err(|fault| Invalid::new("client id", fault, "needs random bytes"))?;
        let inner = PostgresClient {
            shared: Arc::new(shared),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            thread: PostgresThread::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Does some work on the thread of this client, also if the caller goes away meanwhile.
    fn call<'a, T, W>(
        &'a self,
        action: &'static str,
        work: impl FnOnce(Arc<PostgresShared>) -> W + Send + 'a,
    ) -> Pending<'a, T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        Box::pin(async move {
            let shared = &self.inner.shared;
            let handle = self.inner.thread.handle(action)?;
            let (within, location) = (shared.config.response_timeout, shared.config.location());
            let Ok(permit) = Arc::clone(&self.inner.calls).try_acquire_owned() else {
                let fault = Fault::transient(action, "too many calls are in flight");
                return Err(fault.at_store(location));
            };
            let work = work(Arc::clone(shared));
            let (reply, answer) = oneshot::channel();
            handle.spawn(async move {
                let _permit = permit;
                // A verb has its own deadline in the queue; this one is for everything else.
                let done = tokio::time::timeout(within.saturating_mul(2), work).await;
                // A caller that has gone releases what it asked for, which is served after this.
                let _ = reply.send(done.ok());
            });
            let fault = match answer.await {
                Ok(Some(Ok(done))) => return Ok(done),
                Ok(Some(Err(fault))) => fault,
                Ok(None) => Fault::transient(action, format!("no answer within {within:?}")),
                Err(_) => Fault::transient(action, "the thread of the client has ended"),
            };
            Err(fault.at_store(location))
        })
    }
}

impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        let shared = &self.inner.shared;
        capabilities.push = shared.config.listen.is_some() && shared.listener.can_listen();
        capabilities.push_breaks = capabilities.push;
        capabilities.one_counter = false;
        capabilities.witness = false;
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        if ask.witness.is_some() {
            return Box::pin(async { Err(Fault::unsupported("witnesses")) });
        }
        let verb = Verb::Acquire(ask.clone());
        self.call("acquire", async move |shared| match shared.submit(verb).await? {
            VerbReply::Answer(answer) => Ok(answer),
            other => Err(mismatch("acquire", &other)),
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let (tell, answers) = mpsc::channel(ANSWERS_MAX);
        let renewals = batch.to_vec();
        let work = self.call("renew", async move |shared| {
            renew::renew(shared, renewals, tell).await;
            Ok(())
        });
        Box::pin(renew::answers(work, answers, batch.len()))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        let verb = Verb::Release(target.clone(), how);
        self.call("release", async move |shared| match shared.submit(verb).await? {
            VerbReply::Outcome(outcome) => Ok(outcome),
            other => Err(mismatch("release", &other)),
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        let key = key.clone();
        self.call("inspect", async move |shared| look::inspect(&shared, &key).await)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        let (prefix, cursor) = (prefix.to_owned(), cursor.cloned());
        self.call("list", async move |shared| look::list(&shared, &prefix, cursor.as_ref()).await)
    }

    fn probe(&self) -> Pending<'_, Health> {
        self.call("probe", async move |shared| health::probe(&shared).await)
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let shared = &self.inner.shared;
        let receiver = shared.pushes.subscribe();
        if !shared.listens.swap(true, Ordering::SeqCst)
            && let Ok(handle) = self.inner.thread.handle("listen")
        {
            let shared = Arc::clone(shared);
            handle.spawn(async move { shared.listener.ensure(&shared).await });
        }
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(push) => Some((push, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Push::Interrupted, receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            replicated: Some(self),
            reconnecting: Some(self),
            background: Some(self),
            ..Extensions::at(self.inner.shared.config.location())
        }
    }
}

impl Replicated for Postgres {
    fn confirm<'a>(&'a self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed> {
        let renewal = renewal.clone();
        self.call("confirm by replicas", async move |shared| {
            confirm::confirm(&shared, renewal, replicas).await
        })
    }
}

impl Reconnecting for Postgres {
    fn epoch(&self) -> u64 {
        self.inner.shared.epoch.get()
    }
}

impl Background for Postgres {
    fn drain(&self) -> Pending<'_, ()> {
        self.call("tell waiters of their grants", async move |shared| {
            shared.notifier.drained().await;
            Ok(())
        })
    }
}

/// A verb was answered as if it were another one: a mistake of this crate.
fn mismatch(action: &'static str, reply: &VerbReply) -> Fault {
    Fault::permanent(action, format!("an answer of another kind: {reply:?}"))
}
