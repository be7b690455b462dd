//! The HTTP service beside a route that runs the same two scripts by hand, and what a waiter costs.

mod by_hand;
mod client;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_server::{ServerConfig, Server};
use distlock_testkit::servers::RedisServer;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

use self::client::Client;
use crate::report::Report;
use crate::round::{Effort, Flavor, median};

/// Connections that are kept alive, each with one lease after the other.
const CONNECTIONS: usize = 64;

/// Requests that wait at the same time.
const WAITERS: u64 = 1_000;

/// How long they may take to stand in the queue.
const QUEUE_MAX: Duration = Duration::from_secs(30);

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let server = RedisServer::start();
    let url = server.url();
    let runtime = Flavor::TwoWorkers.runtime();
    let mut contenders = runtime.block_on(async {
        [
            (0, by_hand::start(&url).await, Paths::BY_HAND),
            (1, service(&url, true).await, Paths::SERVICE),
            (2, service(&url, false).await, Paths::SERVICE),
        ]
    });
    let (mut usual, mut without_journal, mut errors) = (Vec::new(), Vec::new(), 0);
    for _ in 0..effort.rounds {
        let mut rates = [0.0; 3];
        for (which, address, paths) in contenders {
            // As long as 64 connections need to be opened and to be worth it.
            let (rate, failed) = runtime.block_on(rate(address, paths, 4 * effort.span));
            rates[which] = rate;
            errors += failed;
        }
        let [by_hand, service, silent] = rates;
        usual.push(service / by_hand);
        without_journal.push(silent / by_hand);
        // The order alternates from round to round.
        contenders.rotate_left(1);
    }
    report.add("http_lease_vs_handwritten", median(&mut usual));
    report.add("http_lease_no_journal_vs_handwritten", median(&mut without_journal));
    report.add("http_lease_errors", f64::from(errors));
    let (held, kib) = runtime.block_on(waiters(&url));
    report.add("http_waiters", held as f64);
    report.add("http_waiter_kib", kib);
}

/// Starts the service; it runs until the runtime ends.
async fn service(url: &str, journal: bool) -> SocketAddr {
    let mut config = ServerConfig::new("127.0.0.1:0".parse().expect("an address"));
    if !journal {
        config.journal = None;
    }
    let locks = Locks::connect(url).expect("our own URL is valid");
    let server = Server::bind(config, locks).await.expect("a port is free");
    let address = server.address().expect("it listens on TCP");
    tokio::spawn(server.run(CancellationToken::new()));
    address
}

/// Where leases are taken and given back: what stands before and after the key.
#[derive(Clone, Copy)]
struct Paths {
    take: (&'static str, &'static str),
    give_back: (&'static str, &'static str),
}

impl Paths {
    const BY_HAND: Self = Self { take: ("/", ""), give_back: ("/", "") };
    const SERVICE: Self =
        Self { take: ("/api/v1/locks/", "/leases"), give_back: ("/api/v1/locks/", "/lease") };
}

/// Leases per second over all connections, and how many requests failed.
async fn rate(address: SocketAddr, paths: Paths, span: Duration) -> (f64, u32) {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(address).await);
    }
    let start = Instant::now();
    let tasks: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(n, client)| tokio::spawn(leases(client, paths, format!("http-{n}"), start + span)))
        .collect();
    let (mut done, mut failed) = (0, 0);
    for task in tasks {
        let (some, bad) = task.await.expect("no task panics");
        (done, failed) = (done + some, failed + bad);
    }
    (f64::from(done) / start.elapsed().as_secs_f64(), failed)
}

/// Takes and gives back one lease after the other until then.
async fn leases(mut client: Client, paths: Paths, key: String, until: Instant) -> (u32, u32) {
    let take = format!("POST {}{key}{}", paths.take.0, paths.take.1);
    let give_back = format!("DELETE {}{key}{}", paths.give_back.0, paths.give_back.1);
    let (mut done, mut failed) = (0, 0);
    while Instant::now() < until {
        let (status, body) = client.send(&take, "").await;
        let id = body.split("\"leaseId\":\"").nth(1).and_then(|rest| rest.get(..32));
        let Some(id) = id.filter(|_| status == 201) else {
            failed += 1;
            continue;
        };
        let (status, _) = client.send(&give_back, &format!("Lease-Id: {id}\r\n")).await;
        if status == 204 {
            done += 1;
        } else {
            failed += 1;
        }
    }
    (done, failed)
}

/// How many requests waited at the same time, and how many KiB each cost the service.
async fn waiters(url: &str) -> (u64, f64) {
    let address = service(url, false).await;
    let locks = Locks::connect(url).expect("our own URL is valid");
    let held = locks.mutex("crowded").expect("a key").lock().await.expect("it is free");
    allow_more_files();
    let before = resident_kib();
    let body = "{\"waitMs\":55000}";
    let request = format!(
        "POST /api/v1/locks/crowded/leases HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // Clients that are nothing but a socket: what is measured is the service.
    let mut clients = Vec::new();
    for _ in 0..WAITERS {
        let mut client = TcpStream::connect(address).expect("our own server listens");
        client.write_all(request.as_bytes()).expect("our own server reads");
        clients.push(client);
    }
    let begun = Instant::now();
    let mut waiting = 0;
    while waiting < WAITERS && begun.elapsed() < QUEUE_MAX {
        tokio::time::sleep(Duration::from_millis(20)).await;
        waiting = locks.inspect("crowded").await.map_or(0, |seen| seen.waiters_total);
    }
    let after = resident_kib();
    drop(clients);
    held.release().await.expect("it was held");
    (waiting, (after - before) / waiting as f64)
}

/// Both ends of every connection are files of this process.
fn allow_more_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the soft limit may reach the hard one");
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    size.unwrap_or(f64::NAN)
}
