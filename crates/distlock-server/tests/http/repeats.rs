//! A client that gave up and repeats its request under the same lease id: the clean-up of the
//! first request takes nothing away from the second.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use serde_json::{Value, json};

use crate::support::{PATIENCE, Service, lease_id, tempdir};

/// Rounds per store and form, times `DISTLOCK_SOAK`.
const ROUNDS: usize = 300;

/// Clients that run rounds side by side.
const CLIENTS: usize = 4;

/// The clean-up of a request whose client is gone arrives at the store within this time.
const CLEAN_UP: Duration = Duration::from_millis(25);

fn rounds() -> usize {
    let soak = std::env::var("DISTLOCK_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    ROUNDS * soak
}

/// Where a client repeats its request.
#[derive(Clone, Copy, Debug)]
enum At {
    /// At another replica, after it has closed the connection to the first.
    Other,
    /// At the same replica, before that can see the end of the first connection.
    Same,
}

/// Sends a request for a lease and does not read the answer.
fn ask(address: SocketAddr, key: &str, body: &Value) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.to_string();
    let request = format!(
        "POST /api/v1/locks/{key}/leases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).unwrap();
    client
}

/// Reads an answer to its end and returns the status.
fn status(mut client: TcpStream) -> u16 {
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an HTTP status")
}

/// One client that gives up and repeats, and one that wants the same key. Returns what went wrong.
fn round(number: usize, at: At, one: SocketAddr, two: SocketAddr) -> Option<String> {
    let key = format!("repeat-{number}");
    let mine = json!({"leaseId": lease_id(), "ttlMs": 600_000});
    // From 1 to 3 ms, each round at another moment.
    let patience = Duration::from_micros(1_000 + (number as u64 * 97) % 2_000);
    let first = ask(one, &key, &mine);
    std::thread::sleep(patience);
    let repeated = match at {
        At::Other => {
            drop(first);
            status(ask(two, &key, &mine))
        }
        At::Same => {
            let second = ask(one, &key, &mine);
            drop(first);
            status(second)
        }
    };
    if repeated != 200 && repeated != 201 {
        return Some(format!("round {number}: the repeated request was told {repeated}"));
    }
    let granted = Instant::now();
    loop {
        let late = granted.elapsed() > CLEAN_UP;
        let others = status(ask(two, &key, &json!({"leaseId": lease_id(), "ttlMs": 1_000})));
        if others != 409 {
            return Some(format!("round {number}: told {repeated}, and another was told {others}"));
        }
        if late {
            return None;
        }
        std::thread::sleep(CLEAN_UP / 5);
    }
}

async fn run(at: At, one: Service, two: Service) {
    let (next, rounds) = (AtomicUsize::new(0), rounds());
    let numbers = || {
        std::iter::from_fn(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            (number < rounds).then_some(number)
        })
    };
    let client = || {
        let broken = numbers().filter_map(|number| round(number, at, one.address, two.address));
        broken.collect::<Vec<_>>()
    };
    let broken: Vec<_> = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    });
    println!("repeated at {at:?}: {} of {rounds} rounds broken", broken.len());
    assert!(broken.is_empty(), "{} of {rounds} rounds: {broken:#?}", broken.len());
}

async fn replicas(url: &str) -> (Service, Service) {
    let service =
        || Service::over(Locks::connect(url).unwrap(), |config| config.leases_max = 100_000);
    (service().await, service().await)
}

async fn on_sqlite(at: At) {
    let folder = tempdir::Folder::new();
    let (one, two) = replicas(&format!("sqlite:{}", folder.0.join("locks").display())).await;
    run(at, one, two).await;
}

async fn on_redis(at: At) {
    let store = RedisServer::start();
    let (one, two) = replicas(&store.url()).await;
    run(at, one, two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_repeated_at_another_replica_stays_on_sqlite() {
    on_sqlite(At::Other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_repeated_at_the_same_replica_stays_on_sqlite() {
    on_sqlite(At::Same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_repeated_at_another_replica_stays_on_redis() {
    on_redis(At::Other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_repeated_at_the_same_replica_stays_on_redis() {
    on_redis(At::Same).await;
}
