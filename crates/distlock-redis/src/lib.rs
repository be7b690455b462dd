#![doc = include_str!("../README.md")]

mod beats;
mod coalesce;
mod config;
mod confirm;
mod dial;
mod faults;
mod gate;
mod given;
mod health;
mod holds;
mod journal;
mod keys;
mod link;
mod list;
mod prepare;
mod pushed;
mod script;
mod survey;
mod tls;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Backend, Capabilities, Claim, ClientId, Confirmed, Cursor, Extensions, Fault,
    Health, Invalid, Key, Page, Pending, Push, Reconnecting, ReleaseOptions, ReleaseOutcome,
    Renewal, Replicated, SNAPSHOT_MAX, Snapshot, Standing, Streaming, Target,
};
use futures_util::FutureExt;
use futures_util::stream::{self, FuturesUnordered};
use redis::{Cmd, Value};
use tokio::sync::broadcast::error::RecvError;

use self::coalesce::Together;
use self::config::Config;
use self::confirm::Apart;
use self::keys::Namespace;
use self::link::Link;
use self::script::{ACQUIRE, Fill, INSPECT, RELEASE, STAND, Script};

/// How long a fence counter outlives its last use: an hour longer than the longest lease, so that
/// it outlives every hold. It is one small key for each namespace.
const FENCE_LIFE_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// The same for the counter of a single key on a cluster, of which there may be many.
const KEY_FENCE_LIFE_MS: u64 = 60 * 60 * 1000;

/// A Redis or Valkey server that carries locks. Needs version 7 or later.
///
/// One value is one client of the server, with a connection of its own that is made with the first
/// call and again after every failure.
///
/// Whoever takes or gives back a lock on a server that answers within a tenth of a millisecond
/// stays awake for it and yields to other tasks meanwhile: that is faster than to sleep. With
/// servers further away nobody does.
#[derive(Clone, Debug)]
pub struct Redis {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    namespace: Namespace,
    client: String,
    /// How a script tells a client of its grant.
    push: PushBy,
    together: Together,
    apart: Apart,
}

