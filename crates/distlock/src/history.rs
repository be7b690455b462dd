//! Reading the past: what the journal has of these locks and of everybody else's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    EntryId, Fault, Holder, Journal, JournalEntry, JournalPage, Key, Label, Mode, Note, NoteEvent,
    ReleaseOptions, ReleaseOutcome, Streaming, Target,
};
use futures_util::stream;

use crate::hold_records::HoldRecord;
use crate::keeper::{FLUSH_MAX, Keeper, LATE_ACQUIRE_MAX};
use crate::observe::Event;
use crate::{Error, Locks};

/// How long a look at the past waits for what these locks have yet to write.
const OWN_NOTES_MAX: Duration = Duration::from_secs(1);

/// How often a feed looks for more.
const FEED_POLL_EVERY: Duration = Duration::from_millis(200);

/// How long a feed pauses after a fault.
const FEED_FAULT_PAUSE: Duration = Duration::from_secs(1);

/// How many entries a feed reads at once.
const FEED_PAGE: usize = 500;

/// How many entries a visit has, for most of them: queued, granted, at risk, ended.
const ENTRIES_PER_HOLD: usize = 4;

/// Where a feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartAt {
    /// With the oldest entry that is kept.
    Start,
    /// With what happens after the feed was first polled.
    Now,
    /// After this entry: for those who come back.
    After(EntryId),
}

/// What a feed brings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FeedItem {
    /// Something happened.
    Entry(JournalEntry),
    /// Some entries may be missing here: they were dropped before they could be read.
    Missed,
    /// The journal cannot be read at the moment. The feed goes on when it can.
    Unreachable(Fault),
}

