//! A renewal keeps the ttl of its lease, through any replica.

use serde_json::json;

use crate::support::{Answer, PATH, Service, on_every_store};

on_every_store!(
    a_renewal_without_a_body_keeps_the_ttl,
    a_replica_that_did_not_grant_the_lease_keeps_the_ttl,
);

async fn renew_for(service: &Service, id: &str, ttl_ms: u64) -> Answer {
    let request = service.request("PUT", &format!("/api/v1/locks/{PATH}/lease"));
    Answer::of(request.header("Lease-Id", id).json(&json!({"ttlMs": ttl_ms}))).await
}

async fn a_renewal_without_a_body_keeps_the_ttl(service: Service) {
    let granted = service.lease(json!({"ttlMs": 120_000})).await.is(201);
    let id = granted.text_of("leaseId");
    for _ in 0..3 {
        let renewed = service.renew(&id).await.is(200);
        assert_eq!(renewed.number_of("ttlMs"), 120_000);
        assert_eq!(renewed.number_of("renewAfterMs"), 40_000);
        assert!(renewed.number_of("remainingMs") > 110_000, "{}", renewed.text);
    }
    // A renewal that says a ttl sets it.
    assert_eq!(renew_for(&service, &id, 200_000).await.is(200).number_of("ttlMs"), 200_000);
    assert_eq!(service.renew(&id).await.is(200).number_of("ttlMs"), 200_000);
    renew_for(&service, &id, 50).await.is(422);
}

async fn a_replica_that_did_not_grant_the_lease_keeps_the_ttl(service: Service) {
    let other = Service::over(service.locks.clone(), |_| {}).await;
    let granted = service.lease(json!({"ttlMs": 120_000, "owner": "ci-7"})).await.is(201);
    let id = granted.text_of("leaseId");
    for round in 0..4 {
        let renewed = other.renew(&id).await.is(200);
        let ttl = renewed.number_of("ttlMs");
        assert!((115_000..=121_000).contains(&ttl), "round {round}: {}", renewed.text);
        if round == 0 {
            assert_eq!(renewed.text_of("owner"), "ci-7");
        }
    }
    assert_eq!(renew_for(&other, &id, 200_000).await.is(200).number_of("ttlMs"), 200_000);
    assert_eq!(other.renew(&id).await.is(200).number_of("ttlMs"), 200_000);
    other.release(&id).await.is(204);
    other.renew(&id).await.is(410);
}
