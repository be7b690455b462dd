//! Clients that go away: what they waited for or were granted is free at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{PATH, Service, on_every_store};

/// What the service promises is 200 ms; the rest is for a machine that has other things to do.
const SOON: Duration = Duration::from_millis(2_000);

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

/// Says how long it took since then, and that it was soon.
fn was_soon(what: &str, since: Instant) {
    let took = since.elapsed();
    println!("{what} after {:.1} ms", took.as_secs_f64() * 1_000.0);
    assert!(took < SOON, "{what} only after {took:?}");
}

async fn a_killed_waiter_loses_its_place_at_once(service: Service) {
    service.lease(json!({"ttlMs": 600_000})).await.is(201);
    for _ in 0..4 {
        let mut waiter = curl(&service);
        service.until_waiting(1).await;
        let killed = Instant::now();
        waiter.kill().unwrap();
        service.until("left", |lock| lock["waitersTotal"] == 0).await;
        was_soon("curl killed while queued: its place was gone", killed);
        waiter.wait().unwrap();
    }
}

/// The answer lies in the client's buffer when the client dies, or is about to come: its system
/// resets the connection.
async fn a_grant_that_was_never_read_is_undone_at_once(service: Service) {
    // From before the answer is written to long after, and much less than the service remembers it.
    for pause_ms in [0, 1, 10, 100] {
        let held = service.lease(json!({"ttlMs": 600_000})).await.is(201).text_of("leaseId");
        let mut waiter = curl(&service);
        service.until_waiting(1).await;
        stop(&waiter);
        service.release(&held).await.is(204);
        service.until("granted", |lock| lock["holders"][0]["owner"] == "curl").await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let killed = Instant::now();
        waiter.kill().unwrap();
        service.until_free().await;
        was_soon(&format!("curl killed {pause_ms} ms after its grant: the key was free"), killed);
        waiter.wait().unwrap();
    }
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
    let client = connect(&service);
    service.until_waiting(1).await;
    let closed = Instant::now();
    drop(client);
    service.until("left", |lock| lock["waitersTotal"] == 0).await;
    was_soon("closed while queued: its place was gone", closed);
}

/// The end of the client and the grant race each other. Whoever wins, the key is free in the end.
async fn a_grant_to_a_client_that_just_left_is_undone_at_once(service: Service) {
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
        let free = Instant::now();
        let took = free.saturating_duration_since(leaving.join().unwrap());
        println!("closed as it was granted: free after {:.1} ms", took.as_secs_f64() * 1_000.0);
        assert!(took < SOON, "with {pause_us} us: the grant was kept for {took:?}");
    }
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
