//! Several keys at once, all or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Invalid, Moment};

use crate::engine::{AcquireRequest, Many, WaitLimit, acquire_many};
use crate::keeper::Keeper;
use crate::lock::{Lock, Shape};
use crate::many_guard::{MultiGuard, first_loss, release_all};
use crate::options::{Options, Settings};
use crate::{Error, Guard, Key, Locks};

/// How many keys may be locked together.
pub(crate) const KEYS_MAX: usize = 64;

/// How often to begin anew after a key was lost while the others were waited for.
const RESTARTS_MAX: u32 = 3;

/// Several keys that are locked together: all of them or none.
///
/// Keys are taken in one sequence, sorted by their bytes, whatever sequence they were given in. So
/// two programs that lock overlapping sets never wait for each other in a circle. Stores that can
/// take all keys in one call do so. When one of them is held, the keys before it are held while it
/// is waited for in its queue, first come, first served; those after it are not.
///
/// A circle is possible only with locks that are taken besides: if a program holds `b` and asks
/// for `a` while another one locks both, each waits for the other. Lock all keys together, take
/// single ones in sorted sequence, too, or set [`max_wait`](Options::max_wait).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let locks = distlock::Locks::memory();
/// let both = locks.all(["account/7", "account/3"])?.lock().await?;
/// assert!(locks.mutex("account/3")?.try_lock().await.is_err());
/// let fences: Vec<_> = both.fences().map(|(key, fence)| format!("{key} {fence}")).collect();
/// println!("{}", fences.join(", "));
/// both.release().await;
/// assert!(locks.mutex("account/3")?.try_lock().await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    keeper: Arc<Keeper>,
    settings: Arc<Settings>,
    keys: Vec<Key>,
}

impl Locks {
    /// Several keys, all of them or none. A key that is given twice counts once. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if there is no key, there are more than 64, or one is empty or too long.
    pub fn all<K>(&self, keys: impl IntoIterator<Item = K>) -> Result<MultiLock, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let mut sorted = BTreeSet::new();
        for key in keys {
            sorted.insert(key.try_into()?);
        }
        if sorted.is_empty() || sorted.len() > KEYS_MAX {
            return Err(
                Invalid::new("number of keys", sorted.len(), "must be between 1 and 64").into()
            );
        }
        let (keeper, settings) = (Arc::clone(&self.keeper), Arc::clone(&self.settings));
        Ok(MultiLock { keeper, settings, keys: sorted.into_iter().collect() })
    }
}

impl MultiLock {
    /// The keys, sorted.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Changes the options of all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { settings: self.keeper.configure(&self.settings, change)?, ..self })
    }

    /// Waits for all keys, up to `max_wait` for all of them if that is set.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock), about the key that was not to be had. No key is held
    /// then. [`Error::Lost`] if keys were lost again and again while others were waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and releases what was granted, in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let guard = distlock::Locks::memory().all(["a", "b", "c"])?.lock().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        self.guard(WaitLimit::from_max_wait(self.settings.max_wait)).await
    }

    /// Takes all keys if they are free and no client waits for one of them.
    ///
    /// # Errors
    ///
    /// [`Error::Held`], about the first that is not; [`Error::Backend`] if the store cannot be
    /// reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases what was granted, in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let held = locks.mutex("b")?.lock().await?;
    /// assert!(locks.all(["a", "b", "c"])?.try_lock().await.is_err());
    /// assert!(locks.mutex("a")?.try_lock().await.is_ok());
    /// # let _ = held;
    /// # Ok(()) }
    /// ```
    pub async fn try_lock(&self) -> Result<MultiGuard, Error> {
        self.guard(WaitLimit::Once).await
    }

    /// Waits for all keys, at most this long for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], about the key that was still held then; otherwise as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let locks = distlock::Locks::memory();
    /// let guard = locks.all(["a", "b"])?.try_lock_for(Duration::from_millis(20)).await?;
    /// # let _ = guard;
    /// # Ok(()) }
    /// ```
    pub async fn try_lock_for(&self, max_wait: Duration) -> Result<MultiGuard, Error> {
        self.guard(WaitLimit::from_max_wait(Some(max_wait))).await
    }

    /// Waits for all keys, runs `work` under them and releases them.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`] if one of them was lost meanwhile; then `work`
    /// was dropped where it stood, or had gone on without protection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases all keys in the background; so does a panic.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let accounts = distlock::Locks::memory().all(["account/3", "account/7"])?;
    /// let keys = accounts.with(async |guard| guard.fences().count()).await?;
    /// assert_eq!(keys, 2);
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock().await?.scope(work).await
    }

    async fn guard(&self, limit: WaitLimit) -> Result<MultiGuard, Error> {
        let mut taking = Taking {
            all: self,
            limit,
            started: self.keeper.clock.now(),
            held: Vec::with_capacity(self.keys.len()),
        };
        match taking.run().await {
            Ok(()) => Ok(MultiGuard::new(taking.held)),
            Err(error) => {
                // When the call returns nothing is held, so that the next one does not meet it.
                let held = std::mem::take(&mut taking.held);
                release_all(held).await;
                Err(taking.whole(error))
            }
        }
    }

    fn lock_of(&self, key: &Key) -> Lock {
        let (keeper, settings) = (Arc::clone(&self.keeper), Arc::clone(&self.settings));
        Lock { keeper, settings, key: key.clone() }
    }
}

