//! What a line of the token file allows: scopes, the longest lease, and until when.

use distlock_server::Tokens;
use serde_json::json;

use crate::support::{Answer, LOCKER, On, PATH, PATIENCE, READER, Service, tokens};

const SHORT: &str = "short-0i9k8j7h6g5f4d3s";
const EXPIRED: &str = "expired-q1w2e3r4t5y6u7i8";
const METRICS: &str = "metrics-z1x2c3v4b5n6m7a8";

async fn guarded() -> Service {
    let lines = format!(
        "{SHORT} name=short lock: ttl-max=10s expires=9999-12-31\n\
         {EXPIRED} name=old admin expires=2020-01-01\n\
         {METRICS} name=prometheus metrics\n"
    );
    Service::with(On::Memory, |config| config.tokens = Tokens::parse(&lines).unwrap()).await
}

#[tokio::test]
async fn a_token_may_limit_how_long_leases_are() {
    let service = guarded().await;
    let post = |path: &str, body| service.request("POST", path).bearer_auth(SHORT).json(&body);
    let leases = format!("/api/v1/locks/{PATH}/leases");
    let refused = Answer::of(post(&leases, json!({"ttlMs": 10_001}))).await.is(422);
    assert!(refused.text_of("detail").contains("between 100 and 10000"), "{}", refused.text);
    let granted = Answer::of(post(&leases, json!({}))).await.is(201);
    assert_eq!(granted.number_of("ttlMs"), 10_000, "the default is shortened");
    let renew = |body| {
        let request = service.request("PUT", &format!("/api/v1/locks/{PATH}/lease"));
        let request = request.bearer_auth(SHORT).header("lease-id", granted.text_of("leaseId"));
        Answer::of(request.json(&body))
    };
    renew(json!({"ttlMs": 60_000})).await.is(422);
    renew(json!({"ttlMs": 5_000})).await.is(200);
    let pattern = post("/api/locks/simple/r", json!({"ttlMs": 20_000, "durationMs": 1}));
    Answer::of(pattern).await.is(422);
    // Terraform and Dapr do not expect to be refused: their leases are shortened.
    let state = service.request("LOCK", "/api/compat/terraform/prod").bearer_auth(SHORT);
    Answer::of(state.json(&json!({"ID": "one", "Who": "me"}))).await.is(200);
    let dapr = json!({"resourceId": "r", "lockOwner": "me", "expiryInSeconds": 600});
    Answer::of(post("/v1.0-alpha1/lock/lockstore", dapr)).await.is(200);
    for key in ["terraform/prod", "dapr/lockstore/r"] {
        let held = service.locks.inspect(key).await.unwrap();
        let left = held.holders[0].expires_in.unwrap();
        assert!(left.as_secs() <= 10, "{key}: {left:?}");
    }
}

#[tokio::test]
async fn an_expired_token_is_refused_like_an_unknown_one() {
    let service = guarded().await;
    let look = service.request("GET", "/api/v1/locks").bearer_auth(EXPIRED);
    let refused = Answer::of(look).await.is(401);
    assert!(refused.json.get("detail").is_none(), "a hint: {}", refused.text);
    let numbers = service.request("GET", "/metrics").bearer_auth(METRICS);
    let numbers = Answer::of(numbers).await.is(200).text;
    assert!(numbers.contains("refused_tokens_total{outcome=\"expired\"} 1"), "{numbers}");
}

#[tokio::test]
async fn a_token_for_metrics_reads_nothing_else() {
    let service = guarded().await;
    for (path, status) in [
        ("/metrics", 200),
        ("/api/v1/locks", 403),
        ("/api/v1/summary", 403),
        ("/api/v1/events", 403),
        ("/api/v1/locks/a", 403),
    ] {
        let answer = Answer::of(service.request("GET", path).bearer_auth(METRICS)).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_its_token() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    let open = |token| service.request("GET", "/api/v1/events?prefix=deploy/").bearer_auth(token);
    let (gone, stays) = (open(READER).send().await.unwrap(), open(LOCKER).send().await.unwrap());
    assert_eq!((gone.status().as_u16(), stays.status().as_u16()), (200, 200));
    service.reloader.replace_tokens(Tokens::parse(&format!("{LOCKER} lock:deploy/")).unwrap());
    let lease = service.request("POST", &format!("/api/v1/locks/{PATH}/leases"));
    Answer::of(lease.bearer_auth(LOCKER).json(&json!({}))).await.is(201);
    let told = tokio::time::timeout(PATIENCE, gone.text()).await.expect("the stream goes on");
    assert!(!told.unwrap().contains("granted"), "it was told what happened after its end");
    let mut stays = stays;
    let mut told = String::new();
    while !told.contains("granted") {
        let chunk = tokio::time::timeout(PATIENCE, stays.chunk()).await.unwrap().unwrap();
        told.push_str(&String::from_utf8_lossy(&chunk.expect("the stream has ended")));
    }
}
