//! Who goes first when readers and writers wait.

use distlock_core::Order::{Fifo, PreferReaders, PreferWriters};
use distlock_core::{Answer, ReleaseOutcome};

use super::Subject;
use super::support::{AskExt, KitStage, LONG, SHORT, busy, granted, held, waiting};

/// Once a writer waits, later readers wait although only readers hold.
pub async fn readers_wait_for_a_waiting_writer(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let inside = stage.reader(PreferWriters);
    let writer = stage.writer(PreferWriters).queued(LONG);
    let late = stage.reader(PreferWriters).queued(LONG);
    granted(a.ask(&inside).await);
    let first = b.queue(&writer).await;
    assert_eq!(busy(c.ask(&stage.reader(PreferWriters)).await).ahead, 1);
    let second = c.queue(&late).await;
    held(a.renew(&inside, LONG).await);
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    held(b.beat(&writer, first).await);
    waiting(c.beat(&late, second).await);
    assert_eq!(b.release(&writer).await, ReleaseOutcome::WasHeld);
    held(c.beat(&late, second).await);
}

/// Preferred writers are served in sequence among themselves, before a reader who came first.
pub async fn writers_go_first_in_sequence(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let inside = stage.writer(PreferWriters);
    let reader = stage.reader(PreferWriters).queued(LONG);
    let [first, second] = [(); 2].map(|()| stage.writer(PreferWriters).queued(LONG));
    granted(a.ask(&inside).await);
    let patient = c.queue(&reader).await;
    let (one, two) = (b.queue(&first).await, b.queue(&second).await);
    assert_eq!(waiting(c.beat(&reader, patient).await).ahead, 2);
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    held(b.beat(&first, one).await);
    assert_eq!(waiting(b.beat(&second, two).await).ahead, 0);
    assert_eq!(b.release(&first).await, ReleaseOutcome::WasHeld);
    held(b.beat(&second, two).await);
    waiting(c.beat(&reader, patient).await);
    assert_eq!(b.release(&second).await, ReleaseOutcome::WasHeld);
    held(c.beat(&reader, patient).await);
}

/// A one-shot writer does not overtake a writer who waits for another writer.
pub async fn a_one_shot_writer_yields_to_the_line(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let (inside, writer) = (stage.writer(PreferWriters), stage.writer(PreferWriters).queued(LONG));
    granted(a.ask(&inside).await);
    let ticket = b.queue(&writer).await;
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    busy(c.ask(&stage.writer(PreferWriters)).await);
    busy(c.ask(&stage.reader(PreferWriters)).await);
    held(b.beat(&writer, ticket).await);
}

/// A waiting writer that gives up lets the readers in at once.
pub async fn a_writer_that_gives_up_lets_readers_in(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let writer = stage.writer(PreferWriters).queued(LONG);
    let reader = stage.reader(PreferWriters).queued(LONG);
    granted(a.ask(&stage.reader(PreferWriters)).await);
    b.queue(&writer).await;
    let ticket = c.queue(&reader).await;
    assert_eq!(b.release(&writer).await, ReleaseOutcome::WasWaiting);
    assert_eq!(a.inspect(&stage.key()).await.holders_total, 2, "the waiting reader is inside");
    held(c.beat(&reader, ticket).await);
    granted(c.ask(&stage.reader(PreferWriters)).await);
}

/// A waiting writer that died lets the readers in when its place ends.
pub async fn a_dead_writer_lets_readers_in(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    granted(a.ask(&stage.reader(PreferWriters)).await);
    b.queue(&stage.writer(PreferWriters).queued(SHORT)).await;
    busy(c.ask(&stage.reader(PreferWriters)).await);
    stage.outlive_short().await;
    granted(c.ask(&stage.reader(PreferWriters)).await);
    assert_eq!(a.inspect(&stage.key()).await.waiters_total, 0);
}

/// Where readers are preferred, a reader joins while a writer waits.
pub async fn a_preferred_reader_joins(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let writer = stage.writer(PreferReaders).queued(LONG);
    granted(a.ask(&stage.reader(PreferReaders)).await);
    let ticket = b.queue(&writer).await;
    granted(c.ask(&stage.reader(PreferReaders)).await);
    granted(c.ask(&stage.reader(PreferReaders).queued(LONG)).await);
    waiting(b.beat(&writer, ticket).await);
}

/// Where readers are preferred, a waiting writer enters when the last reader has gone.
pub async fn a_writer_enters_after_the_last_reader(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let [one, two] = [(); 2].map(|()| stage.reader(PreferReaders));
    let writer = stage.writer(PreferReaders).queued(LONG);
    granted(a.ask(&one).await);
    let ticket = b.queue(&writer).await;
    granted(a.ask(&two).await);
    assert_eq!(a.release(&one).await, ReleaseOutcome::WasHeld);
    waiting(b.beat(&writer, ticket).await);
    assert_eq!(a.release(&two).await, ReleaseOutcome::WasHeld);
    held(b.beat(&writer, ticket).await);
}

