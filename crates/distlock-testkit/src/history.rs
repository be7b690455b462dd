//! What clients saw, written down as it happened and checked afterwards.

mod exclusion;
mod fences;
mod order;
mod violation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::{CAPACITY_MAX, Moment, Order, Ticket};

pub use violation::{Rule, Violation};

/// A record of what clients saw. Clones share it.
///
/// Clients write down one [`HistoryEntry`] per acquisition: when it was asked, its place, its grant
/// and its end. All moments are of one clock. [`History::check`] then looks for what must not
/// happen:
///
/// - **Exclusion.** Validity runs from the moment the client knew of the grant to the moment it
///   called release, or knew of the loss, or its `valid_until` passed. An exclusive claim overlaps
///   nothing but claims of its own thread of work; groups and orders do not mix; no grant exceeds
///   the capacity that its own claim believes in.
/// - **Fences** are unique per key and grow in real time.
/// - **Order.** Queued claims are granted in the sequence of their tickets, and no claim overtakes
///   another. It relies on fences and tickets being of one counter, as the law says.
/// - **Accounting.** Every grant ends once, by a release or a loss, or is still alive.
///
/// ```
/// use distlock_core::Moment;
/// use distlock_testkit::history::{ValidityEnd, History, AcquireSpec};
///
/// let at = Moment::from_micros;
/// let history = History::new(7);
/// let mine = history.asks(AcquireSpec::mutex("k"), at(0));
/// mine.granted(1, at(10));
/// let yours = history.asks(AcquireSpec::mutex("k"), at(5));
/// yours.granted(2, at(15));
/// mine.ended(ValidityEnd::Released, at(20));
///
/// let violations = history.check();
/// assert!(violations[0].to_string().contains("exclusion"));
/// ```
#[derive(Clone, Debug)]
pub struct History {
    seed: u64,
    log: Arc<Mutex<HistoryLog>>,
}

#[derive(Debug, Default)]
struct HistoryLog {
    entries: Vec<SeenAcquisition>,
    events: u64,
    misuse: Vec<Violation>,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct AcquireSpec {
    /// The key.
    pub key: String,
    /// How much of the capacity.
    pub weight: u32,
    /// The capacity as this claim sees it. The whole of it is exclusive.
    pub capacity: u32,
    /// Who goes first.
    pub order: Order,
    /// The group of a shared claim.
    pub group: Option<String>,
    /// The thread of work: claims of one thread share a fence and may overlap.
    pub thread: Option<u64>,
}

impl AcquireSpec {
    /// 1 of 1, first come, first served.
    pub fn mutex(key: impl Into<String>) -> Self {
        let (order, key) = (Order::Fifo, key.into());
        Self { key, weight: 1, capacity: 1, order, group: None, thread: None }
    }

    /// A reader.
    pub fn read(key: impl Into<String>, order: Order) -> Self {
        Self { capacity: CAPACITY_MAX, order, ..Self::mutex(key) }
    }

    /// A writer.
    pub fn write(key: impl Into<String>, order: Order) -> Self {
        Self { weight: CAPACITY_MAX, capacity: CAPACITY_MAX, order, ..Self::mutex(key) }
    }

    /// `permits` of `capacity`.
    pub fn permits(key: impl Into<String>, permits: u32, capacity: u32) -> Self {
        Self { weight: permits, capacity, ..Self::mutex(key) }
    }

    fn is_exclusive(&self) -> bool {
        self.weight == self.capacity
    }
}

/// How a validity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidityEnd {
    /// The client called release. The moment is that of the call, not of its answer.
    Released,
    /// The client knew that it had lost the claim.
    Lost,
}

/// A moment and its number in the record, which decides between equal moments.
type Stamp = (Moment, u64);

/// Everything seen of one acquisition.
#[derive(Clone, Debug)]
struct SeenAcquisition {
    wish: AcquireSpec,
    asked: Stamp,
    ticket: Option<Ticket>,
    /// When the present ticket was acknowledged first, last but one, and last.
    acks: Option<[Stamp; 3]>,
    grant: Option<(u64, Stamp)>,
    /// Later weights: the moments since which they count.
    weights: Vec<(Stamp, u32)>,
    valid_until: Option<Moment>,
    end: Option<(ValidityEnd, Stamp)>,
}

impl SeenAcquisition {
    /// When the validity ended, as far as the client may have believed in it.
    fn until(&self) -> Option<Stamp> {
        let ended = self.end.map(|(_, stamp)| stamp);
        let expired = self.valid_until.map(|until| (until, u64::MAX));
        ended.into_iter().chain(expired).min()
    }

    fn is_sibling(&self, other: &Self) -> bool {
        self.wish.thread.is_some() && self.wish.thread == other.wish.thread
    }
}

/// One acquisition in a [`History`]. Clones are the same acquisition.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    history: History,
    index: usize,
}

impl History {
    /// An empty history. The seed is shown when a check fails.
    pub fn new(seed: u64) -> Self {
        Self { seed, log: Arc::default() }
    }

