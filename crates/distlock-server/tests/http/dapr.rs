//! Dapr's lock API, at the level of its protocol.

use serde_json::{Value, json};

use crate::support::{Answer, On, Service, on_every_store, tokens};

on_every_store!(
    an_owner_locks_and_unlocks,
    a_lock_that_is_taken_is_refused_even_to_its_owner,
    unlock_tells_what_it_found,
);

async fn lock(service: &Service, body: Value) -> Answer {
    service.send("POST", "/v1.0-alpha1/lock/lockstore", body).await
}

async fn unlock(service: &Service, resource: &str, owner: &str) -> Value {
    let body = json!({"resourceId": resource, "lockOwner": owner});
    service.send("POST", "/v1.0-alpha1/unlock/lockstore", body).await.is(200).json
}

fn ask(resource: &str, owner: &str) -> Value {
    json!({"resourceId": resource, "lockOwner": owner, "expiryInSeconds": 60})
}

async fn an_owner_locks_and_unlocks(service: Service) {
    for _ in 0..2 {
        assert_eq!(lock(&service, ask("r", "one")).await.is(200).json, json!({"success": true}));
        assert_eq!(unlock(&service, "r", "one").await, json!({"status": 0}));
    }
    // Any text will do for an owner.
    for owner in ["é\n\"x\"", &"y".repeat(1_000)] {
        assert_eq!(lock(&service, ask("r", owner)).await.json, json!({"success": true}));
        assert_eq!(unlock(&service, "r", owner).await, json!({"status": 0}));
    }
}

async fn a_lock_that_is_taken_is_refused_even_to_its_owner(service: Service) {
    assert_eq!(lock(&service, ask("r", "one")).await.json["success"], true);
    assert_eq!(lock(&service, ask("r", "two")).await.is(200).json, json!({"success": false}));
    assert_eq!(lock(&service, ask("r", "one")).await.is(200).json, json!({"success": false}));
    assert_eq!(lock(&service, ask("s", "one")).await.json["success"], true);
    let short = json!({"resourceId": "t", "lockOwner": "one", "expiryInSeconds": 1});
    assert_eq!(lock(&service, short).await.json["success"], true);
    let again = || lock(&service, ask("t", "two"));
    let begun = std::time::Instant::now();
    while again().await.json["success"] == false {
        assert!(begun.elapsed() < crate::support::PATIENCE, "it never expires");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() > std::time::Duration::from_millis(500), "it expired early");
}

async fn unlock_tells_what_it_found(service: Service) {
    assert_eq!(unlock(&service, "r", "one").await, json!({"status": 1}));
    lock(&service, ask("r", "one")).await.is(200);
    assert_eq!(unlock(&service, "r", "two").await, json!({"status": 2}));
    assert_eq!(unlock(&service, "r", "one").await, json!({"status": 0}));
    // A client who shows the same label has not locked it through Dapr.
    let path = "/api/v1/locks/dapr%2Flockstore%2Fr/leases";
    service.send("POST", path, json!({"owner": "one", "reason": "dapr 1"})).await.is(201);
    assert_eq!(unlock(&service, "r", "one").await, json!({"status": 2}));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_its_own_words() {
    let service = Service::on(On::Memory).await;
    for (status, code, body) in [
        (400, "ERR_RESOURCE_ID_EMPTY", ask("", "one")),
        (400, "ERR_OWNER_EMPTY", ask("r", "")),
        (400, "ERR_RESOURCE_ID_EMPTY", json!({"lockOwner": "one", "expiryInSeconds": 1})),
        (400, "ERR_EXPIRY_NOT_POSITIVE", json!({"resourceId": "r", "lockOwner": "one"})),
        (400, "ERR_EXPIRY_NOT_POSITIVE", {
            json!({"resourceId": "r", "lockOwner": "one", "expiryInSeconds": -5})
        }),
        (400, "ERR_RESOURCE_ID_EMPTY", json!({})),
        (400, "ERR_MALFORMED_REQUEST", json!([])),
        (400, "ERR_MALFORMED_REQUEST", ask(&"x".repeat(600), "one")),
    ] {
        let refused = lock(&service, body).await.is(status);
        assert_eq!(refused.text_of("errorCode"), code);
        assert!(!refused.text_of("message").is_empty());
    }
    let path = "/v1.0-alpha1/lock/elsewhere";
    let unknown = service.send("POST", path, ask("r", "one")).await.is(404);
    assert_eq!(unknown.text_of("errorCode"), "ERR_LOCK_STORE_NOT_FOUND");
    service.send("POST", "/v1.0-alpha1/unlock/elsewhere", ask("r", "one")).await.is(404);
    let metadata = service.get("/v1.0/metadata").await.is(200);
    assert_eq!(metadata.json["components"][0]["name"], "lockstore");
}

#[tokio::test]
async fn dapr_presents_its_token_in_a_header_of_its_own() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    lock(&service, ask("r", "one")).await.is(401);
    let request = service.request("POST", "/v1.0-alpha1/lock/lockstore").json(&ask("r", "one"));
    let request = request.header("dapr-api-token", crate::support::ADMIN);
    assert_eq!(Answer::of(request).await.is(200).json, json!({"success": true}));
}
