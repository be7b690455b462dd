//! A journal that cannot be written costs entries, never a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{FeedItem, Locks, Retention, StartAt};
use distlock_testkit::servers::{Proxy, RedisServer};
use futures_util::StreamExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata};

use crate::support::*;

async fn lock_once(locks: &Locks, key: &str) {
    locks.mutex(key).unwrap().lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_write_the_journal_is_warned_once_and_locks_all_the_same() {
    let server = RedisServer::start();
    let rules = ["ACL", "SETUSER", "limited", "on", ">s3cret", "~*", "&*", "+@all", "-xadd"];
    assert!(server.command(&rules).contains("OK"));
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let url = format!("redis://limited:s3cret@127.0.0.1:{}/", server.port());
    // On the thread of the test, where its subscriber is.
    let redis = Arc::new(distlock::backends::Redis::open(&url).unwrap());
    let locks = writing(&Locks::without_thread(redis.clone()).with_journal(redis), "a");
    for round in 0..3 {
        lock_once(&locks, "k").await;
        let dropped = 2 * (round + 1);
        until("the notes are given up", async || locks.stats().journal_dropped == dropped).await;
    }
    assert_eq!(locks.stats().journal_pending, 0);
    locks.close().await.unwrap();
    assert_eq!(warnings.count.load(Ordering::Relaxed), 1);
    assert_eq!(warnings.secrets.load(Ordering::Relaxed), 0, "a secret was shown");
    let rules = ["ACL", "SETUSER", "limited", "-xrevrange", "-zscore"];
    assert!(server.command(&rules).contains("OK"));
    let reader = Locks::connect(&url).unwrap();
    let refused = reader.history("k", 10).await.unwrap_err();
    assert!(!refused.is_transient() && !refused.to_string().contains("s3cret"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_store_cannot_be_written_notes_are_bounded_and_later_all_kept_ones_arrive() {
    let server = RedisServer::start();
    let store = distlock::backends::Memory::new();
    let proxy = Proxy::to(server.port());
    let url = format!("{}?response_timeout_ms=200&connect_timeout_ms=200", proxy.url());
    let journal = Arc::new(distlock::backends::Redis::open(&url).unwrap());
    // The locks live elsewhere, so that only the journal is in trouble.
    let locks = Locks::new(Arc::new(store)).with_journal(journal);
    let locks = writing(&locks, "a");
    proxy.refuse();
    proxy.cut();
    for n in 0..5_000 {
        lock_once(&locks, &format!("k/{n}")).await;
    }
    let stats = locks.stats();
    assert_eq!(stats.journal_pending, 8_192, "{stats:?}");
    assert_eq!(stats.journal_dropped, 10_000 - 8_192);
    proxy.admit();
    until("the store is written again", async || locks.stats().journal_pending == 0).await;
    locks.close().await.unwrap();
    let entries = server.command(&["XLEN", "distlock:journal"]);
    let entries: u64 = entries.trim_start_matches(':').trim().parse().unwrap();
    assert!(entries >= 8_192, "{entries} of what was kept is there");
    let past = Locks::connect(&server.url()).unwrap();
    assert_eq!(past.history("k/4999", 10).await.unwrap().len(), 1, "the newest are kept");
    assert!(past.history("k/0", 10).await.unwrap().is_empty(), "the oldest are not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_loses_nothing() {
    let server = RedisServer::start();
    let locks = Locks::connect(&format!("{}?journal=on", server.url())).unwrap();
    let held: Vec<_> = futures_util::future::join_all((0..300).map(|n| {
        let mutex = locks.mutex(format!("k/{n}")).unwrap();
        async move { mutex.lock().await.unwrap() }
    }))
    .await;
    drop(held);
    locks.close().await.unwrap();
    let reader = Locks::connect(&server.url()).unwrap();
    let (mut told, mut since) = (Vec::new(), None);
    loop {
        let page = reader.journal_page(since.as_ref(), 1000).await.unwrap();
        let Some(last) = page.entries.last() else { break };
        since = Some(last.id.clone());
        told.extend(page.entries);
    }
    let count = |what: &str| told.iter().filter(|entry| entry.note.what.name() == what).count();
    assert_eq!((count("granted"), count("released"), told.len()), (300, 300, 600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_does_not_wait_long_for_a_journal_that_is_out_of_reach() {
    let journal = Arc::new(distlock::backends::Redis::open("redis://127.0.0.1:1/").unwrap());
    let locks = Locks::new(Arc::new(distlock::backends::Memory::new())).with_journal(journal);
    let locks = writing(&locks, "a");
    lock_once(&locks, "k").await;
    let started = std::time::Instant::now();
    locks.close().await.unwrap();
    assert!(started.elapsed() < ms(10_000), "{:?}", started.elapsed());
    assert_eq!(locks.stats().journal_pending, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_says_when_it_cannot_read_and_goes_on_when_it_can() {
    let mut server = RedisServer::start();
    let url = format!("{}?journal=on&response_timeout_ms=200", server.url());
    let locks = Locks::connect(&url).unwrap();
    lock_once(&locks, "before").await;
    let mut feed = locks.feed(StartAt::Start).unwrap();
    for _ in 0..2 {
        assert!(matches!(feed.next().await, Some(FeedItem::Entry(_))));
    }
    server.kill();
    assert!(matches!(feed.next().await, Some(FeedItem::Unreachable(_))));
    server.restart();
    until("locks work again", async || {
        locks.mutex("after").unwrap().try_lock().await.is_ok_and(|guard| guard.is_held())
    })
    .await;
    // The server has lost everything, and a feed cannot tell that from entries it missed.
    let (mut missed, mut after) = (false, false);
    while !after {
        match feed.next().await.unwrap() {
            FeedItem::Missed => missed = true,
            FeedItem::Entry(entry) => after = entry.note.key.as_str() == "after",
            _ => {}
        }
    }
    assert!(missed);
}

#[tokio::test]
async fn retention_is_the_writers_choice() {
    let server = RedisServer::start();
    let url = format!("{}?journal=on&journal_entries=50&journal_days=1", server.url());
    let locks = Locks::connect(&url).unwrap();
    for _ in 0..400 {
        lock_once(&locks, "k").await;
    }
    locks.close().await.unwrap();
    let entries = server.command(&["XLEN", "distlock:journal"]);
    let entries: u64 = entries.trim_start_matches(':').trim().parse().unwrap();
    assert!((50..300).contains(&entries), "{entries}");
    let bad = Retention { entries: 0, ..Retention::default() };
    assert!(locks.configure(|o| o.journal(bad)).is_err());
}

/// Counts the warnings about the journal, and secrets in anything.
#[derive(Clone, Default)]
struct Warnings {
    count: Arc<AtomicUsize>,
    secrets: Arc<AtomicUsize>,
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        if *event.metadata().level() == Level::WARN && text.0.contains("the journal is not") {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        if text.0.contains("s3cret") {
            self.secrets.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}
