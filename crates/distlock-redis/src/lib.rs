#![doc = include_str!("../README.md")]

mod batch;
mod codec;
mod config;
mod confirm;
mod connection;
mod connections;
mod faults;
mod health;
mod heartbeat;
mod journal;
mod keys;
mod library;
mod list;
mod prepare;
mod push;
mod renew;
mod shared_connection;
mod tls;
mod topology;

use std::sync::Arc;

use distlock_core::{
    Answer, Ask, Backend, Capabilities, ClientId, Confirmed, Cursor, Extensions, Fault, Health,
    Invalid, Key, Page, Pending, Push, Reconnecting, ReleaseOptions, ReleaseOutcome, Renewal,
    Replicated, SNAPSHOT_MAX, Snapshot, Standing, Streaming, Target,
};
use futures_util::FutureExt;
use futures_util::stream::{self, FuturesUnordered};
use tokio::sync::broadcast::error::RecvError;

use self::batch::Batcher;
use self::config::Config;
use self::confirm::Confirmations;
use self::connections::RedisConnections;
use self::keys::Namespace;
use self::library::{LibraryCall, LibraryVerb, Words};

/// A Redis or Valkey server that carries locks. Needs version 7 or later.
///
/// One value is one client of the server, with a connection of its own that is made with the first
/// call and again after every failure.
#[derive(Clone, Debug)]
pub struct Redis {
    inner: Arc<RedisClient>,
}

#[derive(Debug)]
struct RedisClient {
    connections: Arc<RedisConnections>,
    namespace: Namespace,
    client: String,
    batcher: Batcher,
    confirmations: Confirmations,
}

impl Redis {
    /// A client of the server that the URL names. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the URL cannot be used, or has an option that does not exist.
    pub fn open(url: &str) -> Result<Self, Invalid> {
        Self::new(Config::parse(url)?)
    }

    /// A client of the server that a client of the crate `redis` leads to, with its address, login
    /// and certificates. RedisConnections are made and remade as for a URL, and grants are pushed.
    ///
    /// An empty namespace means that keys are used as they are; `distlock` is what URLs use.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use distlock::{Locks, backends::Redis};
    ///
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let locks = Locks::new(Arc::new(Redis::from_client(&client, "distlock")?));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the system has no random bytes.
    pub fn from_client(client: &redis::Client, namespace: &str) -> Result<Self, Invalid> {
        Self::new(Config::of_client(client, namespace))
    }

