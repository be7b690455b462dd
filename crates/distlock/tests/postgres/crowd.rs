//! Many waiters, many holds, and what they leave behind.

use std::time::{Duration, Instant};

use distlock_core::{Answer, Backend, Push, Renewal, Standing};
use distlock_testkit::servers::PostgresServer;
use futures_util::StreamExt;
use futures_util::stream;

use crate::support::{LONG, ask, granted, patient, queued, release, waits};

/// How many calls are on their way at once.
const TOGETHER: usize = 200;

#[tokio::test]
async fn ten_thousand_waiters_cost_the_next_grant_nothing() {
    const WAITERS: usize = 10_000;
    let server = PostgresServer::start();
    let (a, b) = (patient(&server.url()), patient(&server.url()));
    let mut pushes = b.pushes();
    let holder = ask("k");
    granted(&a, &holder).await;
    let first = queued("k");
    waits(&b, &first).await;
    let others: Vec<_> = (1..WAITERS).map(|_| queued("k")).collect();
    let waiting = stream::iter(&others).map(|ask| waits(&b, ask)).buffer_unordered(TOGETHER);
    assert_eq!(waiting.count().await, WAITERS - 1);
    let started = Instant::now();
    release(&a, &holder).await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(2), "the release took {took:?}");
    let told = tokio::time::timeout(Duration::from_secs(10), pushes.next()).await.unwrap();
    assert!(matches!(told, Some(Push::Granted { id, .. }) if id == first.claim.id), "{told:?}");
    let seen = a.inspect(&holder.claim.key).await.unwrap();
    assert_eq!((seen.holders_total, seen.waiters_total as usize), (1, WAITERS - 1));
    // They die together, and the next ask gets the key.
    server.pass(2 * LONG);
    granted(&a, &ask("k")).await;
    assert_eq!(server.sql("SELECT count(*) FROM distlock.waiters"), "0");
}

#[tokio::test]
async fn a_thousand_holds_are_renewed_by_one_statement_in_place() {
    const HOLDS: usize = 1_000;
    let server = PostgresServer::start();
    let client = patient(&server.url());
    let asks: Vec<_> = (0..HOLDS).map(|at| ask(&format!("k{at}"))).collect();
    let held = stream::iter(&asks).map(|ask| granted(&client, ask)).buffer_unordered(TOGETHER);
    assert_eq!(held.count().await, HOLDS);
    let renewals: Vec<_> = asks.iter().map(|ask| Renewal::hold(ask.claim.clone(), LONG)).collect();
    let commits = || -> u64 {
        let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'";
        server.sql(&format!("SELECT pg_stat_force_next_flush(); {sql}")).trim().parse().unwrap()
    };
    let before = commits();
    for _ in 0..10 {
        let standings: Vec<_> = client.renew(&renewals).collect().await;
        assert_eq!(standings.len(), HOLDS);
        let held = |standing: &Standing| matches!(standing, Standing::Held { .. });
        assert!(standings.iter().all(|(_, standing)| held(standing.as_ref().unwrap())));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let took = commits() - before;
    assert!(took < 40, "ten renewals took {took} transactions");
    let sql = "SELECT 100 * n_tup_hot_upd / greatest(n_tup_upd, 1) FROM pg_stat_user_tables \
               WHERE relname = 'holders'";
    let hot: u64 = server.sql(sql).parse().unwrap();
    println!("{hot} % of the updates are HOT");
}

#[tokio::test]
async fn keys_that_are_free_for_an_hour_are_forgotten_and_fences_go_on() {
    let server = PostgresServer::start();
    let client = patient(&server.url());
    let last = ask("again");
    let before = granted(&client, &last).await;
    release(&client, &last).await;
    // A holder that died, and that no client asks about.
    granted(&client, &ask("dead")).await;
    server.pass(2 * LONG);
    server.sql("UPDATE distlock.keys SET counter = counter - 2 * 3600 * 1000000::bigint");
    let started = Instant::now();
    while server.sql("SELECT count(*) FROM distlock.keys WHERE key = 'again' OR holders > 0") != "0"
    {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is forgotten");
        for at in 0..300 {
            let one = ask(&format!("busy/{}", at % 3));
            if let Answer::Granted { .. } = client.acquire(&one).await.unwrap() {
                release(&client, &one).await;
            }
        }
    }
    assert!(granted(&client, &ask("again")).await > before);
}
