//! Several replicas on one store: any of them answers, and one that dies takes nothing along.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::Locks;
use distlock_server::{Server, ServerConfig};
use distlock_testkit::servers::RedisServer;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Answer, PATIENCE, Service, lease_id};

/// Names the store for the process that is to be a replica.
const STORE: &str = "DISTLOCK_TEST_REPLICA_OF";

/// Not a test but a replica, when this program is started as one.
#[test]
fn a_replica_of_another_process() {
    let Ok(url) = std::env::var(STORE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Locks::connect(&url).unwrap()).await.unwrap();
        println!("\nlistening on {}", server.address().unwrap());
        server.run(CancellationToken::new()).await.unwrap();
    });
}

/// A replica in a process of its own.
struct Replica {
    child: Child,
    url: String,
}

impl Replica {
    fn start(store: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "replicas::a_replica_of_another_process", "--nocapture"])
            .env(STORE, store)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .expect("the replica starts");
        Self { child, url: format!("http://{address}") }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_one_replica_is_renewed_and_released_by_another() {
    let store = RedisServer::start();
    let one = Service::over(Locks::connect(&store.url()).unwrap(), |_| {}).await;
    let two = Service::over(Locks::connect(&store.url()).unwrap(), |_| {}).await;
    for body in [json!({}), json!({"mode": "shared"}), json!({"permits": 2, "limit": 5})] {
        let granted = one.lease(body.clone()).await.is(201);
        let id = granted.text_of("leaseId");
        let renewed = two.renew(&id).await.is(200);
        assert_eq!(renewed.number_of("fence"), granted.number_of("fence"), "{body}");
        two.release(&id).await.is(204);
        one.release(&id).await.is(410);
    }
    // A place that one replica gave is kept by the other.
    let held = one.lease(json!({})).await.is(201).text_of("leaseId");
    let id = lease_id();
    let wait = json!({"leaseId": id, "keepPlace": true, "waitMs": 0});
    let ticket = one.lease(wait.clone()).await.is(202).number_of("ticket");
    assert_eq!(two.lease(wait).await.is(202).number_of("ticket"), ticket);
    two.release(&held).await.is(204);
    two.lease(json!({"leaseId": id, "waitMs": 10_000})).await;
    one.renew(&id).await.is(200);
    // The other replica knows who released it.
    one.release(&id).await.is(204);
    let begun = std::time::Instant::now();
    loop {
        let past = two.get("/api/v1/locks/deploy%2Fprod/history").await.is(200);
        if past.json["visits"][0]["state"] == "released" {
            break;
        }
        // It is noted down in the background.
        assert!(begun.elapsed() < PATIENCE, "{}", past.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_killed_under_load_takes_nothing_along() {
    let store = RedisServer::start();
    let (doomed, other) = (Replica::start(&store.url()), Replica::start(&store.url()));
    let (doomed_url, killed) = (doomed.url.clone(), AtomicBool::new(false));
    let (held, fences) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
    let worker = |n: usize| {
        let (doomed, other) = (&doomed_url, &other.url);
        let (killed, held, fences) = (&killed, &held, &fences);
        async move {
            let client = reqwest::Client::new();
            let path = format!("/api/v1/locks/load%2F{}/leases", n % 4);
            for round in 0.. {
                if killed.load(Ordering::Relaxed) && round > 5 {
                    break;
                }
                // The same id through whichever replica is alive: a lost answer costs nothing.
                let body = json!({"leaseId": lease_id(), "waitMs": 5_000, "ttlMs": 60_000});
                let mut answer = post(&client, doomed, &path, &body).await;
                if answer.is_none() {
                    answer = post(&client, other, &path, &body).await;
                }
                let Some((status, lease)) = answer else { continue };
                if status != 201 && status != 200 {
                    continue;
                }
                let key = lease["key"].as_str().unwrap().to_owned();
                let fence = lease["fence"].as_u64().unwrap();
                assert!(fences.lock().unwrap().insert((key, fence)), "two holders: {lease}");
                held.lock().unwrap().push(lease.clone());
                if release(&client, doomed, &lease).await.is_none() {
                    release(&client, other, &lease).await;
                }
            }
        }
    };
    let killing = async {
        while fences.lock().unwrap().len() < 30 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Leases that are held while the replica dies.
        let client = reqwest::Client::new();
        let mut kept = Vec::new();
        for n in 0..5 {
            let path = format!("/api/v1/locks/kept%2F{n}/leases");
            kept.push(post(&client, &doomed_url, &path, &json!({})).await.unwrap().1);
        }
        drop(doomed);
        killed.store(true, Ordering::Relaxed);
        kept
    };
    let workers = async { futures_util::future::join_all((0..8).map(worker)).await };
    let (kept, _) = tokio::time::timeout(4 * PATIENCE, async { tokio::join!(killing, workers) })
        .await
        .expect("the load ends");
    let client = reqwest::Client::new();
    for lease in &kept {
        assert_eq!(release(&client, &other.url, lease).await, Some(204), "{lease}");
    }
}

async fn post(
    client: &reqwest::Client,
    replica: &str,
    path: &str,
    body: &Value,
) -> Option<(u16, Value)> {
    let request = client.post(format!("{replica}{path}")).json(body).timeout(PATIENCE);
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.ok()?))
}

async fn release(client: &reqwest::Client, replica: &str, lease: &Value) -> Option<u16> {
    let key = lease["key"].as_str().unwrap().replace('/', "%2F");
    let request = client.delete(format!("{replica}/api/v1/locks/{key}/lease"));
    let request = request.header("lease-id", lease["leaseId"].as_str().unwrap());
    Some(Answer::of_result(request.timeout(PATIENCE).send().await).await?.status)
}