impl Locks {
    /// The last visits to a key, newest first: who waited and held, for how long, and how it ended.
    /// A client that writes the [journal](crate::Options::journal) is in it, in this process or
    /// another.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is no journal, [`Error::Invalid`] for a bad key,
    /// [`Error::Backend`] if it cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Locks, Retention, HoldRecordState};
    ///
    /// let locks = Locks::memory().configure(|o| o.owner("ci-7").journal(Retention::default()))?;
    /// locks.mutex("deploy")?.lock().await?.release().await?;
    ///
    /// let past = locks.history("deploy", 10).await?;
    /// assert_eq!(past[0].owner.as_str(), "ci-7");
    /// assert_eq!(past[0].state, HoldRecordState::Released);
    /// # Ok(()) }
    /// ```
    pub async fn history<K>(&self, key: K, limit: usize) -> Result<Vec<HoldRecord>, Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let key = key.try_into()?;
        let journal = self.journal()?;
        self.keeper.flush(OWN_NOTES_MAX).await;
        let entries = limit.saturating_mul(ENTRIES_PER_HOLD).saturating_add(ENTRIES_PER_HOLD);
        let past = journal.past(&key, entries).await;
        let past = past.map_err(|fault| self.error_at(Some(&key), fault))?;
        let mut visits = HoldRecord::fold(past.iter().rev());
        // What the store says now is truer than the lack of an entry.
        if let Ok(now) = self.keeper.backend.inspect(&key).await {
            HoldRecord::settle(&mut visits, &now);
        }
        visits.reverse();
        visits.truncate(limit);
        Ok(visits)
    }

    /// Entries of the journal as they are, oldest first: those after an entry, or from the oldest
    /// on. At most `limit` of them, and never more than
    /// [`JOURNAL_PAGE_MAX`](crate::JOURNAL_PAGE_MAX).
    ///
    /// # Errors
    ///
    /// As [`history`](Self::history).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Locks, Retention};
    ///
    /// let locks = Locks::memory().configure(|o| o.journal(Retention::default()))?;
    /// locks.mutex("deploy")?.lock().await?.release().await?;
    ///
    /// let first = locks.journal_page(None, 1).await?.entries.remove(0);
    /// assert_eq!(first.note.what.name(), "granted");
    /// let rest = locks.journal_page(Some(&first.id), 100).await?;
    /// assert_eq!(rest.entries[0].note.what.name(), "released");
    /// # Ok(()) }
    /// ```
    pub async fn journal_page(
        &self,
        after: Option<&EntryId>,
        limit: usize,
    ) -> Result<JournalPage, Error> {
        let journal = self.journal()?;
        self.keeper.flush(OWN_NOTES_MAX).await;
        let page = journal.page(after, limit).await;
        page.map_err(|fault| self.error_at(None, fault))
    }

    /// Waits until the journal has what these locks have noted so far, for two seconds at most: for
    /// programs that end without [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is written all the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Locks, Retention};
    ///
    /// let locks = Locks::memory().configure(|o| o.journal(Retention::default()))?;
    /// locks.mutex("deploy")?.lock().await?.release().await?;
    /// locks.flush_journal().await;
    /// assert_eq!(locks.stats().journal_pending, 0);
    /// # Ok(()) }
    /// ```
    pub async fn flush_journal(&self) {
        self.keeper.flush(FLUSH_MAX).await;
    }

    /// What happens to all locks of the store whose users write the journal, as a stream that can
    /// be taken up again after any of its entries. It looks for more a few times a second, and ends
    /// when these locks are [closed](Self::close).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is no journal.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Locks, FeedItem, Retention, StartAt};
    /// use futures_util::StreamExt;
    ///
    /// let locks = Locks::memory().configure(|o| o.journal(Retention::default()))?;
    /// let mut feed = locks.feed(StartAt::Start)?;
    /// let guard = locks.mutex("deploy")?.lock().await?;
    /// let Some(FeedItem::Entry(entry)) = feed.next().await else { panic!("no news") };
    /// assert_eq!(entry.note.fence, Some(guard.fence()));
    /// # Ok(()) }
    /// ```
    pub fn feed(&self, since: StartAt) -> Result<Streaming<'static, FeedItem>, Error> {
        let (journal, keeper) = (Arc::clone(self.journal()?), Arc::clone(&self.keeper));
        let ready = VecDeque::new();
        let feed = Feed { journal, keeper, since, ready, pause: None };
        Ok(Box::pin(stream::unfold(feed, |mut feed| async move {
            let news = feed.next().await?;
            Some((news, feed))
        })))
    }

    /// An operator's release of another client's hold, if its fence is still `fence`. The holder is
    /// told by push ([`LossReason::Broken`](crate::LossReason::Broken)), or finds the hold gone at
    /// its next renewal ([`LossReason::Gone`](crate::LossReason::Gone)), but cannot be stopped:
    /// make sure that it no longer works, or that the resource checks fences.
    ///
    /// With [`Options::journal`](crate::Options::journal) it is noted down who did it and why: the
    /// `owner` and the `reason` of these locks.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if no client holds the key under this fence any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the hold broken or not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let locks = distlock::Locks::memory();
    /// let guard = locks.mutex("deploy")?.lock().await?;
    /// locks.break_hold("deploy", guard.fence()).await?;
    /// assert_eq!(guard.lost().await, distlock::LossReason::Broken);
    /// # Ok(()) }
    /// ```
    pub async fn break_hold<K>(&self, key: K, fence: u64) -> Result<(), Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let key = key.try_into()?;
        // Afterwards it is unknown who held it.
        let held = self.holder_to_note(&key, fence).await;
        let target = Target::Fence { key: key.clone(), fence };
        let how = ReleaseOptions { bury: LATE_ACQUIRE_MAX, ..ReleaseOptions::default() };
        let outcome = self.keeper.backend.release(&target, how).await;
        match outcome.map_err(|fault| self.error_at(Some(&key), fault))? {
            ReleaseOutcome::WasHeld => {}
            _ => return Err(Error::NotHeld { key }),
        }
        self.keeper.observer.emit(|| Event::Broken { key: key.clone(), fence });
        if let Some(held) = held {
            self.note_break(&key, held).await;
        }
        Ok(())
    }

    /// Notes down that something was done that concerns a key and is no part of any hold, on behalf
    /// of the `owner` of these locks: `what` says what, in a word. Nothing happens to the key, and
    /// nothing is noted without [`Options::journal`](crate::Options::journal).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a bad key, or if `what` is too long or not printable.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Locks, Retention, NoteEvent};
    ///
    /// let locks = Locks::memory().configure(|o| o.owner("ci-7").journal(Retention::default()))?;
    /// locks.note_action("deploy", "state-deleted")?;
    /// let noted = &locks.journal_page(None, 10).await?.entries[0].note;
    /// assert!(matches!(&noted.what, NoteEvent::Action { by, .. } if by.as_str() == "ci-7"));
    /// # Ok(()) }
    /// ```
    pub fn note_action<K>(&self, key: K, what: &str) -> Result<(), Error>
    where
        K: TryInto<Key>,
        Error: From<K::Error>,
    {
        let (key, what) = (key.try_into()?, Label::new("what", what)?);
        let Some(retention) = self.settings.journal else { return Ok(()) };
        let note = Note {
            key,
            owner: self.settings.owner.clone(),
            reason: self.settings.reason.clone(),
            mode: Mode::Exclusive,
            fence: None,
            acquisition: None,
            what: NoteEvent::Action { by: self.settings.owner.clone(), what },
        };
        self.keeper.observer.journal_writer.note(note, self.keeper.clock.now(), retention);
        self.keeper.start().map(|_| ())
    }

    fn journal(&self) -> Result<&Arc<dyn Journal>, Error> {
        self.keeper
            .observer
            .journal_writer
            .journal()
            .ok_or(Error::Unsupported { what: "a journal" })
    }

    /// The holder under this fence, if a break is to be noted down.
    async fn holder_to_note(&self, key: &Key, fence: u64) -> Option<Holder> {
        self.settings.journal?;
        let seen = self.keeper.backend.inspect(key).await.ok()?;
        seen.holders.into_iter().find(|holder| holder.fence == fence)
    }

    async fn note_break(&self, key: &Key, held: Holder) {
        let Some(retention) = self.settings.journal else { return };
        let (by, why) = (self.settings.owner.clone(), self.settings.reason.clone());
        let note = Note {
            key: key.clone(),
            mode: held.mode(),
            owner: held.owner,
            reason: held.reason,
            fence: Some(held.fence),
            acquisition: None,
            what: NoteEvent::Broken { by, why },
        };
        self.keeper.observer.journal_writer.note(note, self.keeper.clock.now(), retention);
        self.keeper.flush(OWN_NOTES_MAX).await;
    }
}

