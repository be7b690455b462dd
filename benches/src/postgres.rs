//! Locks in PostgreSQL beside what can be written by hand, on a server that waits for its disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::PostgresServer;
use futures_util::future::join_all;
use tokio_postgres::{Client, NoTls};

use crate::report::Report;
use crate::round::{Effort, Flavor, median};

/// How many acquire and release at the same time.
const TASKS: usize = 8;

/// How many leases are renewed.
const LEASES: usize = 10_000;

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let server = PostgresServer::start_with(&["fsync=on", "full_page_writes=on"]);
    let runtime = Flavor::TwoWorkers.runtime();
    let span = effort.span * 4;
    let (mut upserts, mut advisories, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    runtime.block_on(async {
        let hand = Arc::new(ByHand::connect(&server.url()).await);
        let locks = Locks::connect(&server.url()).expect("our own URL is valid");
        for _ in 0..effort.rounds {
            let ours = ours(&locks, span).await;
            upserts.push(ours / hand.upserts(span).await);
            advisories.push(ours / hand.advisories(span).await);
            commits.push(handover(&server.url(), span).await / hand.commit(span).await);
        }
        report.add("pg_hot_percent", hot_percent(&server));
        report.add("pg_renew_statements_per_s", renewals(&server, effort.rest).await);
    });
    report.add("pg_uncontended_8_vs_upsert", median(&mut upserts));
    report.add("pg_uncontended_vs_advisory", median(&mut advisories));
    report.add("pg_handover_p50_commits", median(&mut commits));
}

/// Runs a cycle in as many tasks for a while; cycles a second.
async fn rate(span: Duration, cycle: impl AsyncFn(usize)) -> f64 {
    let (start, cycles) = (Instant::now(), AtomicUsize::new(0));
    join_all((0..TASKS).map(async |task| {
        while start.elapsed() < span {
            cycle(task).await;
            cycles.fetch_add(1, Ordering::Relaxed);
        }
    }))
    .await;
    cycles.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

async fn ours(locks: &Locks, span: Duration) -> f64 {
    let mutex = |task| locks.mutex(format!("k{task}")).expect("a short key");
    let mutexes: Vec<_> = (0..TASKS).map(mutex).collect();
    rate(span, async |task| {
        let guard = mutexes[task].lock().await.expect("it is free");
        guard.release().await.expect("the server answers");
    })
    .await
}

/// The same without a library: a connection for each task, and prepared statements.
struct ByHand {
    sessions: Vec<Client>,
}

const UPSERT: &str = "INSERT INTO by_hand (key, owner, until) VALUES ($1, $2, now() + '30 s') \
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, until = excluded.until \
    WHERE by_hand.until < now()";

impl ByHand {
    async fn connect(url: &str) -> Self {
        let session = async || {
            let (client, connection) =
                tokio_postgres::connect(url, NoTls).await.expect("it takes connections");
            tokio::spawn(connection);
            client
        };
        let mut sessions = Vec::new();
        for _ in 0..TASKS {
            sessions.push(session().await);
        }
        let table = "CREATE TABLE by_hand (key text PRIMARY KEY, owner text, until timestamptz)";
        sessions[0].batch_execute(table).await.expect("a table can be made");
        Self { sessions }
    }

    async fn upserts(&self, span: Duration) -> f64 {
        let mut prepared = Vec::new();
        for session in &self.sessions {
            let delete = "DELETE FROM by_hand WHERE key = $1 AND owner = $2";
            let upsert = session.prepare(UPSERT).await.expect("sound SQL");
            prepared.push((upsert, session.prepare(delete).await.expect("sound SQL")));
        }
        rate(span, async |task| {
            let (key, owner) = (format!("k{task}"), "me");
            let (upsert, delete) = &prepared[task];
            let taken = self.sessions[task].execute(upsert, &[&key, &owner]).await;
            assert_eq!(taken.expect("it answers"), 1);
            let given = self.sessions[task].execute(delete, &[&key, &owner]).await;
            assert_eq!(given.expect("it answers"), 1);
        })
        .await
    }

    async fn advisories(&self, span: Duration) -> f64 {
        rate(span, async |task| {
            let key = i64::try_from(task).unwrap_or(0);
            for sql in ["SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"] {
                let done = self.sessions[task].query_one(sql, &[&key]).await;
                done.expect("it answers");
            }
        })
        .await
    }

    /// Seconds that one small commit takes, median.
    async fn commit(&self, span: Duration) -> f64 {
        let (start, mut took) = (Instant::now(), Vec::new());
        while start.elapsed() < span {
            let before = Instant::now();
            let key = "commit";
            let done = self.sessions[0].execute(UPSERT, &[&key, &key]).await;
            done.expect("it answers");
            self.sessions[0]
                .execute("DELETE FROM by_hand WHERE key = $1", &[&key])
                .await
                .expect("it answers");
            took.push(before.elapsed().as_secs_f64() / 2.0);
        }
        median(&mut took)
    }
}

/// Seconds from the call of release of one client to the hold of another one, median.
async fn handover(url: &str, span: Duration) -> f64 {
    let open = || Locks::connect(url).expect("our own URL is valid");
    let clients = [open(), open()];
    let mutexes: Vec<_> =
        clients.iter().map(|locks| locks.mutex("contended").expect("a short key")).collect();
    let mut guard = mutexes[0].lock().await.expect("it is free");
    let (start, mut took, mut turn) = (Instant::now(), Vec::new(), 1);
    while start.elapsed() < span {
        let next = mutexes[turn].lock();
        let hand = async {
            while clients[0].inspect("contended").await.expect("it answers").waiters_total == 0 {}
            let before = Instant::now();
            guard.release().await.expect("it answers");
            before
        };
        let (next, before) = tokio::join!(next, hand);
        took.push(before.elapsed().as_secs_f64());
        guard = next.expect("it is handed over");
        turn = 1 - turn;
    }
    guard.release().await.expect("it answers");
    median(&mut took)
}

fn number(server: &PostgresServer, sql: &str) -> f64 {
    server.sql(sql).trim().parse().unwrap_or(f64::NAN)
}

/// How many of the updates of rows left the indexes alone.
fn hot_percent(server: &PostgresServer) -> f64 {
    let sql = "SELECT 100.0 * sum(n_tup_hot_upd) / greatest(sum(n_tup_upd), 1) \
               FROM pg_stat_user_tables WHERE schemaname = 'distlock'";
    number(server, sql)
}

/// How many transactions a second keep the leases.
async fn renewals(server: &PostgresServer, rest: Duration) -> f64 {
    let locks = Locks::connect(&server.url()).expect("our own URL is valid");
    let ttl = Duration::from_secs(3);
    let locks = locks.configure(|options| options.ttl(ttl)).expect("a fine ttl");
    let mutexes: Vec<_> =
        (0..LEASES).map(|at| locks.mutex(format!("lease/{at}")).expect("a short key")).collect();
    let mut guards = Vec::new();
    for some in mutexes.chunks(200) {
        let taken = join_all(some.iter().map(|mutex| mutex.lock())).await;
        guards.extend(taken.into_iter().map(|guard| guard.expect("it is free")));
    }
    let commits = || {
        number(server, "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'")
    };
    let (before, start) = (commits(), Instant::now());
    tokio::time::sleep(rest).await;
    let renewed = (commits() - before) / start.elapsed().as_secs_f64();
    assert!(guards.iter().all(|guard| guard.is_held()), "a lease was lost");
    renewed
}
