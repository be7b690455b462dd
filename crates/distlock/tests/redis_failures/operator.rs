//! Part C: what operators and other programs do to a server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use distlock::{Error, HoldEnd, LossReason};
use distlock_testkit::servers::RedisServer;
use futures_util::future::join_all;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_library_that_is_flushed_all_the_time_fails_no_call() {
    flushed_all_the_time(RedisServer::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_all_the_time_fail_no_call() {
    let server = RedisServer::start();
    server.deny_functions();
    flushed_all_the_time(server).await;
}

async fn flushed_all_the_time(server: RedisServer) {
    let workers = (0..4).map(|n| {
        let locks = patient(&server.url(), 10_000);
        tokio::spawn(async move {
            let (mutex, rwlock) = (locks.mutex(KEY).unwrap(), locks.rwlock("rw").unwrap());
            for _ in 0..60 {
                let guard = mutex.lock().await.unwrap();
                assert_eq!(guard.release().await.unwrap(), HoldEnd::Released, "worker {n}");
                drop(rwlock.read().await.unwrap());
                rwlock.write().await.unwrap().release().await.unwrap();
                locks.inspect(KEY).await.unwrap();
            }
        })
    });
    let mut workers = std::pin::pin!(join_all(workers));
    let flushed = loop {
        tokio::select! {
            done = &mut workers => break done,
            () = pass(ms(2)) => {
                server.command(&["FUNCTION", "FLUSH"]);
                server.command(&["SCRIPT", "FLUSH"]);
            }
        }
    };
    flushed.into_iter().for_each(|worker| worker.unwrap());
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_something_else_grants_once() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    a.inspect(KEY).await.unwrap();
    let holder = locks(&server.url()).configure(|o| o.ttl(ms(6000))).unwrap();
    let kept = holder.mutex("kept").unwrap().lock().await.unwrap();
    let mut busy = keep_busy(server.port());
    pass(ms(100)).await;
    let began = Instant::now();
    let guard = lock(&a).await;
    assert!(began.elapsed() > ms(300) || guard.attempts() > 1, "the server was not busy");
    busy.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(fence_at(&server), guard.fence(), "granted twice");
    assert!(matches!(try_lock(&b).await, Err(Error::Held { .. })));
    assert!(kept.is_held(), "{:?}", kept.loss());
}

/// Keeps a server busy for a while.
fn keep_busy(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"DEBUG SLEEP 1\r\n").unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_runs_too_long_is_a_passing_fault_and_grants_once() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    a.inspect(KEY).await.unwrap();
    let mut stuck = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stuck.write_all(b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n").unwrap();
    until("the server is busy", ms(5000), async || {
        try_lock(&a).await.is_err_and(|error| error.to_string().contains("BUSY"))
    })
    .await;
    let error = try_lock(&a).await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)) && error.is_transient(), "{error}");
    let waiting = wait(&a);
    pass(ms(100)).await;
    assert!(server.command(&["SCRIPT", "KILL"]).contains("OK"));
    let (_, guard) = tokio::time::timeout(ms(5000), waiting).await.unwrap().unwrap();
    assert_eq!(fence_at(&server), guard.fence());
    assert!(matches!(try_lock(&b).await, Err(Error::Held { .. })));
}

/// A holder with ten waiters, on whom something is done to the server.
async fn during_a_hold(harm: impl FnOnce(&RedisServer)) {
    let server = RedisServer::start();
    let ttl = ms(3000);
    let a = locks(&server.url()).configure(|o| o.ttl(ttl)).unwrap();
    let guard = lock(&a).await;
    let clients: Vec<_> = (0..10).map(|_| locks(&server.url())).collect();
    let waiters: Vec<_> = clients
        .iter()
        .map(|client| {
            let mutex = client.mutex(KEY).unwrap();
            tokio::spawn(async move { mutex.with(async |guard| guard.fence()).await.unwrap() })
        })
        .collect();
    queued(&a, 10).await;
    harm(&server);
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(began.elapsed() <= ttl / 3 + ms(500), "{:?}", began.elapsed());
    let all = tokio::time::timeout(ms(8000), join_all(waiters)).await.expect("waiters proceed");
    let mut fences: Vec<_> = all.into_iter().map(|fence| fence.unwrap()).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 10);
    assert!(fences[0] > guard.fence());
    drop(guard);
    nothing_left(&server, ms(1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_key_is_noticed_and_waiters_proceed() {
    during_a_hold(|server| assert_eq!(number(server, &["DEL", MAIN]), 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_is_noticed_and_waiters_proceed() {
    during_a_hold(|server| assert!(server.command(&["FLUSHALL"]).contains("OK"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_is_refused_and_left_alone() {
    let server = RedisServer::start();
    let a = locks(&server.url());
    server.command(&["LPUSH", MAIN, "theirs"]);
    for result in [
        a.mutex(KEY).unwrap().try_lock().await.map(drop),
        a.mutex(KEY).unwrap().lock().await.map(drop),
        a.rwlock(KEY).unwrap().read().await.map(drop),
        a.semaphore(KEY, 2).unwrap().acquire().await.map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Backend(_)) && !error.is_transient(), "{error}");
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    }
    until("nothing is in hand", ms(2000), async || a.stats().releasing == 0).await;
    assert_eq!(server.command(&["LRANGE", MAIN, "0", "-1"]), "*1\r\n$6\r\ntheirs\r\n");
    assert_eq!(left(&server), [MAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_side_key_of_another_type_makes_no_partial_grant() {
    let server = RedisServer::start();
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    server.command(&["SET", "distlock:{k}:d", "theirs"]);
    let held = a.mutex(KEY).unwrap().try_lock().await;
    let error = held.map(drop).unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("WRONGTYPE"), "{error}");
    assert_eq!(server.command(&["EXISTS", MAIN]), ":0\r\n", "taken by halves");
    server.command(&["DEL", "distlock:{k}:d"]);
    assert!(try_lock(&b).await.is_ok());
}