/// Which channel a client listens to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PushBy {
    /// One for all keys. So all calls are made by the same caller, as texts.lua takes it.
    Client(String),
    /// One for each key, in the slot of the key.
    Key,
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
    /// and certificates. Connections are made and remade as for a URL, and grants are pushed.
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
        let (push, channel) = if config.is_cluster() {
            (PushBy::Key, None)
        } else {
            let prefix = namespace.channel();
            let own = format!("{prefix}{client}");
            let caller = match namespace.fence_of_all() {
                Some(_) => format!("P{client}"),
                None => format!("P{client} {FENCE_LIFE_MS} {prefix}"),
            };
            (PushBy::Client(caller), Some(own))
        };
        let counter = namespace.counter().map(str::to_owned);
        let link = Link::new(config, client.clone(), channel, counter);
        let inner = Inner {
            link,
            namespace,
            client,
            push,
            together: Together::default(),
            apart: Apart::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    /// Runs one of the scripts that know the whole law. What they write may live for `span`.
    async fn law(
        &self,
        action: &'static str,
        script: &Script,
        (key, id): (&Key, &str),
        span: Duration,
        rest: Fill<'_>,
    ) -> Result<Value, Fault> {
        let caller = self.caller(key, span);
        let fill = |cmd: &mut Cmd| {
            self.namespace.add_keys(cmd, key);
            cmd.arg(id).arg(&*caller);
            rest(cmd);
        };
        self.link.eval(action, script, &fill).await
    }

    /// Refuses a key whose name is reserved for what locks write themselves.
    fn check_name(&self, action: &'static str, key: &Key) -> Result<(), Fault> {
        if !self.namespace.reserves(key) {
            return Ok(());
        }
        let why = "must not begin with distlock-side:, under which locks without a namespace keep \
                   their own keys";
        Err(Fault::permanent(action, Invalid::new("key", key, why)))
    }

    /// Who calls, as texts.lua takes it.
    fn caller(&self, key: &Key, span: Duration) -> Cow<'_, str> {
        let can_push = self.link.can_push();
        match &self.push {
            PushBy::Client(caller) if can_push => caller.into(),
            PushBy::Client(caller) => caller.replacen('P', "-", 1).into(),
            PushBy::Key => {
                let life =
                    KEY_FENCE_LIFE_MS + u64::try_from(span.as_millis()).unwrap_or(FENCE_LIFE_MS);
                let (by, channel) =
                    (if can_push { 'S' } else { '-' }, self.namespace.key_channel(key));
                format!("{by}{} {life} {channel}", self.client).into()
            }
        }
    }

    /// True if scripts need not be told who calls: they find all names by themselves, and clients
    /// are told by PUBLISH.
    fn is_usual_caller(&self) -> bool {
        self.link.can_push() && self.namespace.fence_of_all().is_some()
    }

    /// The same of somebody who asks: nothing if it is the usual caller, whom the ask names.
    fn unusual_caller(&self, ask: &Ask) -> Option<Cow<'_, str>> {
        (!self.is_usual_caller()).then(|| self.caller(&ask.claim.key, wire::longest(ask)))
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, Fault> {
        let id = wire::hex(ask.claim.id);
        let caller = self.unusual_caller(ask);
        let fill = |cmd: &mut Cmd| {
            self.namespace.add_keys(cmd, &ask.claim.key);
            let witness = ask.witness.as_ref();
            let witness = witness.map(|claim| (self.namespace.main(&claim.key), claim.id));
            cmd.arg(&id);
            wire::add_ask(cmd, ask, &self.client, caller.as_deref(), witness);
        };
        let value = self.link.eval("acquire", &ACQUIRE, &fill).await?;
        let answer = self.read(wire::answer(&id, &value))?;
        self.link.seen.note_answer(&answer);
        Ok(answer)
    }

    /// Gives up by a call of its own.
    async fn give_up(&self, target: &Target, how: ReleaseOptions) -> Result<ReleaseOutcome, Fault> {
        let (key, id) = (target.key(), wire::released_id(target));
        let rest = |cmd: &mut Cmd| wire::add_release(cmd, target, how);
        let value = self.law("release", &RELEASE, (key, &id), how.keep, &rest).await?;
        self.read(wire::outcome(&id, &value))
    }

    /// The same for a hold, as short as can be, where every client is told by PUBLISH.
    async fn give_up_hold(&self, claim: &Claim) -> Result<ReleaseOutcome, Fault> {
        let id = wire::hex(claim.id);
        let fill = |cmd: &mut Cmd| {
            self.namespace.add_main_alone(cmd, &claim.key);
            cmd.arg(&id);
        };
        let value = self.link.eval("release", &RELEASE, &fill).await?;
        self.read(wire::outcome(&id, &value))
    }

    /// Passes on what was read. An answer that makes no sense ends the connection: the replies on
    /// it may be out of step with the questions.
    fn read<T>(&self, read: Result<T, Fault>) -> Result<T, Fault> {
        if read.is_err() {
            self.link.distrust();
        }
        read
    }

    /// Listens to the channel of a key where keys have one. True if that is new.
    async fn listen_to(&self, key: &Key) -> Result<bool, Fault> {
        if self.push != PushBy::Key {
            return Ok(false);
        }
        let channel = format!("{}{}", self.namespace.key_channel(key), self.client);
        self.link.listen_to(channel).await
    }

    /// Listens to the channel of the key of somebody who waits, and asks again if that is new.
    async fn listen_and_ask(&self, ask: &Ask, answer: Answer) -> Result<Answer, Fault> {
        if self.listen_to(&ask.claim.key).await? { self.ask(ask).await } else { Ok(answer) }
    }

    async fn stand(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let key = &renewal.claim.key;
        let standing = self.stand_once(renewal).await?;
        if matches!(standing, Standing::Waiting(_)) && self.listen_to(key).await? {
            return self.stand_once(renewal).await;
        }
        Ok(standing)
    }

    async fn stand_once(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let (key, id) = (&renewal.claim.key, wire::hex(renewal.claim.id));
        let rest = |cmd: &mut Cmd| wire::add_renewal(cmd, renewal);
        let about = (key, &*id);
        let value = self.law("renew", &STAND, about, renewal.span, &rest).await?;
        let standing = self.read(wire::standing(&id, &value))?;
        self.link.seen.note_standing(&standing);
        Ok(standing)
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, Fault> {
        let rest = |cmd: &mut Cmd| {
            cmd.arg(SNAPSHOT_MAX);
        };
        let (script, about) = (&*INSPECT, (key, key.as_str()));
        let value = self.law("inspect", script, about, Duration::ZERO, &rest).await?;
        self.read(wire::snapshot(key.as_str(), key, &value))
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.listing = !self.inner.namespace.is_bare();
        capabilities.push = self.inner.link.can_push();
        capabilities.durability = !self.inner.link.is_shared();
        // On a cluster only those who wait listen to a key.
        capabilities.push_breaks = capabilities.push && self.inner.push != PushBy::Key;
        capabilities.one_counter = self.inner.push != PushBy::Key;
        // On a cluster it lies in another slot.
        capabilities.witness = self.inner.push != PushBy::Key;
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move {
            self.inner.check_name("acquire", &ask.claim.key)?;
            if ask.witness.is_some() && self.inner.push == PushBy::Key {
                return Err(Fault::unsupported("witnesses"));
            }
            let answer = self.inner.acquire(ask).await?;
            // Where every key has a channel of its own, it is listened to from the first wait on,
            // and whatever was pushed before that is asked for.
            let waits = matches!(&answer, Answer::Busy(busy) if busy.ticket.is_some());
            if waits && self.inner.push == PushBy::Key {
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
        if batch.iter().all(holds::is_plain) {
            return Box::pin(inner.keep(batch.iter().enumerate().collect()));
        }
        let (holds, others): (Vec<_>, Vec<_>) =
            batch.iter().enumerate().partition(|(_, renewal)| holds::is_plain(renewal));
        let stand = move |(index, renewal): (usize, &'a Renewal)| async move {
            (index, inner.stand(renewal).await)
        };
        let (beats, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, renewal)| beats::is_beat(renewal));
        let others: FuturesUnordered<_> = others.into_iter().map(stand).collect();
        let others = stream::select(others, inner.beat(beats));
        Box::pin(stream::select(others, inner.keep(holds)))
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
        self.inner.look(key).boxed()
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
        Box::pin(survey::probe(&self.inner.link))
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let receiver = self.inner.link.listen();
        // Whatever listens does not keep the client alive.
        let inner = Arc::downgrade(&self.inner);
        Box::pin(stream::unfold((receiver, Some(inner)), |(mut receiver, inner)| async move {
            if let Some(inner) = inner.and_then(|inner| inner.upgrade()) {
                inner.link.begin_to_listen().await;
            }
            match receiver.recv().await {
                Ok(push) => Some((push, (receiver, None))),
                Err(RecvError::Lagged(_)) => Some((Push::Interrupted, (receiver, None))),
                Err(RecvError::Closed) => None,
            }
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        let replicated = (!self.inner.link.is_shared()).then_some(self as &dyn Replicated);
        let location = self.inner.link.config().location();
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
        self.inner.link.epoch()
    }
}