/// A reader of the journal that never ends by itself.
struct Feed {
    journal: Arc<dyn Journal>,
    keeper: Arc<Keeper>,
    since: StartAt,
    ready: VecDeque<FeedItem>,
    /// How long to wait before the next look.
    pause: Option<Duration>,
}

impl Feed {
    async fn next(&mut self) -> Option<FeedItem> {
        let keeper = Arc::clone(&self.keeper);
        loop {
            if let Some(news) = self.ready.pop_front() {
                return Some(news);
            }
            let pause = self.pause.take();
            let looked = async {
                if let Some(pause) = pause {
                    tokio::time::sleep(pause).await;
                }
                self.look().await
            };
            let looked = tokio::select! {
                looked = looked => looked,
                () = keeper.until_closed() => return None,
            };
            if let Err(fault) = looked {
                self.pause = Some(FEED_FAULT_PAUSE);
                let store = keeper.backend.extensions().location;
                return Some(FeedItem::Unreachable(fault.at_store(store)));
            }
        }
    }

    async fn look(&mut self) -> Result<(), Fault> {
        if self.since == StartAt::Now {
            self.since = self.journal.last().await?.map_or(StartAt::Start, StartAt::After);
        }
        let after = match &self.since {
            StartAt::After(id) => Some(id),
            StartAt::Start | StartAt::Now => None,
        };
        let page = self.journal.page(after, FEED_PAGE).await?;
        if page.entries.len() < FEED_PAGE {
            self.pause = Some(FEED_POLL_EVERY);
        }
        if let Some(last) = page.entries.last() {
            if page.missed {
                self.ready.push_back(FeedItem::Missed);
            }
            self.since = StartAt::After(last.id.clone());
        }
        self.ready.extend(page.entries.into_iter().map(FeedItem::Entry));
        Ok(())
    }
}
