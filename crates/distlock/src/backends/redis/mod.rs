//! Locks on Redis or Valkey: the law restated in scripts, one round trip each.

mod config;
mod faults;
mod keys;
mod link;
mod script;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use distlock_core::{
    Answer, Ask, Backend, Capabilities, ClientId, Cursor, Fault, Health, How, Invalid, Key,
    Outcome, Page, Pending, Push, Renewal, SNAPSHOT_MAX, Snapshot, Standing, Streaming, Target,
};
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use redis::Value;

use self::config::Config;
use self::keys::Namespace;
use self::link::Link;
use self::script::{ACQUIRE, INSPECT, RELEASE, RENEW, STAND, Script};

/// How long the fence counter of a key outlives its last use.
const FENCE_LIFE_MS: u64 = 60 * 60 * 1000;

/// A Redis or Valkey server that carries locks. Needs version 7 or later.
///
/// One value is one client of the server, with a connection of its own that is made with the first
/// call and again after every failure.
#[derive(Clone, Debug)]
pub struct Redis {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    namespace: Namespace,
    client: String,
    channel: String,
}

impl Redis {
    /// A client of the server that the URL names. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the URL cannot be used, or has an option that does not exist.
    pub fn open(url: &str) -> Result<Self, Invalid> {
        let config = Config::parse(url)?;
        let namespace = Namespace::new(config.namespace.clone());
        let client = ClientId::random()
            .map_err(|fault| Invalid::new("client id", fault, "needs random bytes"))?
            .reveal();
        let channel = namespace.channel();
        let link = Link::new(config, format!("{channel}{client}"));
        Ok(Self { inner: Arc::new(Inner { link, namespace, client, channel }) })
    }
}

impl Inner {
    /// Runs one of the scripts that know the whole law.
    async fn law(
        &self,
        action: &'static str,
        script: &Script,
        key: &Key,
        (id, rest): (String, Vec<Vec<u8>>),
    ) -> Result<Value, Fault> {
        let verb = if self.link.can_push() { "PUBLISH" } else { "" };
        let life = FENCE_LIFE_MS.to_string();
        let mut args: Vec<Vec<u8>> = [&id, &self.client, verb, &self.channel, &life]
            .map(|arg| arg.as_bytes().to_vec())
            .into();
        args.extend(rest);
        self.link.eval(action, script, &self.namespace.all(key), &args).await
    }

