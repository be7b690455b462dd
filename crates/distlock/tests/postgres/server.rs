//! The server dies, runs out of something, or ends what clients are doing.

use distlock_core::{Answer, Backend, FaultKind, ReleaseOptions, ReleaseOutcome, Standing, Target};
use distlock_testkit::servers::PostgresServer;
use futures_util::future::join_all;

use crate::support::{
    ask, granted, open, patient, queued, release, try_release, try_renew, until, until_ok, waits,
};

/// Ends all sessions of clients, as an operator or a failover of the network does.
const KILL_SESSIONS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                             WHERE application_name = 'distlock'";

#[tokio::test]
async fn holds_and_places_outlive_a_server_that_was_killed() {
    let mut server = PostgresServer::start_with(&["fsync=on"]);
    let client = patient(&server.url());
    let (holder, waiter) = (ask("k"), queued("k"));
    let fence = granted(&client, &holder).await;
    let ticket = waits(&client, &waiter).await;
    let before = client.extensions().epoch();
    server.kill();
    let fault = client.acquire(&ask("other")).await.unwrap_err();
    assert!(fault.is_transient(), "{fault}");
    server.restart();
    let standing = until_ok(async || try_renew(&client, &holder).await).await;
    assert_eq!(standing, Standing::Held { fence });
    assert!(client.extensions().epoch() > before, "the server was reached anew");
    let again = until_ok(async || client.acquire(&waiter).await).await;
    assert!(matches!(again, Answer::Busy(busy) if busy.ticket == Some(ticket)));
    assert_eq!(release(&client, &holder).await, ReleaseOutcome::WasHeld);
    let Answer::Granted { fence: next } = client.acquire(&waiter).await.unwrap() else {
        panic!("the next in line is not let in");
    };
    assert!(next > fence);
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_a_transient_fault_in_every_verb() {
    let server = PostgresServer::start();
    let client = patient(&server.url());
    let (held, waiter) = (ask("k"), queued("k"));
    let fence = granted(&client, &held).await;
    waits(&client, &waiter).await;
    for round in 0..3 {
        let kill = || server.sql(KILL_SESSIONS);
        kill();
        let other = ask(&format!("other/{round}"));
        let answer = until_ok(async || client.acquire(&other).await).await;
        assert!(matches!(answer, Answer::Granted { .. }));
        kill();
        let standing = until_ok(async || try_renew(&client, &held).await).await;
        assert_eq!(standing, Standing::Held { fence });
        kill();
        let seen = until_ok(async || client.inspect(&held.claim.key).await).await;
        assert_eq!((seen.holders_total, seen.waiters_total), (1, 1));
        kill();
        let page = until_ok(async || client.list("", None).await).await;
        assert!(!page.locks.is_empty());
        kill();
        until_ok(async || client.probe().await).await;
        kill();
        // What was executed before the answer was lost is not done again.
        let outcome = until_ok(async || try_release(&client, &other).await).await;
        assert!(matches!(outcome, ReleaseOutcome::WasHeld | ReleaseOutcome::Gone));
        assert!(client.inspect(&other.claim.key).await.unwrap().is_free());
    }
}

#[tokio::test]
async fn a_key_that_another_session_locks_fails_within_the_deadline_and_alone() {
    let server = PostgresServer::start();
    let client = open(&server.url());
    let (first, second) = (ask("stuck"), ask("free"));
    granted(&client, &first).await;
    let psql = std::thread::spawn({
        let url = server.url();
        move || {
            let sql = "BEGIN; SELECT FROM distlock.keys WHERE key = 'stuck' FOR UPDATE; \
                       SELECT pg_sleep(6); COMMIT";
            std::process::Command::new("psql").args(["-X", "-q", "-d", &url, "-c", sql]).output()
        }
    });
    until("psql has the lock", || {
        server.sql(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                    WHERE a.application_name = 'psql' AND l.mode = 'RowShareLock'",
        ) != "0"
    })
    .await;
    let started = std::time::Instant::now();
    let fault = try_release(&client, &first).await.unwrap_err();
    assert!(fault.is_transient(), "{fault}");
    assert!(started.elapsed() < std::time::Duration::from_secs(3), "{:?}", started.elapsed());
    granted(&client, &second).await;
    assert_eq!(release(&client, &second).await, ReleaseOutcome::WasHeld);
    // Not even those that are asked for at the same moment, and share a message to the server.
    let mut asks: Vec<_> = (0..20).map(|at| ask(&format!("free/{at}"))).collect();
    asks.push(ask("stuck"));
    let answers = join_all(asks.iter().map(|ask| client.acquire(ask))).await;
    let (stuck, free) = answers.split_last().unwrap();
    assert!(stuck.is_err(), "{stuck:?}");
    assert!(free.iter().all(|one| matches!(one, Ok(Answer::Granted { .. }))), "{free:?}");
    psql.join().unwrap().unwrap();
    assert_eq!(
        until_ok(async || try_release(&client, &first).await).await,
        ReleaseOutcome::WasHeld
    );
}

#[tokio::test]
async fn a_deadlock_is_a_transient_fault_and_the_next_attempt_succeeds() {
    let server = PostgresServer::start_with(&["deadlock_timeout=50ms"]);
    let client = patient(&server.url());
    let (held, other) = (ask("a"), ask("b"));
    granted(&client, &held).await;
    granted(&client, &other).await;
    // Locks the hold, then wants the latch that a verb has, which wants the hold.
    let sql = "BEGIN; SELECT FROM distlock.holders WHERE key = 'a' FOR UPDATE; \
               SELECT pg_sleep(0.5); SELECT FROM distlock.keys WHERE key = 'a' FOR UPDATE; COMMIT";
    let rival = std::thread::spawn({
        let url = server.url();
        let sql = sql.to_owned();
        move || {
            std::process::Command::new("psql").args(["-X", "-q", "-d", &url, "-c", &sql]).output()
        }
    });
    until("psql has the hold", || {
        server.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.5)%' \
                    AND application_name = 'psql' AND wait_event = 'PgSleep'",
        ) != "0"
    })
    .await;
    let outcome = until_ok(async || try_release(&client, &held).await).await;
    assert_eq!(outcome, ReleaseOutcome::WasHeld);
    rival.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_server_with_serializable_transactions_by_default_serves_all_verbs() {
    let server = PostgresServer::start_with(&["default_transaction_isolation=serializable"]);
    let (a, b) = (patient(&server.url()), patient(&server.url()));
    for round in 0..20 {
        let key = format!("k{}", round % 2);
        let (first, second) = (ask(&key), queued(&key));
        let fence = granted(&a, &first).await;
        waits(&b, &second).await;
        release(&a, &first).await;
        let Answer::Granted { fence: next } = b.acquire(&second).await.unwrap() else {
            panic!("the next in line is not let in");
        };
        assert!(next > fence);
        release(&b, &second).await;
    }
}

