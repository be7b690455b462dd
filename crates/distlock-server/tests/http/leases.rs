//! Leases: granted, found again, renewed, released, lost.

use serde_json::json;

use crate::support::{KEY, PATH, Service, lease_id, on_every_store};

on_every_store!(
    a_lease_is_granted_renewed_and_released,
    the_same_lease_id_gets_the_same_lease,
    sharers_hold_together_and_exclude_others,
    permits_are_counted,
    a_lost_lease_is_gone,
    what_is_held_is_refused_with_the_holder,
    fences_grow,
    orders_must_agree,
);

async fn a_lease_is_granted_renewed_and_released(service: Service) {
    let granted = service.lease(json!({"owner": "ci-7", "ttlMs": 20_000})).await.is(201);
    let id = granted.text_of("leaseId");
    assert_eq!((granted.text_of("key"), granted.text_of("owner")), (KEY.into(), "ci-7".into()));
    assert_eq!(granted.text_of("mode"), "exclusive");
    assert_eq!((granted.number_of("ttlMs"), granted.number_of("renewAfterMs")), (20_000, 6_666));
    assert!((10_000..20_000).contains(&granted.number_of("remainingMs")), "{}", granted.text);
    assert_eq!(granted.header("location"), format!("/api/v1/locks/{PATH}/lease"));
    assert_eq!(granted.header("lock-fence"), granted.number_of("fence").to_string());
    assert!(!granted.header("location").contains(&id), "a lease id in a URL");

    let renewed = service.renew(&id).await.is(200);
    assert_eq!(renewed.number_of("fence"), granted.number_of("fence"));
    assert_eq!(renewed.text_of("owner"), "ci-7");
    assert_eq!(renewed.header("lock-fence"), granted.number_of("fence").to_string());

    service.release(&id).await.is(204);
    service.release(&id).await.is(410);
    service.renew(&id).await.is(410);
}

async fn the_same_lease_id_gets_the_same_lease(service: Service) {
    let id = lease_id();
    let first = service.lease(json!({"leaseId": id})).await.is(201);
    let again = service.lease(json!({"leaseId": id, "waitMs": 5_000})).await.is(200);
    assert_eq!(first.number_of("fence"), again.number_of("fence"));
    service.lease(json!({"leaseId": lease_id()})).await.is(409);
    service.release(&id).await.is(204);
}

async fn sharers_hold_together_and_exclude_others(service: Service) {
    let shared = json!({"mode": "shared"});
    let one = service.lease(shared.clone()).await.is(201).text_of("leaseId");
    let two = service.lease(shared).await.is(201).text_of("leaseId");
    service.lease(json!({})).await.is(409);
    let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    assert_eq!((seen.number_of("holdersTotal"), seen.text_of("state")), (2, "held".into()));
    assert_eq!(seen.json["holders"][0]["mode"], "shared");
    // Through the API alone: no memory of how they were acquired.
    service.renew(&one).await.is(200);
    service.release(&one).await.is(204);
    service.lease(json!({})).await.is(409);
    service.release(&two).await.is(204);
    service.lease(json!({})).await.is(201);
}

async fn permits_are_counted(service: Service) {
    let two_of_three = json!({"permits": 2, "limit": 3});
    let two = service.lease(two_of_three.clone()).await.is(201).text_of("leaseId");
    service.lease(two_of_three).await.is(409);
    let one = service.lease(json!({"limit": 3})).await.is(201).text_of("leaseId");
    service.lease(json!({"limit": 3})).await.is(409);
    service.renew(&two).await.is(200);
    service.release(&two).await.is(204);
    service.lease(json!({"permits": 2, "limit": 3})).await.is(201);
    service.release(&one).await.is(204);
}

async fn a_lost_lease_is_gone(service: Service) {
    let short = service.lease(json!({"ttlMs": 1_000})).await.is(201).text_of("leaseId");
    service.until_free().await;
    service.renew(&short).await.is(410);
    service.release(&short).await.is(410);
    let next = service.lease(json!({})).await.is(201).text_of("leaseId");
    // A stale id touches nothing of the next holder's.
    service.release(&short).await.is(410);
    service.renew(&next).await.is(200);
}

async fn what_is_held_is_refused_with_the_holder(service: Service) {
    let held = json!({"owner": "ci-7", "reason": "release 1.9", "ttlMs": 30_000});
    let held = service.lease(held).await.is(201);
    let refused = service.lease(json!({})).await.is(409);
    assert_eq!(refused.text_of("error"), "Resource locked");
    assert_eq!(refused.json["holder"]["owner"], "ci-7");
    assert_eq!(refused.json["holder"]["reason"], "release 1.9");
    assert_eq!(refused.json["holder"]["fence"], held.number_of("fence"));
    let after = refused.number_of("retryAfterMs");
    assert!((1..=30_000).contains(&after), "{}", refused.text);
    assert_eq!(refused.header("retry-after"), after.div_ceil(1_000).to_string());
    assert!(!refused.text.contains(&held.text_of("leaseId")), "the secret got out");
}

async fn fences_grow(service: Service) {
    let mut last = 0;
    for _ in 0..3 {
        let granted = service.lease(json!({})).await.is(201);
        assert!(granted.number_of("fence") > last, "{}", granted.text);
        assert!(granted.number_of("fence") < 1 << 53, "{}", granted.text);
        last = granted.number_of("fence");
        service.release(&granted.text_of("leaseId")).await.is(204);
    }
}

async fn orders_must_agree(service: Service) {
    service.lease(json!({"mode": "shared", "order": "prefer-writers"})).await.is(201);
    service.lease(json!({"mode": "shared"})).await.is(201);
    let refused = service.lease(json!({"mode": "shared", "order": "fifo"})).await.is(409);
    assert_eq!(refused.text_of("error"), "Order conflict");
    let busy = service.lease(json!({})).await.is(409);
    assert_eq!(busy.text_of("error"), "Resource locked", "an exclusive lease has no order");
}
