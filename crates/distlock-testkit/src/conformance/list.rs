//! A list shows the keys in use that begin with a prefix, page by page.

use std::collections::BTreeSet;

use distlock_core::{Key, ReleaseOutcome, SNAPSHOT_MAX, Snapshot};
use futures_util::future::join_all;

use super::Subject;
use super::support::{AskExt, KitClient, KitStage, LONG, SHORT, granted, mutex};

/// More pages than any list of the kit has; a store that scans may hand out empty ones.
const LIST_PAGES_MAX: usize = 100_000;

/// All pages. A store that scans may show a key on two of them.
async fn all(client: &KitClient, prefix: &str) -> Vec<Snapshot> {
    let (mut seen, mut cursor) = (Vec::new(), None);
    for _ in 0..LIST_PAGES_MAX {
        let page = client.backend.list(prefix, cursor.as_ref()).await.expect("a list is answered");
        assert!(page.locks.len() <= SNAPSHOT_MAX, "a page of {}", page.locks.len());
        seen.extend(page.locks);
        cursor = page.next;
        if cursor.is_none() {
            return seen;
        }
    }
    panic!("the list does not end");
}

async fn names(client: &KitClient, prefix: &str) -> BTreeSet<Key> {
    all(client, prefix).await.into_iter().map(|lock| lock.key).collect()
}

/// A list shows the held keys that begin with the prefix, byte by byte, and no others.
pub async fn a_list_is_by_prefix(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    let keys = ["/a", "/a/1", "/ab", "/b", "/*", "/A", "/a%", "/{a}"].map(|n| stage.named(n));
    for key in &keys {
        granted(a.ask(&mutex(key)).await);
    }
    for suffix in ["", "/", "/a", "/a/", "/*", "/?", "/[ab]", "/{", "/a%", "/c"] {
        let prefix = format!("{}{suffix}", stage.prefix());
        let expected: BTreeSet<_> =
            keys.iter().filter(|key| key.as_str().starts_with(&prefix)).cloned().collect();
        assert_eq!(names(&b, &prefix).await, expected, "with the prefix {prefix:?}");
    }
}

/// A list shows of each key what a look at it shows.
pub async fn a_list_shows_holders(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let fence = granted(a.ask(&stage.mutex().owned_by("ci-7")).await);
    let listed = all(&a, stage.prefix()).await;
    let lock = listed.first().expect("the held key is listed");
    assert_eq!((lock.holders_total, lock.waiters_total), (1, 0));
    assert_eq!((lock.holders[0].owner.as_str(), lock.holders[0].fence), ("ci-7", fence));
}

/// A list of many keys comes in pages, misses none and ends.
pub async fn a_long_list_comes_in_pages(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let asks: Vec<_> =
        (0..SNAPSHOT_MAX * 2 + 7).map(|nth| mutex(&stage.named(&format!("/{nth}")))).collect();
    for answer in join_all(asks.iter().map(|ask| a.ask(ask))).await {
        granted(answer);
    }
    let expected: BTreeSet<_> = asks.iter().map(|ask| ask.claim.key.clone()).collect();
    assert_eq!(names(&a, stage.prefix()).await, expected);
}

/// A list shows no key whose leases have ended.
pub async fn a_list_shows_only_live_keys(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let a = stage.client().await;
    let (dead, live, done) =
        (mutex(&stage.named("/dead")), mutex(&stage.named("/live")), mutex(&stage.named("/done")));
    granted(a.ask(&dead.lasting(SHORT)).await);
    granted(a.ask(&live).await);
    granted(a.ask(&done).await);
    assert_eq!(a.release(&done).await, ReleaseOutcome::WasHeld);
    stage.outlive_short().await;
    assert_eq!(names(&a, stage.prefix()).await, BTreeSet::from([live.claim.key]));
}

/// When everything is released, nothing is listed: neither side keys nor those who waited.
pub async fn nothing_is_left_when_all_is_released(subject: &dyn Subject) {
    let stage = KitStage::new(subject);
    let [a, b] = stage.clients().await;
    for nth in 0..5 {
        let x = mutex(&stage.named(&format!("/{nth}")));
        let (y, z) = (x.again().queued(LONG), x.again().queued(LONG));
        granted(a.ask(&x).await);
        b.queue(&y).await;
        b.queue(&z).await;
        assert_eq!(b.release(&z).await, ReleaseOutcome::WasWaiting);
        assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
        assert_eq!(b.release(&y).await, ReleaseOutcome::WasHeld);
    }
    assert_eq!(all(&a, stage.prefix()).await, []);
}