    async fn stand(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let args = wire::renewal_args(renewal);
        let value = self.law("renew", &STAND, &renewal.claim.key, args).await?;
        wire::standing(&value)
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, Fault> {
        let args = (String::new(), vec![SNAPSHOT_MAX.to_string().into_bytes()]);
        wire::snapshot(key, &self.law("inspect", &INSPECT, key, args).await?)
    }

    /// Renews holds by their main keys alone; whatever is not an exclusive hold is left over.
    async fn renew_holds<'a>(
        &self,
        holds: Vec<(usize, &'a Renewal)>,
    ) -> Vec<(usize, &'a Renewal, Result<Option<u64>, Fault>)> {
        let mains: Vec<_> = holds.iter().map(|(_, r)| self.namespace.main(&r.claim.key)).collect();
        let args: Vec<_> = holds.iter().flat_map(|(_, r)| wire::hold_args(r)).collect();
        let answer = self.link.eval("renew", &RENEW, &mains, &args).await;
        let fences = answer.and_then(|value| wire::fences(&value));
        let each = |at: usize| match &fences {
            Ok(fences) => Ok(fences.get(at).copied().flatten()),
            Err(fault) => Err(fault.clone()),
        };
        holds.into_iter().enumerate().map(|(at, (i, r))| (i, r, each(at))).collect()
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.listing = !self.inner.namespace.is_bare();
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move {
            let args = wire::ask_args(ask);
            let value = self.inner.law("acquire", &ACQUIRE, &ask.claim.key, args).await?;
            wire::answer(&value)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let inner = &*self.inner;
        let plain =
            |r: &Renewal| r.ticket.is_none() && r.weight.is_none() && r.fence_floor.is_none();
        let (holds, others): (Vec<_>, Vec<_>) =
            batch.iter().enumerate().partition(|(_, renewal)| plain(renewal));
        let stand = move |(index, renewal): (usize, &'a Renewal)| async move {
            (index, inner.stand(renewal).await)
        };
        let others: FuturesUnordered<_> = others.into_iter().map(stand).collect();
        let holds = (!holds.is_empty()).then(|| inner.renew_holds(holds));
        let held = stream::iter(holds).then(|call| call).flat_map(stream::iter);
        let held = held.then(move |(index, renewal, answer)| async move {
            match answer {
                Ok(Some(fence)) => (index, Ok(Standing::Held { fence })),
                Ok(None) => stand((index, renewal)).await,
                Err(fault) => (index, Err(fault)),
            }
        });
        Box::pin(stream::select(others, held))
    }

    fn release<'a>(&'a self, target: &'a Target, how: How) -> Pending<'a, Outcome> {
        Box::pin(async move {
            let args = wire::release_args(target, how);
            let value = self.inner.law("release", &RELEASE, target.key(), args).await?;
            wire::outcome(&value)
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
        Box::pin(async move {
            let info = self.inner.link.run("probe", &redis::cmd("INFO")).await?;
            Ok(health(&wire::as_text(&info).unwrap_or_default()))
        })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let receiver = self.inner.link.listen();
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(push) => Some((push, receiver)),
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {
                    Some((Push::Interrupted, receiver))
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => None,
            }
        }))
    }
}

impl Inner {
    /// One page of a listing. A cursor is where the server's scan stands and how much of that step
    /// was shown before.
    async fn page(&self, prefix: &str, cursor: Option<&Cursor>) -> Result<Page, Fault> {
        let (scan, shown) = cursor.map_or(("0", 0), |Cursor(text)| {
            let (scan, shown) = text.split_once(':').unwrap_or(("0", "0"));
            (scan, shown.parse().unwrap_or(0))
        });
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(scan).arg("MATCH").arg(self.namespace.pattern(prefix));
        cmd.arg("COUNT").arg(SNAPSHOT_MAX).arg("TYPE").arg("string");
        let answer = self.link.run("list", &cmd).await?;
        let (next, mains): (String, Vec<String>) =
            redis::from_redis_value(answer).map_err(|error| Fault::permanent("list", error))?;
        let mut seen = HashSet::new();
        let keys: Vec<_> = mains
            .iter()
            .filter_map(|main| self.namespace.key_of(main))
            .filter(|key| key.as_str().starts_with(prefix) && seen.insert(key.clone()))
            .collect();
        let now: Vec<_> = keys.iter().skip(shown).take(SNAPSHOT_MAX).collect();
        let looks = futures_util::future::join_all(now.iter().map(|key| self.look(key))).await;
        let looks = looks.into_iter().collect::<Result<Vec<_>, _>>()?;
        let next = if keys.len() > shown + SNAPSHOT_MAX {
            Some(Cursor(format!("{scan}:{}", shown + SNAPSHOT_MAX)))
        } else {
            (next != "0").then(|| Cursor(format!("{next}:0")))
        };
        Ok(Page { locks: looks.into_iter().filter(|lock| !lock.is_free()).collect(), next })
    }
}

/// What `INFO` says about the server, as far as locks care.
fn health(info: &str) -> Health {
    let fields: HashMap<_, _> =
        info.lines().filter_map(|line| line.trim().split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let mut health = Health::new(field("run_id"), field("run_id"));
    health.persistent = field("aof_enabled") == "1";
    let policy = field("maxmemory_policy");
    if policy != "noeviction" && !policy.is_empty() {
        health.warnings.push(format!(
            "the eviction policy is {policy}, which deletes locks when memory is short: \
             set maxmemory-policy noeviction"
        ));
    }
    if field("role") == "slave" {
        health.warnings.push("this server is a replica: connect to the primary".to_owned());
    }
    health
}