    /// A client of the one server at the other end of a connection that the program has made, such
    /// as a `MultiplexedConnection` or a `ConnectionManager` of the crate `redis`.
    ///
    /// The connection stays the program's. It must be multiplexed and must reconnect by itself, or
    /// the locks are lost with it: prefer a `ConnectionManager`, or if you can
    /// [`from_client`](Self::from_client). What is pushed over it goes to the program, so waiters
    /// are not told: the first in line looks twenty times a second, which is logged once as a
    /// warning. Confirmation by replicas needs a connection of its own and is unsupported. Clusters
    /// are not served this way.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use distlock::{Locks, backends::Redis};
    ///
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let locks = Locks::new(Arc::new(Redis::with_connection(connection, "distlock")?));
    /// let guard = locks.mutex("deploy")?.lock().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the system has no random bytes.
    pub fn with_connection<C>(connection: C, namespace: &str) -> Result<Self, Invalid>
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Config::of_connection(connection, namespace))
    }

    fn new(config: Config) -> Result<Self, Invalid> {
        let name = config.namespace.clone();
        let namespace = if config.is_cluster() {
            Namespace::on_cluster(name)
        } else {
            Namespace::on_server(name)
        };
        let client = ClientId::random()
            .map_err(|fault| Invalid::new("client id", fault, "needs random bytes"))?
            .reveal();
        // On a cluster every key has a channel of its own.
        let channel = (!config.is_cluster()).then(|| namespace.channel_of_all() + &client);
        let counter = namespace.counter().map(str::to_owned);
        let batcher = Batcher::new(config.batch && namespace.has_one_main_key());
        let connections = RedisConnections::new(config, client.clone(), channel, counter);
        let confirmations = Confirmations::default();
        let inner = RedisClient { connections, namespace, client, batcher, confirmations };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl RedisClient {
    /// Refuses a key whose name is reserved for what locks write themselves.
    fn check_name(&self, action: &'static str, key: &Key) -> Result<(), Fault> {
        if !self.namespace.reserves(key) {
            return Ok(());
        }
        let why = "must not begin with distlock-side:, under which locks without a namespace keep \
                   their own keys";
        Err(Fault::permanent(action, Invalid::new("key", key, why)))
    }

    async fn acquire(self: &Arc<Self>, ask: &Ask) -> Result<Answer, Fault> {
        let on_cluster = self.namespace.is_on_cluster();
        let seen = Some(self.connections.seen.largest()).filter(|seen| on_cluster && *seen > 0);
        let make = || {
            let args = codec::acquire_args(ask, &self.client, seen, |key| self.namespace.main(key));
            LibraryCall {
                verb: LibraryVerb::Acquire,
                keys: self.namespace.keys(&ask.claim.key),
                args,
            }
        };
        let value = self.request("acquire", make).await?;
        let answer = self.read(codec::answer(ask.claim.id, &value))?;
        self.connections.seen.note_answer(&answer);
        Ok(answer)
    }

    /// Passes on what was read. An answer that makes no sense ends the connection: the replies on
    /// it may be out of step with the questions.
    fn read<T>(&self, read: Result<T, Fault>) -> Result<T, Fault> {
        if read.is_err() {
            self.connections.distrust();
        }
        read
    }

    /// Listens to the channel of a key where keys have one. True if that is new.
    async fn listen_to(&self, key: &Key) -> Result<bool, Fault> {
        if !self.namespace.is_on_cluster() {
            return Ok(false);
        }
        let channel = self.namespace.channel(key) + &self.client;
        self.connections.listen_to(channel).await
    }

    /// Listens to the channel of the key of a waiter, and asks again if that is new.
    async fn listen_and_ask(self: &Arc<Self>, ask: &Ask, answer: Answer) -> Result<Answer, Fault> {
        if self.listen_to(&ask.claim.key).await? { self.acquire(ask).await } else { Ok(answer) }
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, Fault> {
        let mut args = Words::default();
        args.push(&self.client).push(SNAPSHOT_MAX);
        let call = LibraryCall { verb: LibraryVerb::Inspect, keys: self.namespace.keys(key), args };
        let value = self.connections.call("inspect", &call).await?;
        self.read(codec::snapshot(&self.client, key, &value))
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.listing = !self.inner.namespace.is_bare();
        capabilities.push = self.inner.connections.can_push();
        capabilities.durability = !self.inner.connections.is_shared();
        // On a cluster only those who wait listen to a key.
        capabilities.push_breaks = capabilities.push && !self.inner.namespace.is_on_cluster();
        capabilities.one_counter = !self.inner.namespace.is_on_cluster();
        // On a cluster it lies in another slot.
        capabilities.witness = !self.inner.namespace.is_on_cluster();
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move {
            self.inner.check_name("acquire", &ask.claim.key)?;
            if ask.witness.is_some() && self.inner.namespace.is_on_cluster() {
                return Err(Fault::unsupported("witnesses"));
            }
            let answer = self.inner.acquire(ask).await?;
            // Where every key has a channel of its own, it is listened to from the first wait on,
            // and whatever was pushed before that is asked for.
            let waits = matches!(&answer, Answer::Busy(busy) if busy.ticket.is_some());
            if waits && self.inner.namespace.is_on_cluster() {
                // Boxed, so that the others do not carry it along.
                return Box::pin(self.inner.listen_and_ask(ask, answer)).await;
            }
            Ok(answer)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let inner = &*self.inner;
        if batch.iter().all(renew::is_hold) {
            return Box::pin(inner.renew_all(batch.iter().enumerate().collect()));
        }
        let (holds, others): (Vec<_>, Vec<_>) =
            batch.iter().enumerate().partition(|(_, renewal)| renew::is_hold(renewal));
        let stand = move |(index, renewal): (usize, &'a Renewal)| async move {
            (index, inner.renew_one(renewal).await)
        };
        let (beats, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, renewal)| heartbeat::is_heartbeat(renewal));
        let others: FuturesUnordered<_> = others.into_iter().map(stand).collect();
        let others = stream::select(others, inner.heartbeat(beats));
        Box::pin(stream::select(others, inner.renew_all(holds)))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(async move {
            self.inner.check_name("release", target.key())?;
            self.inner.release(target, how).await
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        self.inner.inspect(key).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        Box::pin(async move {
            if self.inner.namespace.is_bare() {
                return Err(Fault::unsupported("listing keys without a namespace"));
            }
            self.inner.page(prefix, cursor).await
        })
    }

    fn probe(&self) -> Pending<'_, Health> {
        Box::pin(topology::probe(&self.inner.connections))
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let receiver = self.inner.connections.listen();
        // Whatever listens does not keep the client alive.
        let inner = Arc::downgrade(&self.inner);
        Box::pin(stream::unfold((receiver, Some(inner)), |(mut receiver, inner)| async move {
            if let Some(inner) = inner.and_then(|inner| inner.upgrade()) {
                inner.connections.begin_to_listen().await;
            }
            match receiver.recv().await {
                Ok(push) => Some((push, (receiver, None))),
                Err(RecvError::Lagged(_)) => Some((Push::Interrupted, (receiver, None))),
                Err(RecvError::Closed) => None,
            }
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        let replicated = (!self.inner.connections.is_shared()).then_some(self as &dyn Replicated);
        let location = self.inner.connections.config().location();
        Extensions { replicated, reconnecting: Some(self), ..Extensions::at(location) }
    }
}

impl Replicated for Redis {
    fn confirm<'a>(&'a self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed> {
        Box::pin(self.inner.confirm(renewal, replicas))
    }
}

impl Reconnecting for Redis {
    fn epoch(&self) -> u64 {
        self.inner.connections.epoch()
    }
}