#[tokio::test]
async fn a_statement_timeout_of_the_server_is_not_ours() {
    let server = PostgresServer::start_with(&["statement_timeout=1ms", "lock_timeout=1ms"]);
    let client = patient(&server.url());
    let held = ask("k");
    // Only connecting, which happens outside our transactions, may meet it.
    until_ok(async || client.acquire(&held).await).await;
    assert_eq!(release(&client, &held).await, ReleaseOutcome::WasHeld);
}

#[tokio::test]
async fn a_clock_that_goes_back_takes_no_fence_back_and_ends_no_lease_early() {
    let server = PostgresServer::start();
    let client = patient(&server.url());
    let (first, second) = (ask("k"), ask("k"));
    let before = granted(&client, &first).await;
    server.stop_clock();
    server.move_clock(-3600.0);
    assert_eq!(try_renew(&client, &first).await.unwrap(), Standing::Held { fence: before });
    let busy = client.acquire(&second).await.unwrap();
    assert!(matches!(busy, Answer::Busy(_)), "{busy:?}");
    release(&client, &first).await;
    assert!(granted(&client, &second).await > before);
    // A key that is new there, too: this client has seen a larger fence.
    assert!(granted(&client, &ask("new")).await > before);
}

#[tokio::test]
async fn a_full_disk_says_so_and_heals_when_there_is_room() {
    let server = PostgresServer::start();
    let client = patient(&server.url());
    granted(&client, &ask("before")).await;
    // The server says of a disk that is full what it says of this.
    let full = "CREATE FUNCTION distlock.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                RAISE EXCEPTION 'could not extend file: No space left on device' \
                USING ERRCODE = 'disk_full'; END $$; \
                CREATE TRIGGER no_room BEFORE INSERT ON distlock.holders \
                EXECUTE FUNCTION distlock.no_room()";
    server.sql(full);
    let fault = client.acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Permanent, "{fault}");
    assert!(fault.to_string().contains("make room"), "{fault}");
    server.sql("DROP TRIGGER no_room ON distlock.holders");
    granted(&client, &ask("k")).await;
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_release_takes_nothing() {
    let server = PostgresServer::start();
    let client = patient(&server.url());
    let late = ask("k");
    let how =
        ReleaseOptions { bury: std::time::Duration::from_secs(60), ..ReleaseOptions::default() };
    client.release(&Target::Claim(late.claim.clone()), how).await.unwrap();
    assert_eq!(client.acquire(&late).await.unwrap(), Answer::Dead);
    granted(&client, &ask("k")).await;
}

#[tokio::test]
async fn a_row_that_another_program_wrote_is_the_fault_of_its_own_key() {
    let server = PostgresServer::start();
    let client = patient(&server.url());
    let (good, bad) = (ask("good"), ask("bad"));
    granted(&client, &good).await;
    granted(&client, &bad).await;
    server.sql("UPDATE distlock.holders SET queueing = 'lifo', attempts = 'x' WHERE key = 'bad'");
    let fault = client.inspect(&bad.claim.key).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Permanent, "{fault}");
    let fault = client.acquire(&ask("bad")).await.unwrap_err();
    assert_eq!(fault.key().map(distlock::Key::as_str), Some("bad"));
    assert_eq!(fault.kind(), FaultKind::Permanent, "{fault}");
    let page = client.list("", None).await.unwrap();
    let keys: Vec<_> = page.locks.iter().map(|lock| lock.key.as_str()).collect();
    assert_eq!(keys, ["good"]);
    assert_eq!(release(&client, &good).await, ReleaseOutcome::WasHeld);
}