    /// A client asks; `at` is a moment before the first request leaves.
    #[must_use]
    pub fn asks(&self, wish: AcquireSpec, at: Moment) -> HistoryEntry {
        let mut log = self.log();
        let asked = log.stamp(at);
        let index = log.entries.len();
        log.entries.push(SeenAcquisition {
            wish,
            asked,
            ticket: None,
            acks: None,
            grant: None,
            weights: Vec::new(),
            valid_until: None,
            end: None,
        });
        HistoryEntry { history: self.clone(), index }
    }

    /// How many acquisitions were granted, released, lost, and are alive.
    pub fn tally(&self) -> Tally {
        let log = self.log();
        let granted = log.entries.iter().filter(|seen| seen.grant.is_some());
        let mut tally = Tally::default();
        for seen in granted {
            tally.granted += 1;
            match seen.end {
                Some((ValidityEnd::Released, _)) => tally.released += 1,
                Some((ValidityEnd::Lost, _)) => tally.lost += 1,
                None => tally.live += 1,
            }
        }
        tally
    }

    /// Everything that must not happen and did.
    pub fn check(&self) -> Vec<Violation> {
        let log = self.log();
        let mut violations = log.misuse.clone();
        let mut keys: Vec<&str> = log.entries.iter().map(|seen| seen.wish.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut by_key: Vec<Vec<&SeenAcquisition>> = vec![Vec::new(); keys.len()];
        for seen in &log.entries {
            let place = keys.binary_search(&seen.wish.key.as_str());
            by_key[place.expect("every key was collected")].push(seen);
        }
        for entries in by_key {
            violations.extend(exclusion::check(&entries));
            violations.extend(fences::check(&entries));
            violations.extend(order::check(&entries));
        }
        violations
    }

    /// Checks, and checks that the sum is right: granted = released + lost + live.
    ///
    /// # Panics
    ///
    /// With the seed and every violation, if there is one.
    pub fn assert_ok(&self) {
        let violations = self.check();
        let shown: Vec<String> = violations.iter().take(20).map(ToString::to_string).collect();
        let (seed, tally) = (self.seed, self.tally());
        assert!(
            violations.is_empty(),
            "seed {seed:#x}: {} violations in {tally:?}:\n  {}",
            violations.len(),
            shown.join("\n  ")
        );
        assert_eq!(tally.granted, tally.released + tally.lost + tally.live, "seed {seed:#x}");
    }

    fn log(&self) -> MutexGuard<'_, HistoryLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sum of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Acquisitions that were granted.
    pub granted: u64,
    /// Those that were released.
    pub released: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those that are neither yet.
    pub live: u64,
}

impl HistoryEntry {
    /// An answer said that the claim waits under this ticket. To be called for every such answer:
    /// between two of them the place certainly existed.
    pub fn waits(&self, ticket: Ticket, at: Moment) {
        self.note(at, |seen, stamp| {
            let first = seen.acks.filter(|_| seen.ticket == Some(ticket));
            seen.ticket = Some(ticket);
            seen.acks = Some(first.map_or([stamp; 3], |[first, _, last]| [first, last, stamp]));
            Ok(())
        });
    }

    /// The client knew of its grant.
    pub fn granted(&self, fence: u64, at: Moment) {
        self.note(at, |seen, stamp| match (seen.grant, seen.end) {
            (None, None) => {
                seen.grant = Some((fence, stamp));
                Ok(())
            }
            (Some((before, _)), None) if before == fence => Err("was granted twice".into()),
            (Some((before, _)), None) => Err(format!("changed its fence {before} to {fence}")),
            (_, Some(_)) => Err("was granted after its end".into()),
        });
    }

    /// The client lowered its weight; `at` is the moment before the request left, from which on it
    /// no longer relied on the rest.
    pub fn lowered(&self, weight: u32, at: Moment) {
        self.note(at, |seen, stamp| {
            seen.weights.push((stamp, weight));
            if seen.grant.is_some() { Ok(()) } else { Err("was lowered and never granted".into()) }
        });
    }

    /// The client believes in its grant until then, unless it ends before. The last one counts.
    pub fn valid_until(&self, until: Moment) {
        self.history.log().entries[self.index].valid_until = Some(until);
    }

    /// The validity ended.
    pub fn ended(&self, how: ValidityEnd, at: Moment) {
        self.note(at, |seen, stamp| {
            if seen.grant.is_none() {
                return Err("ended and never was granted".into());
            }
            match seen.end.replace((how, stamp)) {
                None => Ok(()),
                Some((before, _)) => Err(format!("ended twice, {before:?} and {how:?}")),
            }
        });
    }

    fn note(
        &self,
        at: Moment,
        note: impl FnOnce(&mut SeenAcquisition, Stamp) -> Result<(), String>,
    ) {
        let mut log = self.history.log();
        let stamp = log.stamp(at);
        let seen = &mut log.entries[self.index];
        if let Err(what) = note(seen, stamp) {
            let text = format!("a claim asked at {:?} {what} at {at:?}", seen.asked.0);
            let violation = Violation::new(Rule::Accounting, seen, text);
            log.misuse.push(violation);
        }
    }
}

impl HistoryLog {
    fn stamp(&mut self, at: Moment) -> Stamp {
        self.events += 1;
        (at, self.events)
    }
}
