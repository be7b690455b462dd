//! The eight patterns: each runs an operation under its lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::{Memory, Quorum};
use distlock::{Backend, Locks};
use distlock_testkit::servers::RedisServer;
use serde_json::{Value, json};

use crate::support::{Answer, On, Service, on_every_store};

on_every_store!(
    every_pattern_runs_its_operation,
    what_is_locked_is_refused_and_the_time_shrinks,
    other_resources_are_free,
    readers_run_together_and_writers_alone,
    fair_requests_wait_for_their_turn,
    a_watchdog_outlives_its_lease,
    a_client_that_leaves_ends_its_operation,
);

async fn run(service: &Service, pattern: &str, resource: &str, body: Value) -> Answer {
    service.send("POST", &format!("/api/locks/{pattern}/{resource}"), body).await
}

async fn until_held(service: &Service, resource: &str) {
    let begun = Instant::now();
    while service.get(&format!("/api/v1/locks/{resource}")).await.json["state"] == "free" {
        assert!(begun.elapsed() < Duration::from_secs(20), "never held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How long the lease of [`hold`] lasts.
const HELD_MS: u64 = 50_000;

/// An operation that goes on until its client leaves it.
async fn hold(service: &Service, pattern: &str, resource: &str) -> Holding {
    let path = service.url(&format!("/api/locks/{pattern}/{resource}"));
    let body = json!({"durationMs": HELD_MS - 1, "ttlMs": HELD_MS});
    let mut holding = tokio::spawn(service.client.post(path).json(&body).send());
    tokio::select! {
        () = until_held(service, resource) => holding,
        ended = &mut holding => {
            panic!("not held: {}", ended.unwrap().unwrap().text().await.unwrap());
        }
    }
}

type Holding = tokio::task::JoinHandle<Result<reqwest::Response, reqwest::Error>>;

async fn every_pattern_runs_its_operation(service: Service) {
    let mut last = 0;
    for pattern in ["simple", "retry", "watchdog", "reentrant", "read", "write", "fair"] {
        let done = run(&service, pattern, "r", json!({"durationMs": 20})).await.is(200);
        assert_eq!(done.json["success"], true, "{pattern}");
        assert_eq!(done.text_of("resourceId"), "r", "{pattern}");
        assert!((20..10_000).contains(&done.number_of("durationMs")), "{pattern}: {}", done.text);
        assert!(done.number_of("fence") > last, "{pattern}: {}", done.text);
        last = done.number_of("fence");
    }
    let refused = run(&service, "redlock", "r", json!({})).await.is(501);
    assert!(refused.text_of("detail").contains("quorum"), "{}", refused.text);
}

async fn what_is_locked_is_refused_and_the_time_shrinks(service: Service) {
    let holding = hold(&service, "simple", "r").await;
    let mut left = HELD_MS + 1;
    for pattern in ["simple", "watchdog", "reentrant", "read", "write"] {
        let refused = run(&service, pattern, "r", Value::Null).await.is(409);
        assert_eq!(refused.text_of("error"), "Resource locked", "{pattern}");
        let after = refused.number_of("retryAfterMs");
        assert!(after < left && after > HELD_MS / 2, "{pattern}: {}", refused.text);
        assert_eq!(refused.header("retry-after"), after.div_ceil(1_000).to_string());
        left = after;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let retried = run(&service, "retry", "r", json!({"waitMs": 100})).await.is(409);
    assert!(retried.number_of("retryAfterMs") < left, "{}", retried.text);
    assert!(!holding.is_finished(), "no client held it any more");
}

async fn other_resources_are_free(service: Service) {
    let holding = hold(&service, "simple", "one").await;
    run(&service, "simple", "two", json!({"durationMs": 0})).await.is(200);
    assert!(!holding.is_finished(), "no client held the first any more");
}

async fn readers_run_together_and_writers_alone(service: Service) {
    let reading = hold(&service, "read", "r").await;
    run(&service, "read", "r", json!({"durationMs": 0})).await.is(200);
    run(&service, "write", "r", json!({})).await.is(409);
    assert!(!reading.is_finished(), "the first reader had left");
}

async fn fair_requests_wait_for_their_turn(service: Service) {
    let one = run(&service, "fair", "r", json!({"durationMs": 300}));
    let two = async {
        until_held(&service, "r").await;
        run(&service, "fair", "r", json!({"durationMs": 0, "waitMs": 20_000})).await.is(200)
    };
    let (one, two) = tokio::join!(one, two);
    assert!(two.number_of("fence") > one.is(200).number_of("fence"));
}

async fn a_watchdog_outlives_its_lease(service: Service) {
    let long = json!({"durationMs": 3_500, "ttlMs": 2_500});
    run(&service, "simple", "r", long.clone()).await.is(422);
    run(&service, "watchdog", "r", long).await.is(200);
}

async fn a_client_that_leaves_ends_its_operation(service: Service) {
    hold(&service, "simple", "r").await.abort();
    run(&service, "fair", "r", json!({"durationMs": 0, "waitMs": 10_000})).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_needs_a_majority() {
    let mut servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    let nodes: Vec<_> = servers.iter().map(|server| format!("node={}", server.url())).collect();
    // Nodes that are down say so at once; the others may be slow.
    let url = format!("quorum:?{}&node_timeout_ms=5000", nodes.join("&"));
    let locks = Locks::connect(&url).unwrap();
    let service = Service::over(locks, |config| config.quorum = true).await;
    run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(200);

    let holding = hold(&service, "redlock", "held").await;
    let refused = run(&service, "redlock", "held", json!({})).await.is(409);
    assert!(refused.number_of("retryAfterMs") > 0);
    holding.abort();

    for server in &mut servers[..2] {
        server.kill();
    }
    run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(200);
    servers[2].kill();
    let refused = run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(503);
    assert_eq!(refused.text_of("error"), "Quorum not reached");
    assert_eq!(refused.text_of("message"), "Unable to acquire lock on majority of instances");
}

/// A quorum has no queue: it can serve in no order, and says so.
#[tokio::test]
async fn fair_and_reentrant_requests_are_refused_on_a_quorum() {
    let node = |name: &str| (name.to_owned(), Arc::new(Memory::new()) as Arc<dyn Backend>);
    let quorum = Quorum::new([node("a"), node("b"), node("c")]).unwrap();
    let locks = Locks::new(Arc::new(quorum));
    let service = Service::over(locks, |config| config.quorum = true).await;
    for pattern in ["fair", "reentrant"] {
        let refused = run(&service, pattern, "r", json!({"durationMs": 10})).await.is(501);
        assert_eq!(refused.text_of("type"), "urn:distlock:unsupported", "{pattern}");
    }
    run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(200);
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let service = Service::on(On::Memory).await;
    for (status, body) in [
        (400, json!({"duration": 1})),
        (422, json!({"durationMs": 600_001})),
        (422, json!({"ttlMs": 50})),
        (422, json!({"waitMs": 60_000})),
        (422, json!({"owner": "a\u{7}"})),
    ] {
        run(&service, "simple", "r", body).await.is(status);
    }
}
