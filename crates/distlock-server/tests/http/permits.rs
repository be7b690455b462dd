//! Leases of a semaphore say how many permits of how many, and only an operator raises the limit.

use serde_json::{Value, json};

use crate::support::{ADMIN, Answer, LOCKER, On, PATH, Service, on_every_store, tokens};

on_every_store!(a_lease_of_permits_says_so_everywhere);

async fn a_lease_of_permits_says_so_everywhere(service: Service) {
    let granted = service.lease(json!({"permits": 2, "limit": 5})).await.is(201);
    let is_permits = |value: &Value| {
        assert_eq!(value["mode"], "permits", "{value}");
        assert_eq!((&value["permits"], &value["limit"]), (&json!(2), &json!(5)), "{value}");
    };
    is_permits(&granted.json);
    is_permits(&service.renew(&granted.text_of("leaseId")).await.is(200).json);
    let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    is_permits(&seen.json["holders"][0]);
    let refused = service.lease(json!({"permits": 4, "limit": 5, "mode": "permits"})).await.is(409);
    assert_eq!(refused.json["holder"]["owner"], granted.json["owner"], "{}", refused.text);
    // A replica that did not grant it says the same.
    let other = Service::over(service.locks.clone(), |_| {}).await;
    is_permits(&other.renew(&granted.text_of("leaseId")).await.is(200).json);
    service.lease(json!({"mode": "permits"})).await.is(422);
    service.lease(json!({"permits": 2})).await.is(422);
    service.lease(json!({"mode": "shared", "limit": 2})).await.is(422);
}

#[tokio::test]
async fn only_an_operator_raises_the_limit_in_force() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    let take = async |token: &str, limit: u32| {
        let request = service.request("POST", &format!("/api/v1/locks/{PATH}/leases"));
        Answer::of(request.bearer_auth(token).json(&json!({"limit": limit}))).await
    };
    let first = take(LOCKER, 2).await.is(201);
    let refused = take(LOCKER, 1_000).await.is(403);
    assert!(refused.text_of("detail").contains("admin"), "{}", refused.text);
    take(LOCKER, 2).await.is(201);
    take(LOCKER, 2).await.is(409);
    take(LOCKER, 1).await.is(409);
    let raised = take(ADMIN, 3).await.is(201);
    for (token, lease) in [(LOCKER, &first), (ADMIN, &raised)] {
        let request = service.request("DELETE", &format!("/api/v1/locks/{PATH}/lease"));
        let request = request.bearer_auth(token).header("lease-id", lease.text_of("leaseId"));
        Answer::of(request).await.is(204);
    }
    take(LOCKER, 3).await.is(403);
}
