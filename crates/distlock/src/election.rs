//! One leader among many candidates.
//!
//! Long because every form of campaigning has its documentation and a runnable example.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Holder, Invalid, Label, Streaming, Waiter};
use futures_util::stream;

use crate::keeper::Keeper;
use crate::options::Options;
use crate::{Error, Guard, HoldEnd, Key, Locks, Mutex};

/// How often an observer looks unless told otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The shortest pause between two looks.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);

/// An election: one leader at a time, and candidates that wait in line to follow it.
///
/// It is a mutex in the words of elections. The leader is whoever holds the key, the *term* is the
/// fence of that hold, and the standby order is the queue. A candidate is shown under the option
/// [`owner`](Options::owner). When a leader dies, the next candidate leads as soon as the lease is
/// over: at most [`ttl`](Options::ttl) later.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Locks;
///
/// let locks = Locks::memory().configure(|o| o.owner("node-1"))?;
/// let election = locks.election("scheduler")?;
/// let leadership = election.campaign().await?;
/// let leader = election.leader().await?.expect("we lead");
/// assert_eq!((leader.name.as_str(), leader.term), ("node-1", leadership.term()));
/// leadership.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    mutex: Mutex,
    keeper: Arc<Keeper>,
    look_every: Duration,
}

/// Who leads, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The candidate's name: its option `owner`.
    pub name: Label,
    /// What for, if it says so.
    pub reason: Option<Label>,
    /// The term: larger than that of every earlier leader.
    pub term: u64,
    /// Since when it leads.
    pub led_for: Duration,
}

impl From<&Holder> for Leader {
    fn from(holder: &Holder) -> Self {
        Self {
            name: holder.owner.clone(),
            reason: holder.reason.clone(),
            term: holder.fence,
            led_for: holder.held_for,
        }
    }
}

impl Locks {
    /// An election among all who campaign for the same key. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is empty or longer than 512 bytes.
    pub fn election<K>(&self, key: K) -> Result<Election, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let (mutex, keeper) = (self.mutex(key)?, Arc::clone(&self.keeper));
        Ok(Election { mutex, keeper, look_every: LOOK_EVERY })
    }
}

impl Election {
    /// The key.
    pub fn key(&self) -> &Key {
        self.mutex.key()
    }

    /// Changes the options of this election: `owner` is the name of the candidate, `ttl` the time
    /// after which a dead leader is replaced, `max_hold` the longest term.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], naming the option that is out of range.
    pub fn configure(self, change: impl FnOnce(Options) -> Options) -> Result<Self, Error> {
        Ok(Self { mutex: self.mutex.configure(change)?, ..self })
    }

    /// How often [`observe`](Self::observe) looks. Default 1 s.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] below 10 ms.
    pub fn look_every(self, look_every: Duration) -> Result<Self, Error> {
        if look_every < LOOK_EVERY_MIN {
            let why = "must be at least 10 ms";
            return Err(Invalid::new("look_every", format_args!("{look_every:?}"), why).into());
        }
        Ok(Self { look_every, ..self })
    }

