//! Leaders, once and as a stream; and leases of several keys in one request.

use std::time::Duration;

use serde_json::json;

use crate::support::{PATIENCE, Service, on_every_store};

on_every_store!(
    the_leader_and_the_candidates_in_line_are_shown,
    a_stream_tells_of_every_leader,
    several_keys_are_granted_together_or_not_at_all,
);

const LEADER: &str = "/api/v1/locks/duty/leader";

async fn the_leader_and_the_candidates_in_line_are_shown(service: Service) {
    let vacant = service.get(LEADER).await.is(200);
    assert!(vacant.json.get("leader").is_none(), "{}", vacant.text);
    let locks = service.locks.configure(|o| o.owner("node-1").reason("duty")).unwrap();
    let leadership = locks.election("duty").unwrap().campaign().await.unwrap();
    let next = service.locks.configure(|o| o.owner("node-2")).unwrap();
    let waiting = tokio::spawn(async move { next.election("duty").unwrap().campaign().await });
    while service.locks.election("duty").unwrap().standby().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seen = service.get(LEADER).await.is(200);
    assert_eq!(seen.json["leader"]["name"], "node-1");
    assert_eq!(seen.json["leader"]["reason"], "duty");
    assert_eq!(seen.json["leader"]["term"], leadership.term());
    assert_eq!(seen.json["standby"], json!(["node-2"]));
    leadership.resign().await.unwrap();
    let leadership = waiting.await.unwrap().unwrap();
    let seen = service.get(LEADER).await.is(200);
    assert_eq!(seen.json["leader"]["term"], leadership.term());
}

async fn a_stream_tells_of_every_leader(service: Service) {
    let request = service.request("GET", LEADER).header("accept", "text/event-stream");
    let mut stream = request.send().await.unwrap();
    let mut heard = String::new();
    let mut until = async |words: String| {
        let hear = async {
            while !heard.contains(&words) {
                let piece = stream.chunk().await.unwrap().expect("the stream goes on");
                heard.push_str(std::str::from_utf8(&piece).unwrap());
            }
        };
        tokio::time::timeout(PATIENCE, hear).await.expect("a change is told in time");
        heard.clear();
    };
    until("event: vacant\n".into()).await;
    for name in ["one", "two"] {
        let locks = service.locks.configure(|o| o.owner(name)).unwrap();
        let leadership = locks.election("duty").unwrap().campaign().await.unwrap();
        until(format!("\"name\":\"{name}\",\"term\":{},", leadership.term())).await;
        leadership.resign().await.unwrap();
        until("event: vacant\n".into()).await;
    }
}

async fn several_keys_are_granted_together_or_not_at_all(service: Service) {
    let ask = json!({"keys": ["b", "a", "b"], "owner": "batch", "ttlMs": 20_000});
    let got = service.send("POST", "/api/v1/leases", ask.clone()).await.is(201);
    let leases = got.json["leases"].as_array().unwrap().clone();
    let keys: Vec<_> = leases.iter().map(|lease| lease["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "b"]);
    let refused = service.send("POST", "/api/v1/leases", json!({"keys": ["b", "c"]})).await.is(409);
    assert!(refused.text.contains("batch"), "{}", refused.text);
    let free = service.get("/api/v1/locks/c").await.is(200);
    assert_eq!(free.text_of("state"), "free");
    let refused =
        service.send("POST", "/api/v1/leases", json!({"keys": ["c", "a"], "waitMs": 300}));
    refused.await.is(409);
    assert_eq!(service.get("/api/v1/locks/c").await.text_of("state"), "free");
    for lease in &leases {
        let path = format!("/api/v1/locks/{}/lease", lease["key"].as_str().unwrap());
        let id = lease["leaseId"].as_str().unwrap();
        let renew = service.request("PUT", &path).header("lease-id", id).json(&json!({}));
        assert_eq!(renew.send().await.unwrap().status(), 200);
        let release = service.request("DELETE", &path).header("lease-id", id);
        assert!(release.send().await.unwrap().status().is_success());
    }
    service.send("POST", "/api/v1/leases", ask).await.is(201);
    service.send("POST", "/api/v1/leases", json!({"keys": []})).await.is(422);
    service.send("POST", "/api/v1/leases", json!({})).await.is(400);
}
