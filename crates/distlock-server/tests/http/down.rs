//! A backend that is down, or silent: told apart, and told honestly.

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use serde_json::json;

use crate::support::{PATH, Service, lease_id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_down_is_unavailable() {
    let mut server = RedisServer::start();
    let service = Service::over(Locks::connect(&server.url()).unwrap(), |_| {}).await;
    let id = service.lease(json!({})).await.is(201).text_of("leaseId");
    service.get("/api/v1/summary").await.is(200);
    server.kill();
    // The first call may find the connection broken while it is on its way.
    service.lease(json!({})).await;
    let refused = service.lease(json!({})).await.is(503);
    assert_eq!(refused.text_of("error"), "Backend unavailable");
    assert_eq!(refused.header("retry-after"), "1");
    service.lease(json!({"waitMs": 200})).await.is(503);
    service.get("/api/v1/locks").await.is(503);
    service.get(&format!("/api/v1/locks/{PATH}")).await.is(503);
    service.send("POST", "/api/locks/simple/r", json!({})).await.is(503);
    let ready = service.get("/readyz").await.is(503);
    assert_eq!(ready.json["checks"][0]["ok"], false);
    assert!(ready.json["checks"][0].get("warnings").is_none(), "{}", ready.text);
    service.get("/health").await.is(200);
    service.get("/livez").await.is(200);
    // The last rows are kept, with the time since when they are old.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let summary = service.get("/api/v1/summary").await.is(200);
    assert_eq!(summary.json["backend"]["ok"], false);
    assert!(summary.json["backend"]["downSinceMs"].is_u64(), "{}", summary.text);
    assert_eq!(summary.number_of("held"), 1);

    server.restart();
    service.until("back", |lock| lock["state"].is_string()).await;
    // Without a token the answer is up to a second old.
    while service.get("/readyz").await.status != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    service.renew(&id).await.is(410);
    service.lease(json!({})).await.is(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_nobody_knows_is_said_to_be_unknown() {
    let server = RedisServer::start();
    let url = format!("{}?response_timeout_ms=1500", server.url());
    let service = Service::over(Locks::connect(&url).unwrap(), |_| {}).await;
    let (id, held) = (lease_id(), service.lease(json!({})).await.is(201).text_of("leaseId"));
    server.pause();
    let unknown = service.lease(json!({"leaseId": id})).await.is(504);
    assert_eq!(unknown.text_of("error"), "Outcome unknown");
    service.renew(&held).await.is(504);
    service.release(&held).await.is(504);
    server.resume();
    service.until("back", |lock| lock["state"].is_string()).await;
    // Whatever became of the release, repeating it settles it.
    let settled = service.release(&held).await.status;
    assert!([204, 410].contains(&settled), "{settled}");
    let granted = service.lease(json!({"leaseId": id, "waitMs": 5_000})).await;
    assert!([200, 201].contains(&granted.status), "{}", granted.text);
}