/// Where readers are preferred, a waiting reader goes before a writer who came first.
pub async fn preferred_readers_go_first(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let inside = stage.writer(PreferReaders);
    let writer = stage.writer(PreferReaders).queued(LONG);
    let reader = stage.reader(PreferReaders).queued(LONG);
    granted(a.ask(&inside).await);
    let second = b.queue(&writer).await;
    let first = c.queue(&reader).await;
    assert_eq!(waiting(b.beat(&writer, second).await).ahead, 1);
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    held(c.beat(&reader, first).await);
    waiting(b.beat(&writer, second).await);
}

/// First come, first served: a reader does not pass a writer who came before.
pub async fn a_reader_does_not_pass_an_earlier_writer(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let writer = stage.writer(Fifo).queued(LONG);
    let reader = stage.reader(Fifo).queued(LONG);
    let inside = stage.reader(Fifo);
    granted(a.ask(&inside).await);
    let first = b.queue(&writer).await;
    busy(c.ask(&stage.reader(Fifo)).await);
    let second = c.queue(&reader).await;
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    held(b.beat(&writer, first).await);
    waiting(c.beat(&reader, second).await);
}

/// First come, first served: a writer does not pass a reader who came before.
pub async fn a_writer_does_not_pass_an_earlier_reader(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b, c] = stage.clients().await;
    let inside = stage.writer(Fifo);
    let (reader, writer) = (stage.reader(Fifo).queued(LONG), stage.writer(Fifo).queued(LONG));
    granted(a.ask(&inside).await);
    let first = b.queue(&reader).await;
    let second = c.queue(&writer).await;
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    held(b.beat(&reader, first).await);
    waiting(c.beat(&writer, second).await);
}

/// Readers next in line enter together, up to the next writer.
pub async fn readers_next_in_line_enter_together(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let inside = stage.writer(Fifo);
    let [one, two, last] = [(); 3].map(|()| stage.reader(Fifo).queued(LONG));
    let writer = stage.writer(Fifo).queued(LONG);
    granted(a.ask(&inside).await);
    let mut tickets = Vec::new();
    for ask in [&one, &two, &writer, &last] {
        tickets.push(b.queue(ask).await);
    }
    assert_eq!(a.release(&inside).await, ReleaseOutcome::WasHeld);
    assert_eq!(a.inspect(&stage.key()).await.holders_total, 2);
    held(b.beat(&one, tickets[0]).await);
    held(b.beat(&two, tickets[1]).await);
    assert_eq!(waiting(b.beat(&writer, tickets[2]).await).ahead, 0);
    assert_eq!(waiting(b.beat(&last, tickets[3]).await).ahead, 1);
}

/// A sharer of another order is a conflict, which changes nothing; at a free key it is welcome.
pub async fn another_order_is_a_conflict(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.reader(PreferWriters);
    granted(a.ask(&x).await);
    assert_eq!(b.ask(&stage.reader(PreferReaders)).await, Answer::Conflict);
    granted(b.ask(&stage.reader(PreferWriters).lasting(SHORT)).await);
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    stage.outlive_short().await;
    granted(b.ask(&stage.reader(PreferReaders)).await);
    assert_eq!(a.ask(&stage.reader(PreferWriters)).await, Answer::Conflict);
}

/// An ask with a queue that conflicts takes no place.
pub async fn a_conflict_takes_no_place(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (x, y) = (stage.reader(PreferWriters), stage.reader(PreferReaders).queued(LONG));
    granted(a.ask(&x).await);
    assert_eq!(b.ask(&y).await, Answer::Conflict);
    assert_eq!(b.release(&y).await, ReleaseOutcome::Gone);
    assert_eq!(a.inspect(&stage.key()).await.waiters_total, 0);
}

/// A mutex works beside sharers of any order, and a writer beside those of another.
pub async fn a_claim_on_all_has_no_order(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let reader = stage.reader(PreferReaders);
    granted(a.ask(&reader).await);
    busy(b.ask(&stage.mutex()).await);
    busy(b.ask(&stage.writer(PreferWriters)).await);
    assert_eq!(a.inspect(&stage.key()).await.order, Some(PreferReaders));
    assert_eq!(a.release(&reader).await, ReleaseOutcome::WasHeld);
    let mutex = stage.mutex();
    granted(b.ask(&mutex).await);
    assert_eq!(a.inspect(&stage.key()).await.order, None, "no claim shares");
    busy(a.ask(&stage.reader(PreferWriters)).await);
    assert_eq!(b.release(&mutex).await, ReleaseOutcome::WasHeld);
    granted(a.ask(&stage.reader(PreferWriters)).await);
}

/// A writer that asks again and again, as one that polls does, keeps its place, and later readers
/// stay behind it.
pub async fn a_writer_that_asks_again_holds_back_readers(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let (reader, writer) = (stage.reader(PreferWriters), stage.writer(PreferWriters).queued(SHORT));
    granted(a.ask(&reader).await);
    let ticket = b.queue(&writer).await;
    for _ in 0..3 {
        stage.pass(SHORT / 2).await;
        assert_eq!(b.queue(&writer).await, ticket);
        busy(a.ask(&stage.reader(PreferWriters)).await);
    }
    assert_eq!(a.release(&reader).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&writer).await);
}