    /// Waits in line to lead, up to `max_wait` if that is set.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. Leadership that was granted meanwhile is given up.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let election = distlock::Locks::memory().election("scheduler")?;
    /// let first = election.campaign().await?;
    /// let term = first.term();
    /// first.resign().await?;
    /// assert!(election.campaign().await?.term() > term);
    /// # Ok(()) }
    /// ```
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.mutex.lock().await.map(Leadership)
    }

    /// Leads if there is no leader and no other candidate.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if there is.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let election = distlock::Locks::memory().election("scheduler")?;
    /// let leadership = election.try_campaign().await?;
    /// assert!(election.try_campaign().await.is_err());
    /// # let _ = leadership;
    /// # Ok(()) }
    /// ```
    pub async fn try_campaign(&self) -> Result<Leadership, Error> {
        self.mutex.try_lock().await.map(Leadership)
    }

    /// Waits in line to lead, at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if another candidate led until then.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// let election = distlock::Locks::memory().election("scheduler")?;
    /// let leadership = election.campaign_for(Duration::from_secs(1)).await?;
    /// # let _ = leadership;
    /// # Ok(()) }
    /// ```
    pub async fn campaign_for(&self, max_wait: Duration) -> Result<Leadership, Error> {
        self.mutex.try_lock_for(max_wait).await.map(Leadership)
    }

    /// Campaigns, runs `work` while it leads, and campaigns again whenever leadership is lost. At
    /// loss `work` is dropped where it stands; it is called anew for the next term. Returns what
    /// `work` returns when it ends by itself, and resigns.
    ///
    /// While the store cannot be reached it goes on asking, whatever `patience` says.
    ///
    /// # Errors
    ///
    /// Whatever else ends a campaign: [`Error::Timeout`] after `max_wait`, [`Error::Cancelled`],
    /// [`Error::Closed`], a refusal of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and gives up leadership, or leaves the line.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let locks = distlock::Locks::memory();
    /// let election = locks.election("scheduler")?;
    /// // No term lasts longer than 20 ms, so the first call is dropped and the second one ends.
    /// let election = election.configure(|o| o.max_hold(Duration::from_millis(20)))?;
    /// let mut terms = Vec::new();
    /// let done = election.run(async |leadership| {
    ///     terms.push(leadership.term());
    ///     if terms.len() == 1 {
    ///         std::future::pending::<()>().await;
    ///     }
    ///     "done"
    /// });
    /// assert_eq!(done.await?, "done");
    /// assert!(terms[1] > terms[0]);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(&self, mut work: impl AsyncFnMut(&Leadership) -> T) -> Result<T, Error> {
        let patient = self.clone().configure(|o| o.patience(Duration::MAX))?;
        loop {
            let leadership = patient.campaign().await?;
            let done = leadership.run(work(&leadership)).await;
            match done {
                Ok(done) => {
                    // Its outcome changes nothing: the work was done while it led.
                    let _ = leadership.resign().await;
                    return Ok(done);
                }
                Err(Error::Lost { key, reason }) => {
                    tracing::warn!(%key, %reason, "leadership lost, campaigning again");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Who leads now; none if there is no leader.
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
    /// let election = distlock::Locks::memory().election("scheduler")?;
    /// assert!(election.leader().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let seen = self.keeper.inspect(self.key()).await?;
        Ok(seen.holders.first().map(Leader::from))
    }

    /// The candidates that wait, the next leader first; at most
    /// [`SNAPSHOT_MAX`](distlock_core::SNAPSHOT_MAX) of them. Empty on a store without a queue.
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
    /// let election = distlock::Locks::memory().election("scheduler")?;
    /// let leadership = election.campaign().await?;
    /// assert!(election.standby().await?.is_empty());
    /// # let _ = leadership;
    /// # Ok(()) }
    /// ```
    pub async fn standby(&self) -> Result<Vec<Waiter>, Error> {
        Ok(self.keeper.inspect(self.key()).await?.waiters)
    }

    /// Who leads now, and then every change that is seen: a new term, or none when the key is free.
    /// It looks as often as [`look_every`](Self::look_every) says, and when the leader's lease can
    /// end, so terms shorter than that may go unseen.
    ///
    /// A store that cannot be reached is reported once, and the leader again when it can. The
    /// stream ends when the locks are closed and after an error that is not transient. Poll it
    /// inside a tokio runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use futures_util::StreamExt;
    ///
    /// let locks = distlock::Locks::memory().configure(|o| o.owner("node-1"))?;
    /// let election = locks.election("scheduler")?;
    /// let mut leaders = election.observe();
    /// assert!(matches!(leaders.next().await, Some(Ok(None))));
    /// let leadership = election.campaign().await?;
    /// let Some(Ok(Some(leader))) = leaders.next().await else { panic!("there is a leader") };
    /// assert_eq!(leader.term, leadership.term());
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Streaming<'static, Result<Option<Leader>, Error>> {
        let feed = LeaderFeed { election: self.clone(), seen: Seen::Nothing, pause: None };
        Box::pin(stream::unfold(feed, async |mut feed| {
            let change = feed.next().await?;
            Some((change, feed))
        }))
    }
}

/// What an observer told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Fault,
    Refusal,
    /// The term, if there was a leader.
    Term(Option<u64>),
}

/// One stream of changes.
struct LeaderFeed {
    election: Election,
    seen: Seen,
    /// How long to wait before the next look.
    pause: Option<Duration>,
}

impl LeaderFeed {
    /// The next change; none when the stream is over.
    async fn next(&mut self) -> Option<Result<Option<Leader>, Error>> {
        let keeper = Arc::clone(&self.election.keeper);
        tokio::select! {
            biased;
            () = keeper.until_closed() => None,
            change = self.change() => change,
        }
    }

    async fn change(&mut self) -> Option<Result<Option<Leader>, Error>> {
        if self.seen == Seen::Refusal {
            return None;
        }
        loop {
            if let Some(pause) = self.pause.take() {
                tokio::time::sleep(pause).await;
            }
            let looked = self.election.keeper.inspect(self.election.key()).await;
            let holder = looked.as_ref().ok().and_then(|seen| seen.holders.first());
            let ends = holder.and_then(|holder| holder.expires_in).unwrap_or(Duration::MAX);
            self.pause = Some(self.election.look_every.min(ends.max(LOOK_EVERY_MIN)));
            let seen = match &looked {
                Ok(_) => Seen::Term(holder.map(|holder| holder.fence)),
                Err(error) if error.is_transient() => Seen::Fault,
                Err(_) => Seen::Refusal,
            };
            let before = std::mem::replace(&mut self.seen, seen);
            if before != seen {
                return Some(looked.map(|seen| seen.holders.first().map(Leader::from)));
            }
        }
    }
}

/// Leadership that is held: it is renewed until it is resigned, dropped or lost.
///
/// It is a [`Guard`], and knows all that a guard knows. Its [`term`](Self::term) is the fence that
/// resources check, so that a leader that was paused cannot overwrite what its successor wrote.
#[derive(Debug)]
#[must_use = "leadership is given up as soon as it is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// The term: larger than that of every earlier leader.
    pub fn term(&self) -> u64 {
        self.0.fence()
    }

    /// Gives up leadership: the next candidate in line leads when this returns. See
    /// [`Guard::release`].
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseUncertain`] if the store could not be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::HoldEnd;
    /// let election = distlock::Locks::memory().election("scheduler")?;
    /// assert_eq!(election.campaign().await?.resign().await?, HoldEnd::Released);
    /// # Ok(()) }
    /// ```
    pub async fn resign(self) -> Result<HoldEnd, Error> {
        self.0.release().await
    }

    /// The guard behind it.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
