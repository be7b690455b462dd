//! Every store that keeps a journal proves it with the kit, and tells the same story.

use distlock::backends::{Memory, Redis, Sqlite};
use distlock::{FeedItem, HoldEnd, HoldRecordState, Locks, StartAt};
use distlock_testkit::journal::conformance;
use distlock_testkit::servers::{RedisCluster, RedisServer, TempFolder};
use futures_util::StreamExt;

use crate::support::*;

async fn redis(url: &str) {
    let [a, b] = [(); 2].map(|()| Redis::open(url).unwrap());
    conformance(&a, &b).await;
}

#[tokio::test]
async fn memory_keeps_the_promises_of_a_journal() {
    let store = Memory::new();
    conformance(&store, &store.client()).await;
}

#[tokio::test]
async fn redis_keeps_the_promises_of_a_journal() {
    let server = RedisServer::start();
    redis(&server.url()).await;
}

/// How many commands of this kind the server has executed, also inside scripts.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    let calls = line.and_then(|line| line.strip_prefix("calls=")?.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

#[tokio::test]
async fn the_past_of_a_key_is_read_without_the_rest_of_the_journal() {
    let server = RedisServer::start();
    let locks = Locks::connect(&format!("{}?journal=on", server.url())).unwrap();
    let use_once = async |key: &str| {
        locks.mutex(key).unwrap().lock().await.unwrap().release().await.unwrap();
    };
    use_once("rare").await;
    for index in 0..1_500 {
        use_once(&format!("busy-{index}")).await;
    }
    use_once("rare").await;
    locks.flush_journal().await;
    assert!(server.command(&["XLEN", "distlock:journal"]).trim() > ":3000");
    for (key, visits) in [("absent", 0), ("rare", 2)] {
        let before = (calls(&server, "xrevrange"), calls(&server, "xrange"));
        assert_eq!(locks.history(key, 10).await.unwrap().len(), visits, "{key}");
        let after = (calls(&server, "xrevrange"), calls(&server, "xrange"));
        assert!(after.0 - before.0 <= 4 && after.1 == before.1, "{key}: {before:?} {after:?}");
    }
}

#[tokio::test]
async fn redis_with_bare_keys_keeps_the_promises_of_a_journal() {
    let server = RedisServer::start();
    redis(&format!("{}?namespace=", server.url())).await;
    let keys = server.command(&["KEYS", "*"]);
    assert!(keys.contains("distlock-side:journal"), "under the reserved prefix: {keys}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_keeps_the_promises_of_a_journal_and_tells_the_story() {
    let folder = TempFolder::new();
    let url = |name| format!("sqlite:{}", folder.path().join(name).display());
    let [a, b] = [(); 2].map(|()| Sqlite::open(&url("kit.db")).unwrap());
    conformance(&a, &b).await;
    two_processes_tell_one_story(&url("story.db")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_tells_the_story_also_when_a_node_is_down() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let nodes =
        servers.each_ref().map(|server| format!("node=redis://127.0.0.1:{}", server.port()));
    let url = format!("quorum:?{}&journal=on", nodes.join("&"));
    let (a, reader) = (Locks::connect(&url).unwrap(), Locks::connect(&url).unwrap());
    let lock = async |key: &str| {
        a.mutex(key).unwrap().lock().await.unwrap().release().await.unwrap();
        a.flush_journal().await;
    };
    lock("one").await;
    assert_eq!(reader.history("one", 10).await.unwrap().len(), 1);
    let page = reader.journal_page(None, 10).await.unwrap();
    assert_eq!(page.entries.len(), 2);
    let last = &page.entries[1].id;
    assert!(reader.journal_page(Some(last), 10).await.unwrap().entries.is_empty());
    servers[0].kill();
    lock("two").await;
    assert_eq!(past(&reader, "two").await.len(), 1, "the others have it");
    let page = reader.journal_page(Some(last), 10).await.unwrap();
    assert!(page.missed && page.entries.len() == 1, "reading goes on at another node: {page:?}");
    let newest = &page.entries[0];
    assert_eq!((newest.note.key.as_str(), newest.note.what.name()), ("two", "released"));
    lock("three").await;
    let page = reader.journal_page(Some(&newest.id), 10).await.unwrap();
    assert!(!page.missed && page.entries.len() == 2, "{page:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_promises_of_a_journal_and_tells_the_story() {
    let cluster = RedisCluster::start();
    redis(&cluster.url()).await;
    two_processes_tell_one_story(&format!("{}?namespace=story", cluster.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_two_processes_tell_one_story() {
    let server = RedisServer::start();
    two_processes_tell_one_story(&server.url()).await;
    let entries = server.command(&["XLEN", "distlock:journal"]);
    assert_eq!(entries.trim(), ":5");
    let ttl = server.command(&["PTTL", "distlock:journal"]);
    let ttl: u64 = ttl.trim_start_matches(':').trim().parse().unwrap();
    assert!(ttl > 6 * 86_400_000 && ttl <= 7 * 86_400_000, "gone when no client writes: {ttl}");
}

/// Two clients hand a lock over; a third, who writes nothing, reads about it.
async fn two_processes_tell_one_story(url: &str) {
    let connect = |owner| writing(&Locks::connect(url).unwrap(), owner);
    let (a, b, reader) = (connect("a"), connect("b"), Locks::connect(url).unwrap());
    let mut feed = reader.feed(StartAt::Start).unwrap();
    let guard = a.mutex("hand-over").unwrap().lock().await.unwrap();
    let next = tokio::spawn({
        let mutex = b.mutex("hand-over").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    until_waiting(&reader, "hand-over", 1).await;
    // The store knows before the client does, which may ask again and be granted at once.
    while b.stats().waiting == 0 {
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    let guard = next.await.unwrap();
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    a.close().await.unwrap();
    b.close().await.unwrap();
    let visits = reader.history("hand-over", 10).await.unwrap();
    assert_eq!(visits.len(), 2, "{visits:?}");
    assert_eq!((visits[0].owner.as_str(), visits[0].fence), ("b", Some(fence)), "newest first");
    assert!(
        visits.iter().all(|acquisition| acquisition.state == HoldRecordState::Released),
        "{visits:?}"
    );
    let (first, second) = (of(&visits, "a"), of(&visits, "b"));
    assert!(second.waited.unwrap() > ms(0));
    // Times are the store's, good to a round trip, so two holds never seem to overlap.
    assert!(second.granted_at_ms.unwrap() + 1000 >= first.ended_at_ms.unwrap(), "{visits:?}");
    let mut heard = Vec::new();
    while heard.len() < 5 {
        let news = tokio::time::timeout(ms(10_000), feed.next()).await.expect("the feed goes on");
        match news.unwrap() {
            FeedItem::Entry(entry) => heard.push(words(&entry.note)),
            other => panic!("{other:?}"),
        }
    }
    heard.sort();
    assert_eq!(heard, ["a granted", "a released", "b granted", "b queued", "b released"]);
}
