//! Extending leases, counting permits and waiting for releases.

use distlock::{ClaimId, Error};
use distlock_testkit::Faults;

use crate::support::{World, ms, pass, secs};

#[tokio::test(start_paused = true)]
async fn a_ttl_per_call_is_that_of_the_lease() {
    let world = World::new();
    let leases = world.locks().lease("k").unwrap();
    let mut lease = leases.with_ttl(secs(5)).unwrap().acquire().await.unwrap();
    assert!(leases.remaining(&lease) < secs(5));
    leases.extend_for(&mut lease, secs(100)).await.unwrap();
    assert!(leases.remaining(&lease) > secs(98));
    leases.extend_for(&mut lease, secs(1)).await.unwrap();
    assert!(leases.remaining(&lease) > secs(98), "an extension never shortens");
    let refused = leases.extend_for(&mut lease, ms(0)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_repeated_while_the_lease_lasts() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let leases = locks.lease("k").unwrap().with_ttl(secs(10)).unwrap();
    let mut lease = leases.acquire().await.unwrap();
    network.set(Faults { lose_request: 1.0, response_timeout: ms(100), ..Faults::NONE });
    assert!(leases.extend(&mut lease).await.is_err(), "one attempt");
    let heals = network.clone();
    tokio::spawn(async move {
        pass(secs(3)).await;
        heals.heal();
    });
    leases.extend_retrying(&mut lease).await.unwrap();
    assert!(leases.remaining(&lease) > secs(9));
    network.set(Faults { lose_request: 1.0, response_timeout: ms(100), ..Faults::NONE });
    let given_up = leases.extend_retrying(&mut lease).await;
    assert!(matches!(given_up, Err(Error::Backend(_))), "{given_up:?}");
    assert!(leases.remaining(&lease) < secs(2), "until the lease is about to end");
}

#[tokio::test(start_paused = true)]
async fn a_uuid_is_a_claim_id() {
    let leases = World::new().locks().lease("k").unwrap();
    let id: ClaimId = "6ba7b810-9dad-11d1-80b4-00c04fd430c8".parse().unwrap();
    let lease = leases.acquire_as(id).await.unwrap();
    let same = "6ba7b8109dad11d180b400c04fd430c8".parse().unwrap();
    assert_eq!(leases.find(same).await.unwrap().unwrap().fence(), lease.fence());
}

#[tokio::test(start_paused = true)]
async fn free_permits_are_counted_for_each_belief() {
    let world = World::new();
    let (here, there) = (world.locks(), world.locks());
    let (five, three) = (here.semaphore("k", 5).unwrap(), there.semaphore("k", 3).unwrap());
    assert_eq!((five.available().await.unwrap(), three.available().await.unwrap()), (5, 3));
    let two = five.acquire_many(2).await.unwrap();
    assert_eq!((five.available().await.unwrap(), three.available().await.unwrap()), (3, 1));
    let more = five.acquire_many(2).await.unwrap();
    assert_eq!((five.available().await.unwrap(), three.available().await.unwrap()), (1, 0));
    drop((two, more));
    here.drained().await.unwrap();
    let all = five.acquire_many(5).await.unwrap();
    assert_eq!((five.available().await.unwrap(), three.available().await.unwrap()), (0, 0));
    drop(all);
}

#[tokio::test(start_paused = true)]
async fn drained_waits_for_what_was_dropped_and_for_nothing_else() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let held = locks.mutex("held").unwrap().lock().await.unwrap();
    let dropped = locks.mutex("k").unwrap().lock().await.unwrap();
    locks.drained().await.unwrap();
    network.set(Faults { delay: (1.0, ms(300)), ..Faults::NONE });
    drop(dropped);
    locks.drained().await.unwrap();
    assert!(world.locks().inspect("k").await.unwrap().is_free());
    assert!(held.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_as_long_as_it_may() {
    let world = World::new();
    let (locks, network) = world.faulty();
    let locks = locks.configure(|o| o.release_timeout(ms(200))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let never = Faults { lose_reply: 1.0, response_timeout: secs(60), ..Faults::NONE };
    network.set(never);
    let began = tokio::time::Instant::now();
    let uncertain = guard.release().await;
    assert!(matches!(uncertain, Err(Error::ReleaseUncertain { .. })), "{uncertain:?}");
    assert_eq!(began.elapsed(), ms(200));
}

#[tokio::test(start_paused = true)]
async fn the_margin_comes_off_every_lease() {
    let locks = World::new().locks();
    let wide = locks.configure(|o| o.ttl(secs(10)).drift(0.0).drift_margin(secs(2))).unwrap();
    let guard = wide.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(guard.remaining(), secs(8));
    assert!(locks.configure(|o| o.ttl(secs(1)).drift_margin(secs(2))).is_err());
}
