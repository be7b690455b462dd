//! The eight patterns: each runs an operation under its lock.

use std::time::{Duration, Instant};

use distlock::Locks;
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
    let holding = run(&service, "simple", "r", json!({"durationMs": 1_500, "ttlMs": 25_000}));
    let looking = async {
        until_held(&service, "r").await;
        let mut left = 25_001;
        for pattern in ["simple", "watchdog", "reentrant", "read", "write"] {
            let begun = Instant::now();
            let refused = run(&service, pattern, "r", Value::Null).await.is(409);
            assert!(begun.elapsed() < Duration::from_secs(1), "{pattern} waited");
            assert_eq!(refused.text_of("error"), "Resource locked", "{pattern}");
            let after = refused.number_of("retryAfterMs");
            assert!(after < left && after > 10_000, "{pattern}: {}", refused.text);
            assert_eq!(refused.header("retry-after"), after.div_ceil(1_000).to_string());
            left = after;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let retried = run(&service, "retry", "r", json!({"waitMs": 100})).await.is(409);
        assert!(retried.number_of("retryAfterMs") < left, "{}", retried.text);
    };
    let (done, ()) = tokio::join!(holding, looking);
    done.is(200);
}

async fn other_resources_are_free(service: Service) {
    let holding = run(&service, "simple", "one", json!({"durationMs": 400}));
    let other = async {
        until_held(&service, "one").await;
        let done = run(&service, "simple", "two", json!({"durationMs": 0})).await.is(200);
        assert!(done.number_of("durationMs") < 400);
    };
    let (done, ()) = tokio::join!(holding, other);
    done.is(200);
}

async fn readers_run_together_and_writers_alone(service: Service) {
    let reading = run(&service, "read", "r", json!({"durationMs": 800}));
    let others = async {
        until_held(&service, "r").await;
        run(&service, "read", "r", json!({"durationMs": 0})).await.is(200);
        run(&service, "write", "r", json!({})).await.is(409);
    };
    let (done, ()) = tokio::join!(reading, others);
    done.is(200);
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
    let long = json!({"durationMs": 1_200, "ttlMs": 500});
    run(&service, "simple", "r", long.clone()).await.is(422);
    run(&service, "watchdog", "r", long).await.is(200);
}

async fn a_client_that_leaves_ends_its_operation(service: Service) {
    let path = service.url("/api/locks/simple/r");
    let holding = service.client.post(path).json(&json!({"durationMs": 20_000}));
    let holding = tokio::spawn(holding.send());
    until_held(&service, "r").await;
    holding.abort();
    run(&service, "fair", "r", json!({"durationMs": 0, "waitMs": 10_000})).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_needs_a_majority() {
    let mut servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    let nodes: Vec<_> = servers.iter().map(|server| format!("node={}", server.url())).collect();
    let locks = Locks::connect(&format!("quorum:?{}", nodes.join("&"))).unwrap();
    let service = Service::over(locks, |config| config.quorum = true).await;
    run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(200);

    let holding = run(&service, "redlock", "r", json!({"durationMs": 500}));
    let refused = async {
        until_held(&service, "r").await;
        let refused = run(&service, "redlock", "r", json!({})).await.is(409);
        assert!(refused.number_of("retryAfterMs") > 0);
    };
    tokio::join!(async { holding.await.is(200) }, refused);

    for server in &mut servers[..2] {
        server.kill();
    }
    run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(200);
    servers[2].kill();
    let refused = run(&service, "redlock", "r", json!({"durationMs": 10})).await.is(503);
    assert_eq!(refused.text_of("error"), "Quorum not reached");
    assert_eq!(refused.text_of("message"), "Unable to acquire lock on majority of instances");
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
