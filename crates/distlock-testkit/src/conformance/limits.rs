//! The edges: odd keys, extreme leases, batches, dropped calls.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_core::{Confirmed, Key, ReleaseOutcome, Renewal, Standing, TTL_MAX, TTL_MIN};
use futures_util::{FutureExt, StreamExt};

use super::Subject;
use super::support::{
    AskExt, KitStage, LONG, SHORT, STORE_LATE_MAX, burying, busy, gone, granted, held, key, mutex,
    waiting,
};

/// Names that some store might cut, fold, escape or mistake for another.
const ODD: &[&str] = &[
    "",
    "}",
    "{",
    "{}",
    "}{",
    "{a}",
    "a{b}c",
    "{a",
    "a}",
    "%",
    "%7B",
    "%7b",
    "%25",
    "\0",
    "\0\0",
    "\n",
    "\r\n",
    " ",
    "  ",
    "*",
    "?",
    "[a]",
    "\\",
    "'",
    "\"",
    "é",
    "e\u{301}",
    "É",
    "ß",
    "SS",
    "foo",
    "Foo",
    "foo:q",
    "foo:w",
    "foo:r",
    "foo:fence",
    "foo/x",
    "foo ",
    ":",
    "::",
    "a:b",
    "a::b",
    "~shared",
    "\u{202e}",
    "\u{feff}",
    "日本",
    "🦀",
    "_",
    "a_b",
    "a-b",
    "a%b",
    "--",
    "/*",
    "$1",
];

fn odd_keys(stage: &KitStage<'_>) -> BTreeSet<Key> {
    let prefix = stage.prefix();
    let mut keys = BTreeSet::new();
    for odd in ODD {
        keys.insert(key(format!("{prefix}{odd}")));
        keys.insert(key(format!("{odd}{prefix}")));
    }
    // As long as can be, and different only in the last byte.
    for last in ["a", "b"] {
        let fill = "x".repeat(Key::LEN_MAX - prefix.len() - 1);
        keys.insert(key(format!("{prefix}{fill}{last}")));
    }
    keys
}

/// Keys are the same only if they are equal byte for byte.
pub async fn odd_keys_do_not_interfere(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let asks: Vec<_> = odd_keys(&stage).iter().map(mutex).collect();
    for ask in &asks {
        granted(a.ask(ask).await);
    }
    for ask in &asks {
        busy(b.ask(&ask.again()).await);
        assert_eq!(b.inspect(&ask.claim.key).await.key, ask.claim.key);
    }
    for (nth, ask) in asks.iter().enumerate() {
        assert_eq!(a.release(ask).await, ReleaseOutcome::WasHeld, "{:?}", ask.claim.key);
        assert!(b.inspect(&ask.claim.key).await.is_free(), "{:?}", ask.claim.key);
        if let Some(next) = asks.get(nth + 1) {
            held(a.renew(next, LONG).await);
        }
    }
}

/// The queues of odd keys do not interfere either.
pub async fn odd_queues_do_not_interfere(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let keys = odd_keys(&stage);
    let mut line = Vec::new();
    for key in &keys {
        let (x, y) = (mutex(key), mutex(key).queued(LONG));
        granted(a.ask(&x).await);
        let ticket = b.queue(&y).await;
        line.push((x, y, ticket));
    }
    for (x, y, ticket) in &line {
        assert_eq!(waiting(b.beat(y, *ticket).await).ahead, 0, "{:?}", x.claim.key);
        assert_eq!(a.release(x).await, ReleaseOutcome::WasHeld);
        held(b.beat(y, *ticket).await);
    }
}

/// The shortest lease is a lease: it ends, and is not taken for one without an end.
pub async fn the_shortest_lease_ends(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    granted(a.ask(&stage.mutex().lasting(TTL_MIN)).await);
    stage.pass(STORE_LATE_MAX).await;
    granted(b.ask(&stage.mutex()).await);
}

/// The longest lease is accepted, kept and released.
pub async fn the_longest_lease_is_kept(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(TTL_MAX);
    granted(a.ask(&x).await);
    held(a.renew(&x, TTL_MAX).await);
    let left = busy(b.ask(&stage.mutex()).await).retry_after.expect("the lease has an end");
    assert!(left > TTL_MAX - LONG && left <= TTL_MAX + STORE_LATE_MAX, "{left:?}");
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    granted(b.ask(&stage.mutex()).await);
}

/// A lease of a fraction of a millisecond more than some is not cut to nothing.
pub async fn a_fractional_lease_is_kept(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let x = stage.mutex().lasting(LONG + Duration::from_nanos(1_500_001));
    granted(a.ask(&x).await);
    held(a.renew(&x, LONG + Duration::from_nanos(999_999)).await);
    busy(b.ask(&stage.mutex()).await);
}

