//! Everything has a bound, and the client that meets it is told when to come back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Answer, On, PATH, PATIENCE, Service, lease_id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_a_token_are_bounded() {
    let service = Service::with(On::Memory, |config| config.waiters_max = 2).await;
    let held = service.lease(json!({})).await.is(201).text_of("leaseId");
    let wait = || service.lease(json!({"waitMs": 20_000}));
    let flooding = async {
        service.until_waiting(2).await;
        let refused = wait().await.is(429);
        assert_eq!(refused.header("retry-after"), "1");
        // A client that does not wait is not refused for it.
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
    take("short", 4_000).await.is(201);
    let long = take(PATH, 60_000).await.is(201).text_of("leaseId");
    take("third", 60_000).await.is(429);
    // What has ended by itself counts no more, nor does what was released.
    let begun = Instant::now();
    while take("third", 60_000).await.status != 201 {
        assert!(begun.elapsed() < PATIENCE, "what has ended still counts");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    take("fourth", 60_000).await.is(429);
    service.release(&long).await.is(204);
    take("fourth", 60_000).await.is(201);
}

#[tokio::test]
async fn one_lease_id_on_two_keys_is_two_leases() {
    let service = Service::with(On::Memory, |config| config.leases_max = 2).await;
    let id = lease_id();
    let take = |key: &str, id: &str, owner: &str| {
        let path = format!("/api/v1/locks/{key}/leases");
        let body = json!({"leaseId": id, "owner": owner, "ttlMs": 60_000});
        let service = &service;
        async move { service.send("POST", &path, body).await }
    };
    take(PATH, &id, "anna").await.is(201);
    take("other", &id, "bob").await.is(201);
    take("third", &lease_id(), "carl").await.is(429);
    assert_eq!(service.renew(&id).await.is(200).text_of("owner"), "anna");
    let other = service.request("DELETE", "/api/v1/locks/other/lease").header("Lease-Id", &id);
    Answer::of(other).await.is(204);
    assert_eq!(service.renew(&id).await.is(200).text_of("owner"), "anna");
    take("third", &lease_id(), "carl").await.is(201);
    take("fourth", &lease_id(), "carl").await.is(429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_asked_for_at_the_same_time_are_bounded_exactly() {
    const MAX: usize = 5;
    let service = Service::with(On::Redis, |config| config.leases_max = MAX).await;
    let take = |key: String, id: Option<String>| {
        let body = json!({"ttlMs": 60_000, "leaseId": id});
        let service = &service;
        async move { service.send("POST", &format!("/api/v1/locks/{key}/leases"), body).await }
    };
    for round in 0..3 {
        // Every second of them lets the service draw the id.
        let id = |n: usize| n.is_multiple_of(2).then(lease_id);
        let asked = (0..40).map(|n| take(format!("{round}-{n}"), id(n)));
        let answers = futures_util::future::join_all(asked).await;
        let granted: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
        let refused = answers.iter().filter(|answer| answer.status == 429).count();
        assert_eq!((granted.len(), refused), (MAX, 40 - MAX), "in round {round}");
        // A client that repeats a request for a lease that is there is not refused for it.
        let (key, id) = (granted[0].text_of("key"), granted[0].text_of("leaseId"));
        take(key, Some(id)).await.is(200);
        for lease in granted {
            let path = format!("/api/v1/locks/{}/lease", lease.text_of("key"));
            let release = service.request("DELETE", &path);
            let release = release.header("lease-id", lease.text_of("leaseId"));
            Answer::of(release).await.is(204);
        }
    }
}

#[tokio::test]
async fn locks_of_terraform_and_dapr_count_as_leases() {
    let service = Service::with(On::Memory, |config| config.leases_max = 1).await;
    let dapr = |verb: &str, resource: &str| {
        let body = json!({"resourceId": resource, "lockOwner": "me", "expiryInSeconds": 600});
        let path = format!("/v1.0-alpha1/{verb}/lockstore");
        let service = &service;
        async move { service.send("POST", &path, body).await }
    };
    let terraform = |method: &'static str, name: &str| {
        let path = format!("/api/compat/terraform/{name}");
        let service = &service;
        async move { service.send(method, &path, json!({"ID": "one", "Who": "me"})).await }
    };
    assert_eq!(dapr("lock", "a").await.is(200).json["success"], true);
    dapr("lock", "b").await.is(429);
    terraform("LOCK", "a").await.is(429);
    assert_eq!(dapr("unlock", "a").await.is(200).json["status"], 0);
    terraform("LOCK", "a").await.is(200);
    terraform("LOCK", "a").await.is(200);
    terraform("LOCK", "b").await.is(429);
    service.lease(json!({})).await.is(429);
    // A lock that an operator takes away counts no more.
    Answer::of(service.request("UNLOCK", "/api/compat/terraform/a")).await.is(200);
    let lease = service.lease(json!({})).await.is(201);
    let broken = json!({"fence": lease.number_of("fence"), "reason": "test"});
    service.send("POST", &format!("/api/v1/locks/{PATH}/break"), broken).await.is(204);
    terraform("LOCK", "b").await.is(200);
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
