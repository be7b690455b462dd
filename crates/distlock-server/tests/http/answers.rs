//! Requests that make no sense are refused, each with its status and without a trace.

use serde_json::{Value, json};

use crate::support::{Answer, On, PATH, Service, lease_id};

#[tokio::test]
async fn bad_bodies_are_refused_by_kind() {
    let service = Service::on(On::Memory).await;
    for (status, body) in [
        (400, json!({"onwer": "typo"})),
        (400, json!({"ttlMs": "30s"})),
        (400, json!({"mode": "exlusive"})),
        (400, json!([])),
        (400, json!({"permits": -1})),
        (422, json!({"ttlMs": 0})),
        (422, json!({"ttlMs": 99})),
        (422, json!({"ttlMs": 86_400_001})),
        (422, json!({"waitMs": 55_001})),
        (422, json!({"owner": ""})),
        (422, json!({"owner": "a\nb"})),
        (422, json!({"owner": "x".repeat(257)})),
        (422, json!({"reason": "x".repeat(257)})),
        (422, json!({"leaseId": "short"})),
        (422, json!({"leaseId": "0".repeat(32)})),
        (422, json!({"keepPlace": true})),
        (422, json!({"permits": 2})),
        (422, json!({"permits": 4, "limit": 3})),
        (422, json!({"permits": 0, "limit": 3})),
        (422, json!({"mode": "shared", "limit": 3})),
    ] {
        let answer = service.lease(body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
    }
    assert_eq!(service.get("/api/v1/locks").await.json["locks"], json!([]));
}

#[tokio::test]
async fn a_body_must_be_json_and_small() {
    let service = Service::on(On::Memory).await;
    let path = format!("/api/v1/locks/{PATH}/leases");
    let post = |body: String, kind: &'static str| {
        service.request("POST", &path).header("content-type", kind).body(body)
    };
    Answer::of(post("{".into(), "application/json")).await.is(400);
    Answer::of(post("{}".into(), "text/plain")).await.is(415);
    Answer::of(post("{}".into(), "application/json; charset=utf-8")).await.is(201);
    let large = format!("{{\"owner\":\"{}\"}}", "x".repeat(65 * 1024));
    Answer::of(post(large, "application/json")).await.is(413);
}

#[tokio::test]
async fn keys_are_any_text_of_up_to_512_bytes() {
    let service = Service::on(On::Memory).await;
    for key in ["a", "a%20b", "%7B%7D", "%C3%A9", "a%00b", "%25", "%2F", &"x".repeat(512)] {
        let path = format!("/api/v1/locks/{key}/leases");
        let granted = service.send("POST", &path, Value::Null).await.is(201);
        let path = granted.header("location").to_owned();
        let id = granted.text_of("leaseId");
        let request = service.request("DELETE", &path).header("lease-id", id);
        Answer::of(request).await.is(204);
    }
    for (status, key) in [(422, "x".repeat(513)), (400, "%FF".to_owned())] {
        let path = format!("/api/v1/locks/{key}/leases");
        service.send("POST", &path, Value::Null).await.is(status);
        service.get(&format!("/api/v1/locks/{key}")).await.is(status);
    }
}

#[tokio::test]
async fn a_lease_id_stands_in_its_header_and_is_never_repeated() {
    let service = Service::on(On::Memory).await;
    let path = format!("/api/v1/locks/{PATH}/lease");
    service.send("PUT", &path, Value::Null).await.is(400);
    service.send("DELETE", &path, Value::Null).await.is(400);
    let almost = &lease_id()[..31];
    for method in ["PUT", "DELETE"] {
        let request = service.request(method, &path).header("lease-id", almost);
        let refused = Answer::of(request).await.is(422);
        assert!(!refused.text.contains(almost), "{}", refused.text);
    }
    service.renew(&lease_id()).await.is(410);
}

#[tokio::test]
async fn unknown_paths_methods_and_options_are_refused() {
    let service = Service::on(On::Memory).await;
    let missing = service.get("/nowhere").await.is(404);
    assert_eq!(missing.text_of("error"), "Not Found");
    let wrong = service.send("PUT", "/health", Value::Null).await.is(405);
    assert!(wrong.header("allow").contains("GET"));
    service.get("/api/v1/locks?prefx=a").await.is(400);
    service.get(&format!("/api/v1/locks/{PATH}/history?limit=0")).await.is(422);
    service.send("POST", "/api/locks/nothing/r", Value::Null).await.is(404);
    service.get(&format!("/api/v1/locks?prefix={}", "x".repeat(513))).await.is(422);
    let request = service.request("GET", "/api/v1/events").header("last-event-id", "a b");
    Answer::of(request).await.is(422);
}

#[tokio::test]
async fn the_service_says_that_it_is_alive() {
    let service = Service::on(On::Memory).await;
    let alive = service.get("/health").await.is(200);
    assert_eq!(alive.json, json!({"status": "ok", "service": "distributed-lock"}));
    assert_eq!(service.get("/livez").await.is(200).text, "ok\n");
    let ready = service.get("/readyz").await.is(200);
    assert_eq!(ready.json["checks"][0]["name"], "backend");
    let document = service.get("/api/openapi.json").await.is(200);
    assert_eq!(document.json["openapi"], "3.1.0");
    assert!(document.json["paths"]["/api/v1/locks/{key}/leases"]["post"].is_object());
    for (path, kind) in [
        ("/api/docs", "text/html"),
        ("/api/docs.js", "text/javascript"),
        ("/api/docs.css", "text/css"),
    ] {
        let page = service.get(path).await.is(200);
        assert!(page.header("content-type").starts_with(kind));
        assert!(!page.text.contains("//cdn") && !page.text.contains("https://"), "{path}");
    }
}
