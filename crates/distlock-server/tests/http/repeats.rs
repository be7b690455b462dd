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

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A lease of a free key.
    Lease,
    /// A lease of a key that is held, and released while the client repeats its request.
    QueuedLease,
    /// The lock of a Terraform state.
    Terraform,
}

impl What {
    /// A request for the key under an id, and the status by which it is refused.
    fn request(self, key: &str, id: &str, wait_ms: u32) -> (String, Value, u16) {
        match self {
            Self::Lease | Self::QueuedLease => {
                let path = format!("POST /api/v1/locks/{key}/leases");
                (path, json!({"leaseId": id, "ttlMs": 600_000, "waitMs": wait_ms}), 409)
            }
            Self::Terraform => {
                let path = format!("LOCK /api/compat/terraform/{key}?wait={wait_ms}ms");
                (path, json!({"ID": id, "Who": "me"}), 423)
            }
        }
    }
}

/// Where a client repeats its request.
#[derive(Clone, Copy, Debug)]
enum At {
    /// At another replica, after it has closed the connection to the first.
    Other,
    /// At the same replica, before that can see the end of the first connection.
    Same,
}

/// Sends a request and does not read the answer.
fn send(address: SocketAddr, request: &str, headers: &str, body: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
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

/// Holds the key until it is told to release it.
struct Holder {
    service: SocketAddr,
    key: String,
    id: String,
}

impl Holder {
    fn take(service: SocketAddr, key: &str) -> Self {
        let id = lease_id();
        let (path, body, _) = What::Lease.request(key, &id, 0);
        assert_eq!(status(send(service, &path, "", &body.to_string())), 201);
        Self { service, key: key.to_owned(), id }
    }

    fn release(self) {
        let path = format!("DELETE /api/v1/locks/{}/lease", self.key);
        let header = format!("Lease-Id: {}\r\n", self.id);
        assert_eq!(status(send(self.service, &path, &header, "")), 204);
    }
}

/// One client that gives up and repeats, and one that wants the same key. Returns what went wrong.
fn round(number: usize, what: What, at: At, one: SocketAddr, two: SocketAddr) -> Option<String> {
    let key = format!("repeat-{number}");
    let (path, body, _) = what.request(&key, &lease_id(), 20_000);
    let ask = |service| send(service, &path, "", &body.to_string());
    let holder = (what == What::QueuedLease).then(|| Holder::take(two, &key));
    // From 1 to 3 ms, each round at another moment.
    let patience = Duration::from_micros(1_000 + (number as u64 * 97) % 2_000);
    let first = ask(one);
    std::thread::sleep(patience);
    let repeated = match at {
        At::Other => {
            drop(first);
            ask(two)
        }
        At::Same => {
            let second = ask(one);
            drop(first);
            second
        }
    };
    if let Some(holder) = holder {
        std::thread::sleep(Duration::from_micros((number as u64 * 61) % 4_000));
        holder.release();
    }
    let repeated = status(repeated);
    if repeated != 200 && repeated != 201 {
        return Some(format!("round {number}: the repeated request was told {repeated}"));
    }
    let granted = Instant::now();
    loop {
        let late = granted.elapsed() > CLEAN_UP;
        let (path, body, refused) = what.request(&key, &lease_id(), 0);
        let others = status(send(two, &path, "", &body.to_string()));
        if others != refused {
            return Some(format!("round {number}: told {repeated}, and another was told {others}"));
        }
        if late {
            return None;
        }
        std::thread::sleep(CLEAN_UP / 5);
    }
}

async fn run(what: What, at: At, one: Service, two: Service) {
    let (next, rounds) = (AtomicUsize::new(0), rounds());
    let numbers = || {
        std::iter::from_fn(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            (number < rounds).then_some(number)
        })
    };
    let client = || {
        let broken =
            numbers().filter_map(|number| round(number, what, at, one.address, two.address));
        broken.collect::<Vec<_>>()
    };
    let broken: Vec<_> = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    });
    println!("{what:?} repeated at {at:?}: {} of {rounds} rounds broken", broken.len());
    assert!(broken.is_empty(), "{} of {rounds} rounds: {broken:#?}", broken.len());
}

async fn replicas(url: &str) -> (Service, Service) {
    let service =
        || Service::over(Locks::connect(url).unwrap(), |config| config.leases_max = 100_000);
    (service().await, service().await)
}

async fn on_sqlite(what: What, at: At) {
    let folder = tempdir::Folder::new();
    let (one, two) = replicas(&format!("sqlite:{}", folder.0.join("locks").display())).await;
    run(what, at, one, two).await;
}

async fn on_redis(what: What, at: At) {
    let store = RedisServer::start();
    let (one, two) = replicas(&store.url()).await;
    run(what, at, one, two).await;
}

macro_rules! repeats {
    ($(fn $name:ident: $store:ident, $what:ident, $at:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn $name() {
                $store(What::$what, At::$at).await;
            }
        )+
    };
}

repeats! {
    fn a_lease_repeated_at_another_replica_stays_on_sqlite: on_sqlite, Lease, Other;
    fn a_lease_repeated_at_the_same_replica_stays_on_sqlite: on_sqlite, Lease, Same;
    fn a_lease_repeated_at_another_replica_stays_on_redis: on_redis, Lease, Other;
    fn a_lease_repeated_at_the_same_replica_stays_on_redis: on_redis, Lease, Same;
    fn a_wait_repeated_at_another_replica_goes_on_on_sqlite: on_sqlite, QueuedLease, Other;
    fn a_wait_repeated_at_the_same_replica_goes_on_on_sqlite: on_sqlite, QueuedLease, Same;
    fn a_wait_repeated_at_another_replica_goes_on_on_redis: on_redis, QueuedLease, Other;
    fn a_wait_repeated_at_the_same_replica_goes_on_on_redis: on_redis, QueuedLease, Same;
    fn a_terraform_lock_repeated_at_another_replica_stays_on_sqlite: on_sqlite, Terraform, Other;
    fn a_terraform_lock_repeated_at_the_same_replica_stays_on_redis: on_redis, Terraform, Same;
}
