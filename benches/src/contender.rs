//! What is compared: the least that can be done by hand, distlock in its forms, and its peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::LockOptions;
use distlock::Locks;
use redis::aio::{ConnectionManager, MultiplexedConnection};

use crate::round::{load, plain_connection};

/// What every contender asks for.
pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const FENCED: &str = include_str!("fenced.lua");
const FENCED_RELEASE: &str = include_str!("fenced_release.lua");

/// The counter of all keys that are taken with a fence by hand.
const COUNTER: &str = "by-hand";

/// The keys that are held while tries are refused.
const HELD: &str = "held";
const HELD_BY_HAND: &str = "held-by-hand";

/// More permits than there are tasks.
const PERMITS: u32 = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Limit,
    Fenced,
    Distlock,
    Rslock,
    Distkit,
    Redlock,
    /// distlock with every request in a call of its own.
    Unbatched,
    /// distlock on a runtime that never sleeps.
    BusyPolling,
    Read,
    Write,
    Semaphore,
    /// `try_lock` of a key that is held.
    RefusedTry,
    /// `SET NX` of a key that is held.
    RefusedSet,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Limit, Self::Fenced, Self::Distlock, Self::Rslock, Self::Distkit, Self::Redlock];

    pub(crate) const PEERS: [Self; 3] = [Self::Rslock, Self::Distkit, Self::Redlock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Fenced => "fenced",
            Self::Distlock => "distlock",
            Self::Rslock => "rslock",
            Self::Distkit => "distkit",
            Self::Redlock => "redlock",
            Self::Unbatched => "unbatched",
            Self::BusyPolling => "busy_polling",
            Self::Read => "read",
            Self::Write => "write",
            Self::Semaphore => "semaphore",
            Self::RefusedTry => "refused_try",
            Self::RefusedSet => "refused_set",
        }
    }
}

/// A client of the server, shared by all tasks of a workload.
#[derive(Clone)]
pub(crate) enum Contender {
    Limit { connection: MultiplexedConnection, hash: Arc<str> },
    Fenced { connection: MultiplexedConnection, hashes: Arc<[String; 2]> },
    Distlock(Locks),
    Read(Locks),
    Write(Locks),
    Semaphore(Locks),
    RefusedTry { mutex: distlock::Mutex, _holder: Arc<distlock::Guard> },
    RefusedSet(MultiplexedConnection),
    Rslock(rslock::LockManager),
    Distkit(ConnectionManager),
    Redlock(Arc<redlock::RedLock>),
}

impl Contender {
    pub(crate) async fn connect(kind: Kind, url: &str) -> Self {
        match kind {
            Kind::Limit => {
                let mut connection = plain_connection(url).await;
                let hash = load(&mut connection, COMPARE_AND_DELETE).await.into();
                Self::Limit { connection, hash }
            }
            Kind::Fenced => {
                let mut connection = plain_connection(url).await;
                let acquire = load(&mut connection, FENCED).await;
                let hashes = Arc::new([acquire, load(&mut connection, FENCED_RELEASE).await]);
                Self::Fenced { connection, hashes }
            }
            Kind::Distlock | Kind::BusyPolling => Self::Distlock(connect(url)),
            Kind::Unbatched => Self::Distlock(connect(&format!("{url}?batch=0"))),
            Kind::Read => Self::Read(connect(url)),
            Kind::Write => Self::Write(connect(url)),
            Kind::Semaphore => Self::Semaphore(connect(url)),
            Kind::RefusedTry => {
                let mutex = connect(url).mutex(HELD).expect("a short key");
                let holder = mutex.lock().await.expect("it is free");
                Self::RefusedTry { mutex, _holder: Arc::new(holder) }
            }
            Kind::RefusedSet => {
                let mut connection = plain_connection(url).await;
                set_if_free(&mut connection, HELD_BY_HAND, &next_token()).await;
                Self::RefusedSet(connection)
            }
            Kind::Rslock => Self::Rslock(rslock::LockManager::new(vec![url])),
            Kind::Distkit => {
                let client = redis::Client::open(url).expect("our own URL is valid");
                let manager = client.get_connection_manager().await;
                Self::Distkit(manager.expect("our own server is up"))
            }
            Kind::Redlock => Self::Redlock(Arc::new(redlock::RedLock::new(vec![url]))),
        }
    }

    /// One task's view of the lock on a key.
    pub(crate) fn lock(&self, key: &str) -> Lock {
        match self {
            Self::Limit { connection, hash } => Lock::Limit {
                connection: connection.clone(),
                hash: Arc::clone(hash),
                key: key.to_owned(),
            },
            Self::Fenced { connection, hashes } => Lock::Fenced {
                connection: connection.clone(),
                hashes: Arc::clone(hashes),
                key: key.to_owned(),
            },
            Self::Distlock(locks) => Lock::Distlock(locks.mutex(key).expect("a short key")),
            Self::Read(locks) => Lock::Read(locks.rwlock(key).expect("a short key")),
            Self::Write(locks) => Lock::Write(locks.rwlock(key).expect("a short key")),
            Self::Semaphore(locks) => {
                Lock::Semaphore(locks.semaphore(key, PERMITS).expect("a short key"))
            }
            Self::RefusedTry { mutex, .. } => Lock::RefusedTry(mutex.clone()),
            Self::RefusedSet(connection) => Lock::RefusedSet(connection.clone()),
            Self::Rslock(manager) => Lock::Rslock(manager.clone(), key.to_owned()),
            Self::Distkit(manager) => {
                let key = DistkitRedisKey::try_from(key.to_owned()).expect("a short key");
                let options = LockOptions::new(key, manager.clone());
                Lock::Distkit(distkit::lock::Mutex::new(options))
            }
            Self::Redlock(manager) => Lock::Redlock(Arc::clone(manager), key.to_owned()),
        }
    }
}

