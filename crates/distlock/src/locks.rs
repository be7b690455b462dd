//! The front door: locks on one backend.
//!
//! Long because every method has an example; there are 200 lines of code.

use std::sync::Arc;

use distlock_core::{
    Backend, Capabilities, Clock, Cursor, Fault, Health, Journal, Page, Renewal, Snapshot,
    Standing, Streaming,
};

use crate::backends::Memory;
use crate::clock::BootClock;
use crate::engine::{Grant, renew};
use crate::keeper::{CallInProgress, Home, Keeper, RELEASE_MAX};
use crate::lock::Lock;
use crate::observe::{Event, Stats};
use crate::open::{Opened, open};
use crate::options::{Options, Settings};
use crate::{Error, Guard, Key, Lease, Leases, Mutex, ReentrantMutex, RwLock, Semaphore};

/// Locks on one backend. Cheap to clone; clones share everything.
///
/// One background task looks after all locks of a `Locks`, however many they are: it renews what is
/// held, keeps places in queues, and releases what was dropped. It runs on a thread of the
/// library's own, one for the whole process, named `distlock`, which ends when nothing is in hand.
/// So a runtime that is blocked, not polled or dropped loses no lease, and one `Locks` serves any
/// number of runtimes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Locks;
///
/// let locks = Locks::memory();
/// let guard = locks.mutex("deploy/prod")?.lock().await?;
/// println!("deploying with fence {}", guard.fence());
/// guard.release().await?;
/// locks.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) settings: Arc<Settings>,
    /// The same store, if it is a quorum that a URL has opened.
    #[cfg(feature = "quorum")]
    pub(crate) quorum: Option<Arc<crate::backends::Quorum>>,
}