/// One call for all keys, and what it holds so far: the first of them.
struct Taking<'a> {
    all: &'a MultiLock,
    limit: WaitLimit,
    started: Moment,
    held: Vec<Guard>,
}

impl Taking<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let mut restarts = 0;
        loop {
            let taken = self.take_rest().await;
            // One that was lost meanwhile makes all the others useless.
            let Some((key, reason)) = first_loss(&self.held) else {
                taken?;
                if self.held.len() == self.all.keys.len() {
                    return Ok(());
                }
                continue;
            };
            if let Err(error @ (Error::Closed | Error::Cancelled { .. })) = taken {
                return Err(error);
            }
            restarts += 1;
            if restarts > RESTARTS_MAX || self.limit == WaitLimit::Once {
                return Err(Error::Lost { key, reason });
            }
            release_all(std::mem::take(&mut self.held)).await;
        }
    }

    /// Goes on from what is held, until all keys are, or one had to be waited for.
    async fn take_rest(&mut self) -> Result<(), Error> {
        let rest = &self.all.keys[self.held.len()..];
        let one_by_one = match self.in_one_call(rest).await? {
            Many::Granted(grants) => {
                for grant in grants {
                    self.held.push(Guard::keep(&self.all.keeper, &grant, &self.all.settings)?);
                }
                return Ok(());
            }
            // Those before it are free as a rule. Those after it are asked for again in one call.
            Many::Blocked(at) => &rest[..=at],
            Many::OneByOne => rest,
        };
        for key in one_by_one {
            let (lock, limit) = (self.all.lock_of(key), self.left(key)?);
            let guard = tokio::select! {
                biased;
                () = lost(&self.held) => return Ok(()),
                guard = lock.guard(Shape::MUTEX, limit) => guard?,
            };
            self.held.push(guard);
        }
        Ok(())
    }

    async fn in_one_call(&self, rest: &[Key]) -> Result<Many, Error> {
        if rest.len() < 2 {
            return Ok(Many::OneByOne);
        }
        let request = |key| self.all.lock_of(key).request(Shape::MUTEX, None, self.limit);
        let requests = rest.iter().map(request).collect::<Result<Vec<AcquireRequest>, Error>>()?;
        let settings = &self.all.settings;
        tokio::select! {
            biased;
            () = settings.until_cancelled() => Err(Error::Cancelled { key: rest[0].clone() }),
            many = acquire_many(&self.all.keeper, &requests) => many,
        }
    }

    /// How long the next key may be waited for.
    fn left(&self, key: &Key) -> Result<WaitLimit, Error> {
        let WaitLimit::For(max_wait) = self.limit else { return Ok(self.limit) };
        let waited = self.all.keeper.clock.now().since(self.started);
        match max_wait.saturating_sub(waited) {
            Duration::ZERO => Err(Error::Timeout { key: key.clone(), waited, source: None }),
            left => Ok(WaitLimit::For(left)),
        }
    }

    /// The error of one key as that of the whole call.
    fn whole(&self, error: Error) -> Error {
        match error {
            Error::Timeout { key, source, .. } => {
                let waited = self.all.keeper.clock.now().since(self.started);
                Error::Timeout { key, waited, source }
            }
            error => error,
        }
    }
}

/// Ends when one of them is lost.
async fn lost(held: &[Guard]) {
    if held.is_empty() {
        return std::future::pending().await;
    }
    let losses = held.iter().map(|guard| Box::pin(guard.lost()));
    futures_util::future::select_all(losses).await;
}
