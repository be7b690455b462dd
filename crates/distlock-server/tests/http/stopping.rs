//! Stopping: a client that waits is sent away, what the service keeps is released, leases stay.

use std::time::Instant;

use serde_json::json;

use crate::support::{PATH, PATIENCE, Service, on_every_store};

on_every_store!(a_service_stops_without_losing_anything);

async fn a_service_stops_without_losing_anything(mut service: Service) {
    let lease = service.lease(json!({"ttlMs": 60_000})).await.is(201).text_of("leaseId");
    // A service of its own over the same locks would be closed with them: looks go through another.
    let waiting = service.request("POST", &format!("/api/v1/locks/{PATH}/leases"));
    let waiting = tokio::spawn(waiting.json(&json!({"waitMs": 50_000})).send());
    let running = service.request("POST", "/api/locks/simple/r");
    let running = tokio::spawn(running.json(&json!({"durationMs": 20_000})).send());
    let stream = service.client.get(service.url("/api/v1/events")).send().await.unwrap();
    service.until_waiting(1).await;
    service.renew(&lease).await.is(200);

    let begun = Instant::now();
    service.stop.cancel();
    let sent_away = waiting.await.unwrap().unwrap();
    assert_eq!(sent_away.status(), 503);
    assert_eq!(running.await.unwrap().unwrap().status(), 503);
    let ended = tokio::time::timeout(PATIENCE, stream.bytes()).await;
    assert!(ended.is_ok(), "the stream of events goes on");
    service.running.take().unwrap().await.unwrap().unwrap();
    // A client that waits would have waited for fifty seconds.
    assert!(begun.elapsed() < PATIENCE, "it took {:?}", begun.elapsed());

    assert!(service.client.get(service.url("/health")).send().await.is_err(), "it still answers");
    // The operation's lock is free, the client's lease is not.
    assert!(service.locks.inspect("r").await.unwrap().is_free());
    let kept = service.locks.inspect(crate::support::KEY).await.unwrap();
    assert_eq!((kept.holders_total, kept.waiters_total), (1, 0));
}
