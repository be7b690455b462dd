//! One service answers all eight patterns, with a quorum of its own for `redlock`.

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use serde_json::json;

use crate::support::{ADMIN, Answer, Service, tokens};

const PATTERNS: [&str; 8] =
    ["simple", "retry", "watchdog", "reentrant", "read", "write", "fair", "redlock"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_service_answers_all_eight_patterns() {
    let backend = RedisServer::start();
    let mut nodes: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let urls: Vec<_> = nodes.iter().map(|node| format!("node={}", node.url())).collect();
    let quorum = format!("quorum:?{}&node_timeout_ms=5000", urls.join("&"));
    let locks = Locks::connect(&backend.url()).unwrap();
    let service = Service::over(locks, |config| {
        config.redlock = Some(Locks::connect(&quorum).unwrap());
        config.tokens = tokens();
    })
    .await;
    let ask = async |method: &str, path: &str, body: serde_json::Value| {
        Answer::of(service.request(method, path).bearer_auth(ADMIN).json(&body)).await
    };
    for pattern in PATTERNS {
        let path = format!("/api/locks/{pattern}/r");
        let done = ask("POST", &path, json!({"durationMs": 10})).await.is(200);
        assert!(done.number_of("fence") > 0, "{pattern}: {}", done.text);
    }

    let ready = ask("GET", "/readyz", json!(null)).await.is(200);
    let names: Vec<_> =
        ready.json["checks"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["backend", "redlock", "accepting"]);
    let summary = ask("GET", "/api/v1/summary", json!(null)).await.is(200);
    assert_eq!(summary.json["redlock"]["nodesUp"], 3, "{}", summary.text);
    assert_eq!(summary.json["backend"]["ok"], true, "{}", summary.text);

    // A quorum that is down stops the pattern that needs it, and no other.
    nodes.iter_mut().take(2).for_each(RedisServer::kill);
    let refused = ask("POST", "/api/locks/redlock/r", json!({"durationMs": 10})).await.is(503);
    assert_eq!(refused.text_of("error"), "Quorum not reached");
    ask("POST", "/api/locks/simple/r", json!({"durationMs": 10})).await.is(200);
    let ready = ask("GET", "/readyz", json!(null)).await.is(503);
    assert_eq!(
        (&ready.json["checks"][0]["ok"], &ready.json["checks"][1]["ok"]),
        (&json!(true), &json!(false))
    );
}
