//! Everything has a bound, and whoever meets it is told when to come back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::{On, PATH, Service, lease_id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_a_token_are_bounded() {
    let service = Service::with(On::Memory, |config| config.waiters_max = 2).await;
    let held = service.lease(json!({})).await.is(201).text_of("leaseId");
    let wait = || service.lease(json!({"waitMs": 20_000}));
    let flooding = async {
        service.until_waiting(2).await;
        let refused = wait().await.is(429);
        assert_eq!(refused.header("retry-after"), "1");
        // Whoever does not wait is not refused for it.
        service.lease(json!({})).await.is(409);
        service.release(&held).await.is(204);
    };
    let one = async {
        let granted = wait().await.is(201).text_of("leaseId");
        service.release(&granted).await.is(204);
    };
    let two = async {
        let granted = wait().await.is(201).text_of("leaseId");
        service.release(&granted).await.is(204);
    };
    tokio::join!(one, two, flooding);
}

#[tokio::test]
async fn leases_of_a_token_are_bounded() {
    let service = Service::with(On::Memory, |config| config.leases_max = 2).await;
    let take = |key: &str, ttl: u64| {
        let path = format!("/api/v1/locks/{key}/leases");
        let body = json!({"ttlMs": ttl, "leaseId": lease_id()});
        let service = &service;
        async move { service.send("POST", &path, body).await }
    };
    take("short", 100).await.is(201);
    let long = take(PATH, 60_000).await.is(201).text_of("leaseId");
    take("third", 60_000).await.is(429);
    // What has ended by itself counts no more, nor does what was released.
    tokio::time::sleep(Duration::from_millis(150)).await;
    take("third", 60_000).await.is(201);
    take("fourth", 60_000).await.is(429);
    service.release(&long).await.is(204);
    take("fourth", 60_000).await.is(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_does_not_end_is_cut_off() {
    let service = Service::on(On::Memory).await;
    let address = service.address;
    let cut = tokio::task::spawn_blocking(move || {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(client, "GET /health HTTP/1.1\r\nHost: localhost\r\n").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).map(|_| answer)
    });
    let large = "x".repeat(64 * 1024);
    let request = service.request("GET", "/health").header("x-large", large);
    // Refused by a status or by hanging up, whichever comes first.
    let answer = request.send().await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status() == 431));
    let answer = cut.await.unwrap().unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "an answer to half a question");
    service.get("/health").await.is(200);
}

#[tokio::test]
async fn connections_are_bounded_and_wait_their_turn() {
    let service = Service::with(On::Memory, |config| config.connections_max = 1).await;
    let first = TcpStream::connect(service.address).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = service.request("GET", "/health").timeout(Duration::from_millis(300)).send().await;
    assert!(late.is_err(), "a second connection was served");
    drop(first);
    service.get("/health").await.is(200);
}
