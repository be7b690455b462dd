//! Readers share, writers do not, in whatever order the store offers.

use std::time::{Duration, Instant};

use distlock_core::ReleaseOutcome;
use futures_util::future::join_all;

use super::Subject;
use super::support::{AskExt, KitStage, LONG, SHORT, STORE_LATE_MAX, busy, gone, granted, held};

/// Many readers hold at once, and each of them is a holder.
pub async fn readers_share(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let readers: Vec<_> = (0..10).map(|_| stage.reader(a.order())).collect();
    for reader in &readers {
        granted(b.ask(reader).await);
    }
    assert_eq!(a.inspect(&stage.key()).await.holders_total, 10);
    for reader in &readers {
        held(b.renew(reader, LONG).await);
    }
}

/// A writer excludes readers and writers.
pub async fn a_writer_excludes_everybody(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let w = stage.writer(a.order());
    granted(a.ask(&w).await);
    busy(b.ask(&stage.reader(a.order())).await);
    busy(b.ask(&stage.writer(a.order())).await);
    assert_eq!(a.release(&w).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.reader(a.order())).await);
}

/// A writer is kept out until the last of the readers has gone.
pub async fn a_writer_needs_all_readers_gone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let readers: Vec<_> = (0..3).map(|_| stage.reader(a.order())).collect();
    for reader in &readers {
        granted(a.ask(reader).await);
    }
    for reader in &readers {
        busy(b.ask(&stage.writer(a.order())).await);
        assert_eq!(a.release(reader).await, ReleaseOutcome::WasHeld);
    }
    granted(b.ask(&stage.writer(a.order())).await);
}

/// Two read claims of one owner are two holders: releasing one does not release the other.
pub async fn two_reads_of_one_owner_are_two(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = stage.reader(a.order()).owned_by("me");
    let second = first.again();
    granted(a.ask(&first).await);
    granted(a.ask(&second).await);
    assert_eq!(a.release(&first).await, ReleaseOutcome::WasHeld);
    busy(b.ask(&stage.writer(a.order())).await);
    held(a.renew(&second, LONG).await);
    assert_eq!(a.release(&second).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.writer(a.order())).await);
}

/// A reader that asks again is still one holder.
pub async fn a_reader_asking_again_is_one_holder(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let reader = stage.reader(a.order());
    let fence = granted(a.ask(&reader).await);
    assert_eq!(granted(a.ask(&reader).await), fence);
    assert_eq!(a.release(&reader).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.writer(a.order())).await);
}

/// A reader with a short lease does not end the longer lease of another.
pub async fn a_short_reader_never_evicts_a_long_one(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let long = stage.reader(a.order());
    granted(a.ask(&long).await);
    granted(b.ask(&stage.reader(a.order()).lasting(SHORT)).await);
    stage.outlive_short().await;
    busy(b.ask(&stage.writer(a.order())).await);
    held(a.renew(&long, LONG).await);
}

/// Neither the renewal nor the release of a short lease ends a longer one.
pub async fn short_leases_leave_long_ones_alone(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (long, short) = (stage.reader(a.order()), stage.reader(a.order()).lasting(SHORT));
    granted(b.ask(&short).await);
    granted(a.ask(&long).await);
    held(b.renew(&short, SHORT).await);
    assert_eq!(b.release(&short).await, ReleaseOutcome::WasHeld);
    stage.outlive_short().await;
    busy(b.ask(&stage.writer(a.order()).lasting(SHORT)).await);
    held(a.renew(&long, LONG).await);
}

/// A dead reader stops counting after its own lease while others live, and the last live one's
/// release frees the key at once.
pub async fn a_dead_reader_stops_counting(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let live = stage.reader(a.order());
    granted(b.ask(&stage.reader(a.order()).lasting(SHORT)).await);
    granted(a.ask(&live).await);
    stage.outlive_short().await;
    assert_eq!(c.inspect(&stage.key()).await.holders_total, 1);
    assert_eq!(a.release(&live).await, ReleaseOutcome::WasHeld);
    granted(c.ask(&stage.writer(a.order())).await);
}

/// After a reader died, the next reader and a writer still exclude each other.
pub async fn a_dead_reader_breaks_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.reader(a.order()).lasting(SHORT)).await);
    stage.outlive_short().await;
    let (reader, writer) = (stage.reader(a.order()), stage.writer(a.order()));
    granted(a.ask(&reader).await);
    busy(b.ask(&writer).await);
    assert_eq!(a.release(&reader).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&writer).await);
    busy(a.ask(&stage.reader(a.order())).await);
}

/// A dead reader's late release and renewal, with a writer inside, change nothing.
pub async fn a_readers_late_release_changes_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (dead, writer) = (stage.reader(a.order()).lasting(SHORT), stage.writer(a.order()));
    granted(a.ask(&dead).await);
    stage.outlive_short().await;
    granted(b.ask(&writer).await);
    assert_eq!(a.release(&dead).await, ReleaseOutcome::Gone);
    gone(a.renew(&dead, LONG).await);
    busy(a.ask(&stage.reader(a.order())).await);
    held(b.renew(&writer, LONG).await);
}

/// A refused one-shot writer does not keep readers out.
pub async fn a_refused_writer_blocks_no_reader(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    granted(a.ask(&stage.reader(a.order())).await);
    busy(b.ask(&stage.writer(a.order())).await);
    granted(c.ask(&stage.reader(a.order())).await);
}

/// A key that many readers left to expire is not wedged.
pub async fn many_dead_readers_do_not_wedge(subject: &dyn Subject) {
    const BATCH: usize = 500;
    let lease = Duration::from_secs(40);
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let start = Instant::now();
    for batch in 0..40 {
        // All leases must end together. A store too slow for 20,000 asks is spared most of them.
        if batch >= 4 && start.elapsed() > lease / 16 {
            break;
        }
        let asks: Vec<_> = (0..BATCH).map(|_| stage.reader(a.order()).lasting(lease)).collect();
        for answer in join_all(asks.iter().map(|ask| a.ask(ask))).await {
            granted(answer);
        }
    }
    stage.pass(lease + STORE_LATE_MAX).await;
    assert!(a.inspect(&stage.key()).await.is_free());
    granted(b.ask(&stage.writer(a.order())).await);
}
