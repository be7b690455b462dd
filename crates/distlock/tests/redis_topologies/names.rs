//! No name puts the keys of one lock into different slots.

use distlock::{Error, HoldEnd, Locks};
use distlock_testkit::servers::RedisCluster;
use futures_util::future::join_all;

use crate::support::*;

/// Names that could move a hash tag or upset a protocol.
fn corpus() -> Vec<String> {
    let odd = [
        "a",
        "{",
        "}",
        "{}",
        "{}x",
        "}x",
        "}{",
        "}{x}",
        "{a}",
        "a{b}c",
        "{a}b}",
        "{{a}}",
        "a}b",
        "a{",
        "{x",
        "%",
        "%%",
        "%7B",
        "%7D",
        "%25",
        "a%",
        "a:q",
        ":",
        "*",
        "[x]?",
        "\\",
        "\"'",
        " ",
        "a b",
        "a\nb",
        "\r\n",
        "\0",
        "a\0b",
        "é",
        "日本語",
        "🔒{🔒}",
        "\u{202e}x",
    ];
    let long = ["x".repeat(512), "}".repeat(512), "{".repeat(512), "%".repeat(512)];
    odd.iter().map(|&name| name.to_owned()).chain(long).collect()
}

/// Names that bare mode cannot put into the slot of their main key: a closing brace, and no tag.
fn has_no_tag_but_closes(name: &str) -> bool {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    name.contains('}') && tag.is_none_or(|(tag, _)| tag.is_empty())
}

/// Acquires, queues, renews, looks and releases, with one kind after the other.
async fn every_kind(a: &Locks, b: &Locks, name: &str) -> Result<(), Error> {
    let leases = a.lease(name)?;
    let mut lease = leases.acquire().await?;
    leases.extend(&mut lease).await?;
    assert_eq!(leases.release(&lease).await?, HoldEnd::Released, "{name:?}");
    mutex(a, b, name).await?;
    readers(a, b, name).await?;
    let semaphore = a.semaphore(name, 3)?;
    let (one, two) = (semaphore.acquire().await?, semaphore.acquire_many(2).await?);
    assert!(matches!(semaphore.try_acquire().await, Err(Error::Held { .. })), "{name:?}");
    let mut kept = one.into_lease();
    leases.extend(&mut kept).await?;
    leases.release(&kept).await?;
    two.release().await?;
    let owner = a.reentrant(name)?.owner()?;
    let (outer, inner) = (owner.lock().await?, owner.lock().await?);
    outer.release().await?;
    assert!(inner.is_held(), "{name:?}");
    assert_eq!(inner.release().await?, HoldEnd::Released, "{name:?}");
    assert!(a.inspect(name).await?.is_free(), "{name:?}");
    Ok(())
}

async fn mutex(a: &Locks, b: &Locks, name: &str) -> Result<(), Error> {
    let first = a.mutex(name)?.lock().await?;
    let next = wait(b, name);
    queued(a, name, 1).await;
    let seen = a.inspect(name).await?;
    assert_eq!((seen.key.as_str(), seen.holders_total), (name, 1));
    assert_eq!(first.release().await?, HoldEnd::Released, "{name:?}");
    let next = got(next, ms(10_000)).await;
    a.break_hold(name, next.fence()).await?;
    next.release().await?;
    Ok(())
}

async fn readers(a: &Locks, b: &Locks, name: &str) -> Result<(), Error> {
    let writer = a.rwlock(name)?.write().await?;
    let other = b.rwlock(name)?;
    let reader = tokio::spawn(async move { other.read().await });
    queued(a, name, 1).await;
    let lowered = writer.downgrade().await?;
    let reader = reader.await.unwrap()?;
    let (leases, mut lease) = (b.lease(name)?, reader.into_lease());
    leases.extend(&mut lease).await?;
    assert_eq!(lowered.release().await?, HoldEnd::Released, "{name:?}");
    assert_eq!(leases.release(&lease).await?, HoldEnd::Released, "{name:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_lock_works_under_every_name() {
    let cluster = RedisCluster::start();
    let new = || patient(&cluster.url(), 5000, ms(20_000), ms(10_000));
    let (a, b, names) = (new(), new(), corpus());
    let results = join_all(names.iter().map(|name| every_kind(&a, &b, name))).await;
    let failed: Vec<_> = names.iter().zip(results).filter(|(_, result)| result.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_lock_works_under_every_bare_name_that_has_a_slot() {
    let cluster = RedisCluster::start();
    let new = || patient(&format!("{}?namespace=", cluster.url()), 5000, ms(20_000), ms(10_000));
    let (a, b, names) = (new(), new(), corpus());
    let names: Vec<_> = names.into_iter().filter(|name| !has_no_tag_but_closes(name)).collect();
    let results = join_all(names.iter().map(|name| every_kind(&a, &b, name))).await;
    let failed: Vec<_> = names.iter().zip(results).filter(|(_, result)| result.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_name_never_spreads_over_slots() {
    let cluster = RedisCluster::start();
    let a = patient(&format!("{}?namespace=", cluster.url()), 5000, ms(20_000), ms(10_000));
    for name in corpus().iter().filter(|name| has_no_tag_but_closes(name)) {
        match a.mutex(name.as_str()).unwrap().try_lock().await {
            Ok(guard) => assert_eq!(guard.release().await.unwrap(), HoldEnd::Released),
            Err(error) => assert!(!error.to_string().contains("same slot"), "{name:?}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_server_by_itself_and_says_how_it_is_called() {
    let mut cluster = RedisCluster::start();
    let url = cluster.primaries()[0].url();
    // Few servers, many names: some belong to this node and some to others.
    for namespace in ["a", "b", "c", "d"] {
        let locks = locks(&format!("{url}?namespace={namespace}"), ms(5000), ms(4000));
        for key in ["a", "b", "c", "d", "e", "f"] {
            let began = std::time::Instant::now();
            let lock = locks.mutex(key).unwrap().lock().await;
            match lock {
                Err(error @ Error::Backend(_)) => {
                    assert!(!error.is_transient(), "{error}");
                    let text = format!("{error:?}");
                    assert!(text.contains("redis-cluster://"), "{text}");
                }
                // All its keys happen to lie in one slot of this node.
                Ok(_) => panic!("{namespace}:{key} has a counter elsewhere"),
                Err(other) => panic!("{other:?}"),
            }
            assert!(began.elapsed() < ms(5000), "no client tries that again");
        }
    }
}
