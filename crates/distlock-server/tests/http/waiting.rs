//! Waiting: in the queue, for a while, with a place that is kept.

use std::time::Duration;

use serde_json::json;

use crate::support::{On, Service, lease_id, on_every_store};

on_every_store!(
    a_waiter_is_granted_when_the_holder_releases,
    a_wait_ends_with_its_time,
    waiters_are_served_in_their_order,
    a_place_is_kept_and_taken_up_again,
);

async fn a_waiter_is_granted_when_the_holder_releases(service: Service) {
    let held = service.lease(json!({})).await.is(201);
    let waiting = service.lease(json!({"waitMs": 20_000, "owner": "next"}));
    let releasing = async {
        service.until_waiting(1).await;
        service.release(&held.text_of("leaseId")).await.is(204);
    };
    let (granted, ()) = tokio::join!(waiting, releasing);
    let granted = granted.is(201);
    assert!(granted.number_of("fence") > held.number_of("fence"));
    // Only its client renews it, so it is good for all of its time.
    assert!(granted.number_of("remainingMs") > 20_000, "{}", granted.text);
}

async fn a_wait_ends_with_its_time(service: Service) {
    service.lease(json!({})).await.is(201);
    let refused = service.lease(json!({"waitMs": 150})).await.is(409);
    assert_eq!(refused.text_of("error"), "Resource locked");
    service.until_waiting(0).await;
}

async fn waiters_are_served_in_their_order(service: Service) {
    let held = service.lease(json!({})).await.is(201).text_of("leaseId");
    let wait = |owner: &'static str| service.lease(json!({"waitMs": 20_000, "owner": owner}));
    let first = async {
        let granted = wait("first").await.is(201);
        service.release(&granted.text_of("leaseId")).await.is(204);
        granted.number_of("fence")
    };
    let second = async {
        service.until_waiting(1).await;
        wait("second").await.is(201).number_of("fence")
    };
    let releasing = async {
        service.until_waiting(2).await;
        service.release(&held).await.is(204);
    };
    let (first, second, ()) = tokio::join!(first, second, releasing);
    assert!(first < second, "the second was served first");
}

async fn a_place_is_kept_and_taken_up_again(service: Service) {
    let held = service.lease(json!({})).await.is(201).text_of("leaseId");
    let (one, two) = (lease_id(), lease_id());
    let wait = |id: &str, ms: u64| {
        let body = json!({"leaseId": id, "keepPlace": true, "waitMs": ms});
        service.lease(body)
    };
    let ticket = wait(&one, 0).await.is(202);
    assert_eq!((ticket.number_of("position"), ticket.text_of("leaseId")), (1, one.clone()));
    assert!(ticket.number_of("comeBackWithinMs") > 1_000, "{}", ticket.text);
    assert_eq!(wait(&two, 50).await.is(202).number_of("position"), 2);
    let again = wait(&one, 50).await.is(202);
    assert_eq!(again.number_of("ticket"), ticket.number_of("ticket"), "another place");
    // Granted while no client asks: the next request finds it.
    service.release(&held).await.is(204);
    service.until("granted", |lock| lock["waitersTotal"] == 1).await;
    let granted = wait(&one, 10_000).await.is(200);
    assert!(granted.number_of("remainingMs") > 20_000, "{}", granted.text);
    // Granted while it asks.
    let releasing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        service.release(&one).await.is(204);
    };
    let (granted, ()) = tokio::join!(wait(&two, 20_000), releasing);
    granted.is(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_nobody_comes_back_to_goes_to_the_next() {
    let abandon = async |on| {
        let service = Service::with(on, |config| config.place = Duration::from_secs(1)).await;
        let held = service.lease(json!({})).await.is(201).text_of("leaseId");
        let lost = json!({"leaseId": lease_id(), "keepPlace": true, "waitMs": 0});
        let ticket = service.lease(lost).await.is(202);
        assert!(ticket.number_of("comeBackWithinMs") <= 1_000, "{}", ticket.text);
        service.release(&held).await.is(204);
        // The abandoned place is granted for what is left of it, and no longer.
        let next = service.lease(json!({"waitMs": 19_000})).await.is(201);
        assert!(next.number_of("waitedMs") < 19_000);
    };
    tokio::join!(abandon(On::Memory), abandon(On::Sqlite), abandon(On::Redis));
}
