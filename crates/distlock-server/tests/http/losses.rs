//! Leases that ran out and holders that crashed are counted as lost.

use std::time::{Duration, Instant};

use distlock::Locks;
use serde_json::json;

use crate::support::{On, PATH, PATIENCE, Service, lease_id, on_every_store};

on_every_store!(
    a_lease_that_ran_out_counts_as_lost,
    a_crashed_holder_counts_as_lost_on_the_dashboard,
    a_kept_place_has_not_given_up,
    a_wait_that_ran_out_says_who_holds_and_when_to_come_back,
);

async fn lost(service: &Service) -> f64 {
    let text = service.get("/metrics").await.is(200).text;
    let lines = text.lines().filter(|line| line.starts_with("distlock_lost_total{"));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn a_lease_that_ran_out_counts_as_lost(service: Service) {
    let journal = service.locks.feed(distlock::StartAt::Now).is_ok();
    let kept = service.send("POST", "/api/v1/locks/kept/leases", json!({"ttlMs": 60_000})).await;
    service.lease(json!({"ttlMs": 200, "owner": "slow"})).await.is(201);
    until("counted", async || lost(&service).await == 1.0).await;
    if journal {
        let past = service.get(&format!("/api/v1/locks/{PATH}/history")).await.is(200);
        assert_eq!(past.json["visits"][0]["state"], "lost", "{}", past.text);
        assert_eq!(past.json["visits"][0]["owner"], "slow", "{}", past.text);
        // What another replica released was not lost.
        let other = Service::over(service.locks.clone(), |_| {}).await;
        let id = service.lease(json!({"ttlMs": 300})).await.is(201).text_of("leaseId");
        other.release(&id).await.is(204);
    }
    // What another replica renewed lives on.
    let other = Service::over(service.locks.clone(), |_| {}).await;
    let path = "/api/v1/locks/renewed/leases";
    let id = service.send("POST", path, json!({"ttlMs": 500})).await.is(201).text_of("leaseId");
    let renewal = other.request("PUT", "/api/v1/locks/renewed/lease").header("lease-id", &id);
    let renewal = renewal.json(&json!({"ttlMs": 60_000}));
    assert_eq!(renewal.send().await.unwrap().status(), 200);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(lost(&service).await, 1.0, "{}", kept.text);
}

async fn a_crashed_holder_counts_as_lost_on_the_dashboard(service: Service) {
    if service.locks.feed(distlock::StartAt::Now).is_err() {
        return;
    }
    let count = async || service.get("/api/v1/summary").await.is(200).json["lost24h"].clone();
    assert_eq!(count().await, 0);
    // Another program, which writes the journal and ends without a word.
    let other: Locks =
        service.locks.configure(|o| o.journal(distlock::Retention::default())).unwrap();
    let brief = |o: distlock::Options| o.ttl(Duration::from_millis(300)).owner("crashed");
    let leases = other.lease("crash").unwrap().configure(brief).unwrap();
    let lease = leases.acquire().await.unwrap();
    until("lost", async || count().await == 1).await;
    // It is counted once, also when a successor comes, and a release is no loss.
    let next = other.lease("crash").unwrap().acquire().await.unwrap();
    other.lease("crash").unwrap().release(&next).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((count().await, lease.fence() < next.fence()), (json!(1), true));
}

async fn a_kept_place_has_not_given_up(service: Service) {
    if service.locks.feed(distlock::StartAt::Now).is_err() {
        return;
    }
    let held = service.lease(json!({"owner": "first"})).await.is(201).text_of("leaseId");
    let ask = json!({"owner": "next", "leaseId": lease_id(), "waitMs": 50, "keepPlace": true});
    let state = async || {
        let past = service.get(&format!("/api/v1/locks/{PATH}/history")).await.is(200);
        let visits = past.json["visits"].as_array().unwrap().clone();
        let next: Vec<_> = visits.iter().filter(|visit| visit["owner"] == "next").collect();
        assert_eq!(next.len(), 1, "{}", past.text);
        next[0]["state"].clone()
    };
    for _ in 0..2 {
        service.lease(ask.clone()).await.is(202);
        assert_eq!(state().await, "waiting");
    }
    service.release(&held).await.is(204);
    // The release has granted it, so the request finds what it asks for.
    service.lease(ask).await.is(200);
    assert_eq!(state().await, "held");
}

async fn a_wait_that_ran_out_says_who_holds_and_when_to_come_back(service: Service) {
    service.lease(json!({"owner": "ci-7", "reason": "deploy", "ttlMs": 20_000})).await.is(201);
    for ask in [json!({"waitMs": 50}), json!({"waitMs": 50, "leaseId": lease_id()}), json!({})] {
        let refused = service.lease(ask.clone()).await.is(409);
        let after = refused.number_of("retryAfterMs");
        assert!((1_000..=20_000).contains(&after), "{ask}: {}", refused.text);
        assert_eq!(refused.header("retry-after"), after.div_ceil(1_000).to_string());
        assert_eq!(refused.json["holder"]["owner"], "ci-7", "{ask}: {}", refused.text);
        assert_eq!(refused.json["holder"]["reason"], "deploy", "{ask}: {}", refused.text);
    }
}

#[tokio::test]
async fn a_position_in_json_is_said_once() {
    let service = Service::on(On::Memory).await;
    for body in ["{\"x\":1}", "{\"ttlMs\":\"x\"}", "{", "{\"ttlMs\":1 2}"] {
        let request = service.request("POST", &format!("/api/v1/locks/{PATH}/leases"));
        let request = request.header("content-type", "application/json").body(body);
        let refused = crate::support::Answer::of(request).await.is(400);
        let detail = refused.text_of("detail");
        assert_eq!(detail.matches("column").count(), 1, "{detail}");
    }
}
