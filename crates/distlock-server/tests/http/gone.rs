//! Clients that go away: what they waited for or were granted is free at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{PATH, Service, on_every_store};

/// What the service promises is 200 ms. On a machine that has other things to do each single time
/// may take longer, but never nearly as long as if no client had noticed; the quickest may not.
const SOON: Duration = Duration::from_millis(1_000);
const AT_ALL: Duration = Duration::from_secs(10);

/// For how long after an answer the service takes a reset for a client that died with it unread,
/// less what it needs itself. A test that is later than that has nothing to say.
const IN_TRANSIT: Duration = Duration::from_millis(500);

/// How often something is tried that a slow machine can spoil.
const TRIES_MAX: usize = 20;

on_every_store!(
    a_killed_waiter_loses_its_place_at_once,
    a_client_that_closes_while_queued_loses_its_place_at_once,
    a_grant_that_was_never_read_is_undone_at_once,
    a_reset_by_a_proxy_takes_nothing_away,
    a_grant_to_a_client_that_just_left_is_undone_at_once,
    a_grant_that_was_read_stays,
);

/// A curl that asks for a lease and waits for it.
fn curl(service: &Service) -> Child {
    Command::new("curl")
        .args(["-sS", "-X", "POST", "-H", "content-type: application/json"])
        .args(["-d", r#"{"waitMs":50000,"owner":"curl","ttlMs":600000}"#])
        .arg(service.url(&format!("/api/v1/locks/{PATH}/leases")))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("curl is on the PATH: `make setup` installs it")
}

/// It does nothing more, not even read, until it is killed.
fn stop(child: &Child) {
    let done = Command::new("kill").args(["-STOP", &child.id().to_string()]).status();
    assert!(done.unwrap().success());
}

/// How long several tries took.
struct Tries {
    what: &'static str,
    quickest: Duration,
}

impl Tries {
    fn of(what: &'static str) -> Self {
        Self { what, quickest: Duration::MAX }
    }

    /// One of them is over, that began then.
    fn over(&mut self, since: Instant) {
        let (what, took) = (self.what, since.elapsed());
        println!("{what} after {:.1} ms", took.as_secs_f64() * 1_000.0);
        assert!(took < AT_ALL, "{what} only after {took:?}");
        self.quickest = self.quickest.min(took);
    }

    fn were_soon(self) {
        let Self { what, quickest } = self;
        assert!(quickest < SOON, "{what} after {quickest:?} at the earliest");
    }
}

async fn a_killed_waiter_loses_its_place_at_once(service: Service) {
    service.lease(json!({"ttlMs": 600_000})).await.is(201);
    let mut tries = Tries::of("curl killed while queued: its place was gone");
    for _ in 0..4 {
        let mut waiter = curl(&service);
        service.until_waiting(1).await;
        let killed = Instant::now();
        waiter.kill().unwrap();
        service.until("left", |lock| lock["waitersTotal"] == 0).await;
        tries.over(killed);
        waiter.wait().unwrap();
    }
    tries.were_soon();
}

/// The answer lies in the client's buffer when the client dies, or is about to come: its system
/// resets the connection.
async fn a_grant_that_was_never_read_is_undone_at_once(service: Service) {
    // From before the answer is written to long after, and much less than the service remembers it.
    let mut tries = Tries::of("curl killed with its grant unread: the key was free");
    let (mut pauses, mut tried) = ([0, 1, 10, 100].into_iter().peekable(), 0);
    while let Some(pause_ms) = pauses.peek() {
        tried += 1;
        assert!(tried <= TRIES_MAX, "the machine is too slow to tell");
        let held = service.lease(json!({"ttlMs": 600_000})).await.is(201).text_of("leaseId");
        let mut waiter = curl(&service);
        service.until_waiting(1).await;
        stop(&waiter);
        let released = Instant::now();
        service.release(&held).await.is(204);
        service.until("granted", |lock| lock["holders"][0]["owner"] == "curl").await;
        tokio::time::sleep(Duration::from_millis(*pause_ms)).await;
        let killed = Instant::now();
        waiter.kill().unwrap();
        waiter.wait().unwrap();
        if released.elapsed() > IN_TRANSIT {
            println!("{:?} after the release: too late to tell", released.elapsed());
            break_hold(&service).await;
            continue;
        }
        service.until_free().await;
        tries.over(killed);
        pauses.next();
    }
    tries.were_soon();
}

/// Takes the key away from the client that has it, if anybody does.
async fn break_hold(service: &Service) {
    let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    if let Some(fence) = seen.json["holders"][0]["fence"].as_u64() {
        let body = json!({"fence": fence, "reason": "test"});
        service.send("POST", &format!("/api/v1/locks/{PATH}/break"), body).await;
    }
    service.until_free().await;
}

/// A proxy has read the answer and passed it on when it resets the connection.
async fn a_reset_by_a_proxy_takes_nothing_away(service: Service) {
    let mut proxy = TcpStream::connect(service.address).unwrap();
    let body = r#"{"owner":"behind","ttlMs":600000}"#;
    write!(
        proxy,
        "POST /api/v1/locks/{PATH}/leases HTTP/1.1\r\nHost: localhost\r\nVia: 1.1 proxy\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut head = [0; 12];
    proxy.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 201");
    // Closed with the rest unread, as one that lingers for no time is: a reset.
    drop(proxy);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    assert_eq!(seen.json["holders"][0]["owner"], "behind");
}

fn connect(service: &Service) -> TcpStream {
    let mut client = TcpStream::connect(service.address).unwrap();
    let body = r#"{"waitMs":50000,"owner":"raw","ttlMs":600000}"#;
    write!(
        client,
        "POST /api/v1/locks/{PATH}/leases HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    client
}

async fn a_client_that_closes_while_queued_loses_its_place_at_once(service: Service) {
    service.lease(json!({"ttlMs": 600_000})).await.is(201);
    let mut tries = Tries::of("closed while queued: its place was gone");
    for _ in 0..3 {
        let client = connect(&service);
        service.until_waiting(1).await;
        let closed = Instant::now();
        drop(client);
        service.until("left", |lock| lock["waitersTotal"] == 0).await;
        tries.over(closed);
    }
    tries.were_soon();
}

/// The end of the client and the grant race each other. In both cases the key is free in the end.
async fn a_grant_to_a_client_that_just_left_is_undone_at_once(service: Service) {
    let mut tries = Tries::of("closed as it was granted: the key was free");
    for pause_us in [0, 50, 100, 200, 400, 800, 1_600, 3_200] {
        let held = service.lease(json!({"ttlMs": 600_000})).await.is(201).text_of("leaseId");
        let client = connect(&service);
        service.until_waiting(1).await;
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(pause_us));
            drop(client);
            Instant::now()
        });
        service.release(&held).await.is(204);
        service.until_free().await;
        tries.over(leaving.join().unwrap());
    }
    tries.were_soon();
}

/// A client that read its answer and closed, as every curl does, keeps its lease.
async fn a_grant_that_was_read_stays(service: Service) {
    let read_and_close = || {
        let mut client = connect(&service);
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains("waitedMs") {
            let mut some = [0; 1_024];
            let count = client.read(&mut some).unwrap();
            assert!(count > 0, "the answer ended early");
            answer.extend_from_slice(&some[..count]);
        }
        answer
    };
    let answer = tokio::task::block_in_place(read_and_close);
    assert!(answer.starts_with(b"HTTP/1.1 201"));
    // Longer than a grant is in doubt.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    assert_eq!(seen.json["holders"][0]["owner"], "raw", "{}", seen.text);

    let output = curl(&service);
    service.until_waiting(1).await;
    let fence = seen.json["holders"][0]["fence"].clone();
    let path = format!("/api/v1/locks/{PATH}/break");
    service.send("POST", &path, json!({"fence": fence, "reason": "test"})).await.is(204);
    let answer = tokio::task::block_in_place(|| output.wait_with_output().unwrap());
    assert!(String::from_utf8_lossy(&answer.stdout).contains("leaseId"));
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    assert_eq!(seen.json["holders"][0]["owner"], "curl", "{}", seen.text);
}
