//! Locks on one backend, for threads.

use std::sync::Arc;

use distlock_core::{Backend, Cursor, Health, Page, Snapshot};

use super::guard::{Guard, Plain};
use super::runtime::BlockingRuntime;
use super::{Leases, MultiLock, Mutex, ReentrantMutex, RwLock, Semaphore};
use crate::observe::Stats;
use crate::options::Options;
use crate::{Error, Key, Lease};

/// Locks on one backend, for programs without a runtime. Cheap to clone; clones share everything.
///
/// ```
/// use distlock::blocking::Locks;
///
/// # fn main() -> Result<(), distlock::Error> {
/// let locks = Locks::memory()?;
/// let workers: Vec<_> = (0..4)
///     .map(|worker| {
///         let mutex = locks.mutex("report")?;
///         Ok(std::thread::spawn(move || mutex.with(|_| worker)))
///     })
///     .collect::<Result<_, distlock::Error>>()?;
/// for worker in workers {
///     worker.join().expect("the worker does not panic")?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    locks: crate::Locks,
    runtime: BlockingRuntime,
}

impl Locks {
    /// Locks on the backend that a URL names. See [`crate::Locks::connect`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::connect`], and [`Error::Backend`] if no thread can be started.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::over(crate::Locks::connect(url)?)
    }

    /// Locks on a backend. See [`crate::Locks::new`].
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if no thread can be started.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self, Error> {
        Self::over(crate::Locks::new(backend))
    }

    /// Locks inside this process. See [`crate::Locks::memory`].
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if no thread can be started.
    pub fn memory() -> Result<Self, Error> {
        Self::over(crate::Locks::memory())
    }

    /// The blocking form of async locks: both are one client of the store.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if no thread can be started.
    pub fn over(locks: crate::Locks) -> Result<Self, Error> {
        Ok(Self { locks, runtime: BlockingRuntime::enter()? })
    }

    /// The async form of these locks, with all that needs no waiting: events, numbers, what the
    /// backend can do.
    pub fn as_async(&self) -> &crate::Locks {
        &self.locks
    }

    /// The same locks with other options. Locks made before keep theirs.
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::configure`].
    pub fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { locks: self.locks.configure(change)?, runtime: self.runtime.clone() })
    }

    /// One holder at a time. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is empty or longer than 512 bytes.
    pub fn mutex<K>(&self, key: K) -> Result<Mutex, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        Ok(Mutex { mutex: self.locks.mutex(key)?, runtime: self.runtime.clone() })
    }

    /// Many readers or one writer. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is empty or longer than 512 bytes.
    pub fn rwlock<K>(&self, key: K) -> Result<RwLock, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        Ok(RwLock { rwlock: self.locks.rwlock(key)?, runtime: self.runtime.clone() })
    }

    /// A mutex that its owner may enter again. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is empty or longer than 512 bytes.
    pub fn reentrant<K>(&self, key: K) -> Result<ReentrantMutex, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let (mutex, runtime) = (self.locks.reentrant(key)?, self.runtime.clone());
        Ok(ReentrantMutex { mutex, runtime })
    }

    /// At most `permits` holders at once. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is empty or too long, or `permits` is zero.
    pub fn semaphore<K>(&self, key: K, permits: u32) -> Result<Semaphore, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let (semaphore, runtime) = (self.locks.semaphore(key, permits)?, self.runtime.clone());
        Ok(Semaphore { semaphore, runtime })
    }

    /// Holds as plain data, kept by the caller. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is empty or longer than 512 bytes.
    pub fn lease<K>(&self, key: K) -> Result<Leases, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        Ok(Leases { leases: self.locks.lease(key)?, runtime: self.runtime.clone() })
    }

    /// Several keys, all of them or none. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::all`].
    pub fn all<K>(&self, keys: impl IntoIterator<Item = K>) -> Result<MultiLock, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        Ok(MultiLock { all: self.locks.all(keys)?, runtime: self.runtime.clone() })
    }

    /// Takes over a lease. See [`crate::Locks::adopt`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::adopt`], and [`Error::AsyncContext`].
    pub fn adopt(&self, lease: &Lease) -> Result<Guard, Error> {
        let guard = self.runtime.wait(self.locks.adopt(lease))?;
        Ok(Guard::new(Plain(guard), &self.runtime))
    }

    /// Looks at one key. See [`crate::Locks::inspect`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::inspect`], and [`Error::AsyncContext`].
    pub fn inspect<K>(&self, key: K) -> Result<Snapshot, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        self.runtime.wait(self.locks.inspect(key))
    }

    /// Looks at the keys that begin with `prefix`, page by page. See [`crate::Locks::list`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::list`], and [`Error::AsyncContext`].
    pub fn list(&self, prefix: &str, cursor: Option<&Cursor>) -> Result<Page, Error> {
        self.runtime.wait(self.locks.list(prefix, cursor))
    }

    /// Looks at the store itself. See [`crate::Locks::probe`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::probe`], and [`Error::AsyncContext`].
    pub fn probe(&self) -> Result<Health, Error> {
        self.runtime.wait(self.locks.probe())
    }

    /// Releases the hold of a key with this fence. See [`crate::Locks::break_hold`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::break_hold`], and [`Error::AsyncContext`].
    pub fn break_hold<K>(&self, key: K, fence: u64) -> Result<(), Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        self.runtime.wait(self.locks.break_hold(key, fence))
    }

    /// What is in hand and what has happened so far.
    pub fn stats(&self) -> Stats {
        self.locks.stats()
    }

    /// Ends all locks of this `Locks` and its clones. See [`crate::Locks::close`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locks::close`], and [`Error::AsyncContext`].
    pub fn close(&self) -> Result<(), Error> {
        self.runtime.wait(self.locks.close())
    }
}