/// A batch answers for each index exactly once and then ends, whatever is in it.
pub async fn a_batch_answers_each_index_once(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let mut batch = Vec::new();
    for nth in 0..250 {
        let x = mutex(&stage.named(&format!("/{nth}")));
        if nth % 3 > 0 {
            granted(a.ask(&x).await);
        }
        batch.push(Renewal::hold(x.claim, LONG));
    }
    let answers = a.renewals(&batch).await;
    let indexes: BTreeSet<_> = answers.iter().map(|(index, _)| *index).collect();
    assert_eq!((answers.len(), indexes.len()), (250, 250));
    for (index, standing) in answers {
        let standing = standing.expect("a renewal is answered");
        if index % 3 == 0 {
            gone(standing);
        } else {
            held(standing);
        }
    }
}

/// A batch can renew those who hold and those who wait, at one key and at several.
pub async fn a_batch_mixes_held_and_waiting(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    let elsewhere = mutex(&stage.named("/elsewhere"));
    let fence = granted(a.ask(&x).await);
    let ticket = a.queue(&y).await;
    granted(a.ask(&elsewhere).await);
    let batch = [
        Renewal::place(y.claim.clone(), LONG, ticket),
        Renewal::hold(stage.mutex().claim, LONG),
        Renewal::hold(x.claim.clone(), LONG),
        Renewal::hold(elsewhere.claim.clone(), LONG),
    ];
    let mut answers = a.renewals(&batch).await;
    answers.sort_by_key(|(index, _)| *index);
    let mut standings =
        answers.into_iter().map(|(_, standing)| standing.expect("a renewal is answered"));
    let mut next = || standings.next().expect("an answer for each");
    assert_eq!(waiting(next()).ticket, ticket);
    gone(next());
    assert_eq!(next(), Standing::Held { fence });
    held(next());
}

/// An empty batch ends at once.
pub async fn an_empty_batch_ends(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    assert!(a.renewals(&[]).await.is_empty());
}

/// A call that is dropped, before or after it began, leaves the store usable; and the claim, once
/// buried, takes nothing.
pub async fn a_dropped_acquire_takes_nothing(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    for _ in 0..10 {
        let (never, begun) = (stage.mutex(), stage.mutex());
        drop(a.backend.acquire(&never));
        // Polled once: the request may be on its way, may have arrived, or neither.
        drop(a.backend.acquire(&begun).now_or_never());
        for dropped in [&never, &begun] {
            a.give_up(dropped, burying(LONG)).await;
        }
        let x = stage.mutex();
        granted(b.ask(&x).await);
        assert_eq!(b.release(&x).await, ReleaseOutcome::WasHeld);
    }
}

/// A renewal, release or look that is dropped leaves the store usable and the hold in order.
pub async fn dropped_calls_leave_the_store_usable(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    let batch = [Renewal::hold(x.claim.clone(), LONG), Renewal::hold(x.claim.clone(), LONG)];
    drop(a.backend.renew(&batch));
    drop(a.backend.renew(&batch).next().now_or_never());
    drop(a.backend.renew(&batch).next().await);
    drop(a.backend.inspect(&x.claim.key));
    drop(a.backend.inspect(&x.claim.key).now_or_never());
    drop(a.backend.probe());
    drop(a.backend.pushes());
    assert_eq!(held(a.renew(&x, LONG).await), fence);
    let target = distlock_core::Target::Claim(x.claim.clone());
    drop(a.backend.release(&target, burying(LONG)).now_or_never());
    a.give_up(&x, burying(LONG)).await;
    granted(a.ask(&stage.mutex()).await);
}

/// Confirming renews a hold and counts the replicas that have it; what is gone is not confirmed.
pub async fn a_hold_is_confirmed(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let x = stage.mutex();
    let renewal = Renewal::hold(x.claim.clone(), LONG);
    let unknown = a.backend.extensions().confirm(&renewal, 0).await.expect("the store answers");
    assert_eq!(unknown, Confirmed::Gone);
    granted(a.ask(&x.clone().lasting(SHORT)).await);
    let known = a.backend.extensions().confirm(&renewal, 0).await.expect("the store answers");
    assert!(matches!(known, Confirmed::By(_)), "{known:?}");
    stage.outlive_short().await;
    held(a.renew(&x, LONG).await);
}

/// The store says who it is, the same to every client and every time.
pub async fn a_store_has_one_identity(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = a.backend.probe().await.expect("a probe is answered");
    assert!(!first.identity.is_empty());
    granted(a.ask(&stage.mutex()).await);
    for client in [&a, &b] {
        let again = client.backend.probe().await.expect("a probe is answered");
        assert_eq!(again.identity, first.identity);
        assert_eq!(again.incarnation, first.incarnation);
    }
}

/// What a backend can do does not change and is the same for every client.
pub async fn capabilities_are_constant(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let first = a.backend.capabilities();
    granted(a.ask(&stage.mutex()).await);
    assert_eq!(a.backend.capabilities(), first);
    assert_eq!(b.backend.capabilities(), first);
    assert_eq!(first.sharing, !first.orders.is_empty(), "sharing needs an order to share in");
}
