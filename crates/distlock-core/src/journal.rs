//! The past of the locks, kept next to them: a second, optional seam.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Invalid, Key, Note, Pending};

/// How many entries one read returns at most.
pub const JOURNAL_PAGE_MAX: usize = 1000;

/// A store that remembers what happened to its locks, for a while.
///
/// Nothing is decided by it: locks are as safe without one, and never wait for it.
///
/// # Contract
///
/// - **Ordered.** Entries have the order in which they were appended. A batch is appended in its
///   order and as a whole, or not at all as far as anybody can tell.
/// - **At least once.** A batch whose append failed with a fault may be there all the same; the
///   writer repeats it. A client that needs every note once goes by [`Note::acquisition`] and what
///   happened.
/// - **Bounded.** The oldest entries go when there are more than the retention says, or when they
///   are older. A store may keep a few more than that for a while, never fewer.
/// - **One attempt**, a deadline, cancel safe: as [`Backend`](crate::Backend) says.
/// - **The store's time.** An entry tells when it happened by the clock of the store, so that
///   entries of different writers can be compared, to about a round trip.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// Writes notes down, each with how long ago it happened, and drops what is no longer kept.
    fn append<'a>(&'a self, notes: &'a [(Note, Duration)], retention: Retention)
    -> Pending<'a, ()>;

    /// Reads on after an entry, oldest first, or from the first entry that is kept. At most `limit`
    /// entries, and never more than [`JOURNAL_PAGE_MAX`]. An empty page is the end so far.
    fn page<'a>(&'a self, after: Option<&'a EntryId>, limit: usize) -> Pending<'a, JournalPage>;

    /// The past of one key, newest first. At most `limit` entries, and never more than
    /// [`JOURNAL_PAGE_MAX`]. A store that cannot find the entries of a key by an index may look at
    /// the newest 10,000 of all keys only.
    fn past<'a>(&'a self, key: &'a Key, limit: usize) -> Pending<'a, Vec<JournalEntry>>;

    /// The newest entry: reading on after it gets what happens from now on. None if there is none.
    fn last(&self) -> Pending<'_, Option<EntryId>>;
}

/// Something that happened to a lock, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Where it stands in the journal.
    pub id: EntryId,
    /// When it happened by the clock of the store, in milliseconds since 1970.
    pub at_ms: u64,
    /// What happened.
    pub note: Note,
}

/// Entries in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalPage {
    /// The entries, oldest first.
    pub entries: Vec<JournalEntry>,
    /// The entry to read on after is no longer kept: some between it and these may be missing.
    pub missed: bool,
}

/// The place of an entry in its journal. Opaque: only the journal that made it can read it.
/// Letters, digits, dots and dashes, so it can stand in a URL or be the id of a server-sent event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryId(String);

impl EntryId {
    /// The longest id, in bytes.
    pub const LEN_MAX: usize = 64;

    /// Checks the text of an id, wherever it comes from.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if it cannot be one.
    pub fn new(text: impl Into<String>) -> Result<Self, Invalid> {
        let text = text.into();
        let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        if text.is_empty() || text.len() > Self::LEN_MAX || !text.bytes().all(sound) {
            return Err(Invalid::new("entry id", text, "must be one that the journal gave out"));
        }
        Ok(Self(text))
    }

    /// The text that reads back.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EntryId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How much of the past is kept. Every writer brings its own; the store goes by the last.
///
/// ```
/// use distlock_core::Retention;
/// use std::time::Duration;
///
/// let retention = Retention::default();
/// assert_eq!(retention.entries, 10_000);
/// assert_eq!(retention.age, Duration::from_secs(7 * 24 * 60 * 60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How many entries.
    pub entries: u64,
    /// How old they may become.
    pub age: Duration,
}

impl Retention {
    /// The most entries that can be kept.
    pub const ENTRIES_MAX: u64 = 1_000_000;

    /// The longest that they can be kept: a year.
    pub const AGE_MAX: Duration = crate::TTL_MAX;

    /// Checks everything a journal may rely on.
    ///
    /// # Errors
    ///
    /// [`Invalid`], naming the first value that is out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        if !(1..=Self::ENTRIES_MAX).contains(&self.entries) {
            return Err(Invalid::new("entries", self.entries, "must be between 1 and 1000000"));
        }
        if self.age < Duration::from_millis(1) || self.age > Self::AGE_MAX {
            let age = format_args!("{:?}", self.age);
            return Err(Invalid::new("age", age, "must be between 1 ms and 365 days"));
        }
        Ok(())
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { entries: 10_000, age: Duration::from_secs(7 * 24 * 60 * 60) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_id_is_a_short_word() {
        for good in ["1700000000000-12", "42", "n2.17-0"] {
            assert_eq!(EntryId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\nb", "$", "+", "*", &"1".repeat(65)] {
            assert!(EntryId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn retention_has_bounds() {
        let fine = Retention::default();
        assert!(fine.check().is_ok());
        for bad in [
            Retention { entries: 0, ..fine },
            Retention { entries: u64::MAX, ..fine },
            Retention { age: Duration::ZERO, ..fine },
            Retention { age: Duration::MAX, ..fine },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
