//! Processes that add to one number under one lock, while servers and sessions die.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock::backends::postgres::{StaleHold, fenced};
use distlock_testkit::servers::PostgresServer;
use tokio_postgres::{Client, NoTls};

/// Where a worker finds its server.
const URL: &str = "DISTLOCK_WORKLOAD_URL";

const WORKERS: u64 = 8;

/// How much each worker adds, one at a time.
const ADDS: u64 = 25;

fn worker(url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workload::adds_under_the_lock", "--ignored", "--nocapture"])
        .env(URL, url)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a worker does; `no_update_is_lost_while_sessions_and_the_server_die` starts several.
#[tokio::test]
#[ignore = "a part of another test, in a process of its own"]
async fn adds_under_the_lock() {
    let url = std::env::var(URL).unwrap();
    let locks = Locks::connect(&format!("{url}?response_timeout_ms=5000")).unwrap();
    let locks = locks.configure(|options| options.ttl(Duration::from_secs(5))).unwrap();
    let mutex = locks.mutex("number").unwrap();
    let mut session = None;
    let mut added = 0;
    while added < ADDS {
        let Ok(guard) = mutex.lock().await else { continue };
        let client = match session.take() {
            Some(client) => client,
            None => match connect(&url).await {
                Some(client) => client,
                None => continue,
            },
        };
        if let Ok(client) = add(client, guard.key(), guard.fence()).await {
            added += 1;
            session = Some(client);
        }
        let _ = guard.release().await;
    }
    locks.close().await.unwrap();
}

async fn connect(url: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// Reads the number, and writes it back with one more. Every add says under which fence, once.
async fn add(mut client: Client, key: &distlock::Key, fence: u64) -> Result<Client, StaleHold> {
    let transaction = client.transaction().await?;
    fenced(&transaction, "distlock", key, fence).await?;
    let row = transaction.query_one("SELECT n FROM number", &[]).await?;
    let n: i64 = row.get(0);
    transaction.execute("UPDATE number SET n = $1", &[&(n + 1)]).await?;
    let fence = i64::try_from(fence).unwrap();
    transaction.execute("INSERT INTO adds (fence, n) VALUES ($1, $2)", &[&fence, &(n + 1)]).await?;
    transaction.commit().await?;
    Ok(client)
}

#[tokio::test]
async fn no_update_is_lost_while_sessions_and_the_server_die() {
    let mut server = PostgresServer::start_with(&["fsync=on"]);
    server.sql("CREATE TABLE number AS SELECT 0::bigint AS n");
    server.sql("CREATE TABLE adds (fence bigint PRIMARY KEY, n bigint UNIQUE)");
    let mut workers: Vec<_> = (0..WORKERS).map(|_| worker(&server.url())).collect();
    let progress = |server: &PostgresServer| -> u64 {
        server.try_sql("SELECT n FROM number").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let started = Instant::now();
    for fault in 1..=5 {
        while progress(&server) < fault * WORKERS * ADDS / 8 {
            assert!(started.elapsed() < Duration::from_secs(300), "the workers do not go on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        match fault {
            1 | 3 => {
                let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
                server.sql(kill);
            }
            2 => server.restart(),
            4 => {
                // A holder that dies leaves its lease behind, and another one goes on.
                workers[0].kill().unwrap();
            }
            _ => {
                server.pause();
                tokio::time::sleep(Duration::from_secs(2)).await;
                server.resume();
            }
        }
    }
    for (at, worker) in workers.iter_mut().enumerate() {
        let ended = worker.wait().unwrap();
        assert!(ended.success() || at == 0, "worker {at}: {ended}");
    }
    // Every number was written once, and fences grow with the numbers.
    let number = progress(&server);
    assert!(number >= (WORKERS - 1) * ADDS, "{number}");
    assert_eq!(server.sql("SELECT count(*) FROM adds"), number.to_string());
    let grows = "SELECT bool_and(grows) FROM (SELECT fence > lag(fence, 1, 0::bigint) \
                 OVER (ORDER BY n) AS grows FROM adds) AS each";
    assert_eq!(server.sql(grows), "t");
}