impl Locks {
    /// Locks on a backend. Give every `Locks` a backend value of its own: one value is one client
    /// of the store.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::with_keeper(Keeper::new(backend, Arc::new(BootClock), Home::Thread))
    }

    /// Locks without a thread of their own: the background task runs on the tokio runtime of the
    /// call that needs it, and moves to another one only when that runtime has ended or another
    /// call finds it a second late. While the runtime is blocked or not polled, nothing is renewed.
    pub fn without_thread(backend: Arc<dyn Backend>) -> Self {
        Self::with_clock(backend, Arc::new(BootClock))
    }

    /// Locks whose leases are measured by a clock of one's own, [without a
    /// thread](Self::without_thread): a clock may belong to a runtime, as it does under
    /// `tokio::time::pause`.
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        Self::with_keeper(Keeper::new(backend, clock, Home::Callers))
    }

    fn with_keeper(keeper: Arc<Keeper>) -> Self {
        Self {
            keeper,
            settings: Settings::default_checked(),
            #[cfg(feature = "quorum")]
            quorum: None,
        }
    }

    /// These locks with a journal to read and, if [`Options::journal`] says so, to write. Locks
    /// from a URL and locks in memory have one already, and keep it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use distlock::{Locks, Retention, backends::Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let store = Memory::new();
    /// let locks = Locks::new(Arc::new(store.client())).with_journal(Arc::new(store));
    /// let locks = locks.configure(|o| o.journal(Retention::default()))?;
    /// locks.mutex("deploy")?.lock().await?.release().await?;
    /// assert_eq!(locks.history("deploy", 10).await?.len(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_journal(self, journal: Arc<dyn Journal>) -> Self {
        self.keeper.observer.journal_writer.set_journal(journal);
        self
    }

    /// These locks with a recorder of their own: their numbers go there and not to the recorder of
    /// the whole program. The first one stays. Needs the feature `metrics`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use distlock::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let recorder = metrics_util::debugging::DebuggingRecorder::new();
    /// let seen = recorder.snapshotter();
    /// let locks = Locks::memory().with_recorder(Arc::new(recorder));
    /// locks.mutex("deploy")?.lock().await?.release().await?;
    /// assert!(!seen.snapshot().into_vec().is_empty());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn with_recorder(self, recorder: Arc<dyn metrics::Recorder + Send + Sync>) -> Self {
        self.keeper.observer.meter.set_recorder(recorder);
        self
    }

    /// Locks on the backend that a URL names: `memory:`, or a Redis or Valkey server,
    /// `redis://[[user]:password@]host[:port][/db]`, `rediss://…` for TLS or `redis+unix:///path`,
    /// the primary behind Sentinels, `redis-sentinel://h1,h2/name`, or a cluster,
    /// `redis-cluster://h1,h2`; with TLS these are `rediss-sentinel://` and `rediss-cluster://`.
    /// A [quorum](crate::guide::quorum) of them is `quorum:?node=redis://a&node=redis://b&node=…`.
    /// Nothing is sent yet: a server that cannot be reached shows with the first call.
    ///
    /// Options follow as a query: `namespace` (default `distlock`; empty for bare keys, as other
    /// lock libraries write them), `connect_timeout_ms`, `response_timeout_ms`, `db`, `user`,
    /// `pass`; with TLS `ca`, the PEM file of the authorities that may sign for the server
    /// (default: those of the system), and `cert` and `key`, the PEM files of this client's own
    /// certificate. `verify_push=1` makes a waiter confirm every pushed grant with the server
    /// before it counts, for servers where others may publish. With `journal=on` what happens to
    /// the locks is noted down, see [`Options::journal`]; `journal_entries` and `journal_days` say
    /// how much of it is kept.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] if the scheme is unknown or its feature is off, an option does not exist, or
    /// a file that it names cannot be used.
    ///
    /// ```
    /// use distlock::Locks;
    ///
    /// let locks = Locks::connect("redis://127.0.0.1/?namespace=billing")?;
    /// assert!(Locks::connect("redis://127.0.0.1/?ttl=30").is_err());
    /// # let _ = locks;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn connect(url: &str) -> Result<Self, Error> {
        let opened = open(url).map_err(Error::Url)?;
        let Opened { backend, journal, retention, .. } = &opened;
        let locks = match journal {
            Some(journal) => Self::new(Arc::clone(backend)).with_journal(Arc::clone(journal)),
            None => Self::new(Arc::clone(backend)),
        };
        #[cfg(feature = "quorum")]
        let locks = Self { quorum: opened.quorum.clone(), ..locks };
        let retention = *retention;
        if retention.is_some() { locks.configure(|o| o.journal(retention)) } else { Ok(locks) }
    }

    /// Locks inside this process: for tests, and for programs that may grow beyond it.
    pub fn memory() -> Self {
        let store = Arc::new(Memory::new());
        Self::new(Arc::clone(&store) as _).with_journal(store)
    }

    /// The same locks with other options. Locks made before keep theirs.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range; [`Error::Unsupported`] for a
    /// journal where there is none.
    pub fn configure(&self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        let settings = self.keeper.configure(&self.settings, change)?;
        Ok(Self { settings, ..self.clone() })
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> Capabilities {
        self.keeper.backend.capabilities()
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
        Ok(Mutex::new(self.lock(key)?))
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
        Ok(RwLock::new(self.lock(key)?))
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
        Ok(ReentrantMutex::new(self.lock(key)?))
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
        Semaphore::new(self.lock(key)?, permits)
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
        Ok(Leases::new(self.lock(key)?))
    }

    fn lock<K>(&self, key: K) -> Result<Lock, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let (keeper, settings) = (Arc::clone(&self.keeper), Arc::clone(&self.settings));
        Ok(Lock { keeper, settings, key: key.try_into()? })
    }

    /// Takes over a lease, from this process or another: it is extended to the full ttl of these
    /// locks and kept alive from now on.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the lease is over; [`Error::Invalid`] if these locks keep it already.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease with the client that has it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let lease = locks.mutex("migration")?.lock().await?.into_lease();
    /// let guard = locks.adopt(&lease).await?;
    /// assert_eq!(guard.fence(), lease.fence());
    /// # Ok(()) }
    /// ```
    pub async fn adopt(&self, lease: &Lease) -> Result<Guard, Error> {
        if self.keeper.is_closed() {
            return Err(Error::Closed);
        }
        // Counted as a call under way, so that the keeper is there when it is answered.
        let _asking = CallInProgress::new(&self.keeper);
        let sent_at = self.keeper.start()?;
        let (keeper, settings) = (&self.keeper, &self.settings);
        let renewal = Renewal::hold(lease.claim(), settings.lease());
        let standing = renew(&*keeper.backend, renewal, RELEASE_MAX).await;
        let fence = match standing.map_err(Error::from_fault)? {
            Standing::Held { fence } => fence,
            _ => return Err(Error::NotHeld { key: lease.key().clone() }),
        };
        let until = settings.validity.until(sent_at, settings.ttl);
        let now = keeper.clock.now();
        if until <= now {
            let (key, reason) = (lease.key().clone(), crate::LossReason::TooSlow);
            return Err(Error::Lost { key, reason });
        }
        let grant = Grant {
            claim: lease.claim(),
            attempt: None,
            fence,
            at: now,
            until,
            renew_at: sent_at.after(settings.renew_every),
            ticket: None,
            replicas: 0,
            waited: now.since(sent_at),
            attempts: 1,
            doubtful: false,
            mode: lease.mode(),
            acquisition: None,
        };
        let guard = Guard::keep(keeper, &grant, settings)?;
        keeper.observer.granted(lease.key(), fence, grant.waited);
        Ok(guard)
    }

    /// Looks at one key: who holds it, who waits.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a bad key, [`Error::Backend`] if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory().configure(|o| o.owner("ci-7").reason("release 1.9"))?;
    /// let guard = locks.mutex("deploy")?.lock().await?;
    /// let seen = locks.inspect("deploy").await?;
    /// assert_eq!(seen.holders[0].owner.as_str(), "ci-7");
    /// # Ok(()) }
    /// ```
    pub async fn inspect<K>(&self, key: K) -> Result<Snapshot, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        self.keeper.inspect(&key.try_into()?).await
    }

    /// The error that a fault of the store amounts to, about a key or about all of it.
    pub(crate) fn error_at(&self, key: Option<&Key>, fault: Fault) -> Error {
        let fault = fault.at_store(self.keeper.backend.extensions().location);
        match key {
            Some(key) => Error::from_fault_at(key, fault),
            None => Error::from_fault(fault),
        }
    }

    /// Looks at the keys that begin with `prefix` and are held or waited for, page by page.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let guard = locks.mutex("deploy/prod")?.lock().await?;
    /// assert_eq!(locks.list("deploy/", None).await?.locks.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, prefix: &str, cursor: Option<&Cursor>) -> Result<Page, Error> {
        let page = self.keeper.backend.list(prefix, cursor).await;
        page.map_err(|fault| self.error_at(None, fault))
    }

    /// Looks at the store itself.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let health = distlock::Locks::memory().probe().await?;
    /// assert!(!health.persistent);
    /// # Ok(()) }
    /// ```
    pub async fn probe(&self) -> Result<Health, Error> {
        self.keeper.backend.probe().await.map_err(|fault| self.error_at(None, fault))
    }

    /// Opens a store that takes a moment to be opened, in the background: for programs that have
    /// something else to do before their first call. A file is opened, servers are not called yet.
    /// If it fails, the first call does, too.
    pub fn warm_up(&self) {
        // A listener for pushes opens the store. What comes before the first hold or
        // wait concerns no claim.
        drop(self.keeper.backend.pushes());
    }

    /// What is in hand and what has happened so far.
    pub fn stats(&self) -> Stats {
        self.keeper.stats()
    }

    /// What happens from now on, as a stream. A listener that is too slow misses events and is told
    /// how many; the locks never wait for it.
    pub fn events(&self) -> Streaming<'static, Event> {
        self.keeper.observer.stream()
    }

    /// What happens from now on, as calls. The callback runs where the event happens: it must be
    /// quick and must not block.
    pub fn on_event(&self, callback: impl Fn(&Event) + Send + Sync + 'static) {
        self.keeper.observer.call(Box::new(callback));
    }

    /// Ends all locks of this `Locks` and its clones: calls that wait fail with [`Error::Closed`],
    /// guards are lost ([`LossReason::Closed`](crate::LossReason::Closed)) and released, and
    /// dropped ones are waited for. So are, for up to 2 s, nodes of a quorum that have not heard of
    /// a release yet. Stop the work that they protect first. Call it last in `main`: a process that
    /// ends does not wait for the releases of dropped guards, and their keys stay taken for their
    /// ttl.
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseUncertain`] if the store did not acknowledge everything within 5 s; what is
    /// left ends with its lease. [`Error::Backend`] if a call is still under way then.
    /// [`Error::NoRuntime`] outside a tokio runtime: then nothing is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the locks closed; the releases go on in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let guard = locks.mutex("deploy")?.lock().await?;
    /// locks.close().await?;
    /// assert!(!guard.is_held());
    /// assert!(locks.inspect("deploy").await?.is_free());
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) -> Result<(), Error> {
        self.keeper.close().await
    }
}
