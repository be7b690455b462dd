//! One id of a caller's for two keys: two leases that know nothing of each other.

use distlock::{ClaimId, HoldEnd};

use crate::support::{World, go, is_held, ms, pass, queued, secs};

const ID: ClaimId = ClaimId::from_bytes([7; 16]);

#[tokio::test(start_paused = true)]
async fn one_id_on_two_keys_is_two_leases() {
    let world = World::new();
    let locks = world.locks();
    let (a, b) = (locks.lease("a").unwrap(), locks.lease("b").unwrap());
    let of_a = a.try_acquire_as(ID).await.unwrap();
    let of_b = b.try_acquire_as(ID).await.unwrap();
    let (kept_a, kept_b) = (locks.adopt(&of_a).await.unwrap(), locks.adopt(&of_b).await.unwrap());
    assert_eq!(locks.stats().held, 2);
    pass(secs(300)).await;
    assert!(kept_a.is_held() && kept_b.is_held(), "both are renewed");
    assert_eq!(kept_a.release().await.unwrap(), HoldEnd::Released);
    pass(secs(300)).await;
    assert!(kept_b.is_held(), "the other is still renewed");
    assert!(is_held(&world.locks().mutex("b").unwrap().try_lock().await));
    let _guard = world.locks().mutex("a").unwrap().try_lock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waits_under_one_id_on_two_keys_end_each_by_its_own_grant() {
    let world = World::new();
    let others = world.locks();
    let (x, y) = (others.mutex("x").unwrap(), others.mutex("y").unwrap());
    let (x, y) = (x.lock().await.unwrap(), y.lock().await.unwrap());
    let locks = world.locks();
    let wait = |key: &str| {
        let leases = locks.lease(key).unwrap();
        go(async move { leases.acquire_as(ID).await })
    };
    let (for_x, for_y) = (wait("x"), wait("y"));
    queued(&others, "x", 1).await;
    queued(&others, "y", 1).await;
    y.release().await.unwrap();
    pass(ms(10)).await;
    assert!(for_y.is_finished() && !for_x.is_finished());
    pass(secs(20)).await;
    assert_eq!(others.inspect("x").await.unwrap().waiters_total, 1, "its place is kept");
    x.release().await.unwrap();
    assert_eq!(for_x.await.unwrap().unwrap().key().as_str(), "x");
    assert_eq!(for_y.await.unwrap().unwrap().key().as_str(), "y");
}

#[tokio::test(start_paused = true)]
async fn breaking_one_of_two_holds_of_one_id_ends_that_one_only() {
    let world = World::new();
    let locks = world.locks();
    let of_a = locks.lease("a").unwrap().try_acquire_as(ID).await.unwrap();
    let of_b = locks.lease("b").unwrap().try_acquire_as(ID).await.unwrap();
    let (kept_a, kept_b) = (locks.adopt(&of_a).await.unwrap(), locks.adopt(&of_b).await.unwrap());
    world.locks().break_hold("a", kept_a.fence()).await.unwrap();
    pass(ms(10)).await;
    assert!(!kept_a.is_held() && kept_b.is_held());
}