pub(crate) enum Lock {
    Limit { connection: MultiplexedConnection, hash: Arc<str>, key: String },
    Fenced { connection: MultiplexedConnection, hashes: Arc<[String; 2]>, key: String },
    Distlock(distlock::Mutex),
    Read(distlock::RwLock),
    Write(distlock::RwLock),
    Semaphore(distlock::Semaphore),
    RefusedTry(distlock::Mutex),
    RefusedSet(MultiplexedConnection),
    Rslock(rslock::LockManager, String),
    Distkit(Arc<distkit::lock::Mutex>),
    Redlock(Arc<redlock::RedLock>, String),
}

/// What has to be given back.
pub(crate) enum Held {
    Token(String),
    Distlock(distlock::Guard),
    Rslock(rslock::Lock),
    Distkit(distkit::lock::MutexGuard),
    Redlock {
        resource: Vec<u8>,
        val: Vec<u8>,
    },
    Write(distlock::WriteGuard),
    /// The answer that was wanted was a refusal.
    Nothing,
}

impl Lock {
    /// Waits for the lock, as each library means it to be waited for. None if it failed.
    pub(crate) async fn acquire(&mut self) -> Option<Held> {
        match self {
            Self::Limit { connection, key, .. } => {
                let token = next_token();
                set_if_free(connection, key, &token).await.then_some(Held::Token(token))
            }
            Self::Fenced { connection, hashes, key } => {
                let token = next_token();
                let mut cmd = redis::cmd("EVALSHA");
                cmd.arg(&hashes[0]).arg(2).arg(&*key).arg(COUNTER);
                cmd.arg(&token).arg(TTL.as_millis() as u64);
                let fence = cmd.query_async::<Option<u64>>(connection).await;
                matches!(fence, Ok(Some(_))).then_some(Held::Token(token))
            }
            Self::Distlock(mutex) => mutex.lock().await.ok().map(Held::Distlock),
            Self::Read(lock) => lock.read().await.ok().map(Held::Distlock),
            Self::Write(lock) => lock.write().await.ok().map(Held::Write),
            Self::Semaphore(permits) => permits.acquire().await.ok().map(Held::Distlock),
            Self::RefusedTry(mutex) => mutex.try_lock().await.is_err().then_some(Held::Nothing),
            Self::RefusedSet(connection) => {
                let set = set_if_free(connection, HELD_BY_HAND, &next_token()).await;
                (!set).then_some(Held::Nothing)
            }
            Self::Rslock(manager, key) => {
                manager.lock(key.as_bytes(), TTL).await.ok().map(Held::Rslock)
            }
            Self::Distkit(mutex) => mutex.lock().await.ok().map(Held::Distkit),
            Self::Redlock(manager, key) => {
                let (manager, key) = (Arc::clone(manager), key.clone());
                blocking(move || {
                    let lock = manager.lock(key.as_bytes(), TTL.as_millis() as usize).ok()??;
                    Some(Held::Redlock { resource: lock.resource, val: lock.val })
                })
                .await
            }
        }
    }

    /// Gives it back. False if it is unknown whether that worked, which does not count as done.
    pub(crate) async fn release(&mut self, held: Held) -> bool {
        match (self, held) {
            (Self::Limit { connection, hash, key }, Held::Token(token)) => {
                let mut cmd = redis::cmd("EVALSHA");
                cmd.arg(&**hash).arg(1).arg(&*key).arg(token);
                cmd.query_async::<i64>(connection).await.is_ok()
            }
            (Self::Fenced { connection, hashes, key }, Held::Token(token)) => {
                let mut cmd = redis::cmd("EVALSHA");
                cmd.arg(&hashes[1]).arg(1).arg(&*key).arg(token);
                cmd.query_async::<i64>(connection).await.is_ok()
            }
            (_, Held::Distlock(guard)) => guard.release().await.is_ok(),
            (_, Held::Write(guard)) => guard.release().await.is_ok(),
            (_, Held::Nothing) => true,
            (_, Held::Rslock(lock)) => {
                lock.release().await;
                true
            }
            (_, Held::Distkit(guard)) => guard.release().await.is_ok(),
            (Self::Redlock(manager, _), Held::Redlock { resource, val }) => {
                let manager = Arc::clone(manager);
                blocking(move || {
                    let lock_manager = &*manager;
                    manager.unlock(&redlock::Lock {
                        resource,
                        val,
                        validity_time: 0,
                        lock_manager,
                    });
                })
                .await;
                true
            }
            _ => unreachable!("a lock gets back what it gave out"),
        }
    }
}

fn connect(url: &str) -> Locks {
    Locks::connect(url).expect("our own URL is valid")
}

/// A token that no other call has.
pub(crate) fn next_token() -> String {
    static TOKENS: AtomicU64 = AtomicU64::new(0);
    format!("{:020}", TOKENS.fetch_add(1, Ordering::Relaxed))
}

/// `SET NX PX`. False if the key is taken or the call failed.
pub(crate) async fn set_if_free(
    connection: &mut MultiplexedConnection,
    key: &str,
    token: &str,
) -> bool {
    let mut cmd = redis::cmd("SET");
    cmd.arg(key).arg(token).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
    let set = cmd.query_async::<redis::Value>(connection).await;
    matches!(set, Ok(redis::Value::Okay))
}

/// redlock blocks its thread, also in its async form.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no call panics")
}
