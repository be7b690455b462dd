//! The race, played on whatever keeps a balance.

use std::time::Duration;

use distlock::Locks;
use distlock_testkit::Rng;

/// How often a holder is paused.
pub(crate) const PAUSES: u64 = 1_000;

/// A balance that is read, changed and written under a fence.
pub(crate) trait Balance: Send + Sync {
    /// What a read has to remember for the write.
    type Seen: Send;

    /// The balance, unless the fence is refused.
    fn read(&self, fence: u64) -> impl Future<Output = Option<(i64, Self::Seen)>> + Send;

    /// Whether the new balance was accepted.
    fn write(
        &self,
        fence: u64,
        seen: Self::Seen,
        balance: i64,
    ) -> impl Future<Output = bool> + Send;
}

/// What came of all pauses.
#[derive(Debug, Default)]
pub(crate) struct RaceReport {
    /// Deposits that were confirmed and are not in the balance, counted by pauses.
    pub(crate) lost: u64,
    /// Writes of paused holders that were confirmed, because they came before the next read.
    pub(crate) early: u64,
    /// Writes of paused holders that were refused.
    pub(crate) refused: u64,
    /// Reads that the next holder did again, because the resource asked for it.
    pub(crate) again: u64,
}

/// Pauses a holder after its read, lets the next one in, and lets the paused one write at a random
/// point of the next one's work. Each has a connection of its own.
pub(crate) async fn play<A: Balance>(paused: &A, next: &A) -> RaceReport {
    let seed = 0x5eed;
    let mut rng = Rng::new(seed);
    let locks = Locks::memory();
    let mutex = locks.mutex("account/17").unwrap();
    let mut outcome = RaceReport::default();
    for pause in 0..PAUSES {
        let held = mutex.lock().await.unwrap();
        let (balance, seen) = paused.read(held.fence()).await.expect("the newest holder reads");
        // An operator's break stands for a pause that outlasts the lease: the next holder is let
        // in, and the paused one has not noticed when it writes.
        locks.break_hold("account/17", held.fence()).await.unwrap();
        let newer = mutex.lock().await.unwrap();

        // The runtime sleeps in whole milliseconds: both sequences must come up.
        let (late, early) = (rng.below(5_000), rng.below(2_000));
        let late_write = async {
            tokio::time::sleep(Duration::from_micros(late)).await;
            paused.write(held.fence(), seen, balance + 10).await
        };
        let deposit = async {
            tokio::time::sleep(Duration::from_micros(early)).await;
            let mut reads = 0;
            loop {
                reads += 1;
                let (balance, seen) = next.read(newer.fence()).await.expect("the newest reads");
                tokio::time::sleep(Duration::from_micros(early)).await;
                if next.write(newer.fence(), seen, balance + 5).await {
                    return reads;
                }
                assert!(reads < 3, "the newest holder can write");
            }
        };
        let (confirmed, reads) = tokio::join!(late_write, deposit);
        let (after, _) = next.read(newer.fence()).await.expect("the newest holder reads");
        let expected = balance + 5 + if confirmed { 10 } else { 0 };
        if after != expected {
            eprintln!("seed {seed}, pause {pause}: {after} instead of {expected}");
        }
        outcome.lost += u64::from(after != expected);
        outcome.early += u64::from(confirmed);
        outcome.refused += u64::from(!confirmed);
        outcome.again += reads - 1;
        newer.release().await.unwrap();
    }
    locks.close().await.unwrap();
    outcome
}

impl RaceReport {
    /// Asserts that no update was lost, and that the pauses were long and short enough to show it.
    pub(crate) fn assert_nothing_lost(&self) {
        println!("{PAUSES} pauses: {self:?}");
        assert_eq!(self.lost, 0, "{self:?}");
        assert!(self.refused > 0, "no paused holder was stopped: {self:?}");
        assert!(self.early > 0, "no paused holder wrote in time: {self:?}");
        assert_eq!(self.again, 0, "the newest holder never has to read again: {self:?}");
    }

    /// Asserts that the race does lose updates where nothing checks the fence at the read.
    pub(crate) fn assert_something_lost(&self) {
        println!("{PAUSES} pauses: {self:?}");
        assert!(self.lost > 0, "the race shows nothing: {self:?}");
    }
}
