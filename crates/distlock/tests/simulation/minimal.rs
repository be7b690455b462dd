//! What the simulation has found, each as short as it gets.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Memory;
use distlock::clock::TokioClock;
use distlock::{ClaimId, Locks};
use distlock_testkit::{Faults, Faulty};
use tokio::time::sleep;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Seed 5: the client that queues under an id of its own and loses its place asks again under that
/// id. A closing release of the lost place would have the same id and take away what it gets.
#[tokio::test(start_paused = true)]
async fn a_place_lost_under_a_callers_id_does_not_cost_the_lease_it_gets_next() {
    let clock = Arc::new(TokioClock::new());
    let store = Memory::with_clock(clock.clone());
    let holder = Locks::with_clock(Arc::new(store.client()), clock.clone());
    let network = Faulty::new(Arc::new(store.client()), 1, Faults::NONE);
    let locks = Locks::with_clock(Arc::new(network.clone()), clock);

    let held = holder.mutex("k").unwrap().lock().await.unwrap();
    let leases = locks.lease("k").unwrap().configure(|o| o.place(millis(100))).unwrap();
    let id = ClaimId::random().unwrap();
    let waiting = tokio::spawn({
        let leases = leases.clone();
        async move { leases.acquire_as(id).await }
    });
    sleep(millis(10)).await;
    network.cut();
    sleep(millis(300)).await;
    held.release().await.unwrap();
    network.heal();

    let lease = waiting.await.unwrap().unwrap();
    sleep(millis(100)).await;
    assert!(!leases.remaining(&lease).is_zero(), "the client believes in its lease");
    let holders = holder.inspect("k").await.unwrap().holders;
    assert!(
        holders.iter().any(|holder| holder.fence == lease.fence()),
        "the store does not know the lease any more: {holders:?}"
    );
}

/// The same after an answer that took longer than the lease.
#[tokio::test(start_paused = true)]
async fn a_grant_born_dead_under_a_callers_id_does_not_cost_the_next() {
    let clock = Arc::new(TokioClock::new());
    let store = Memory::with_clock(clock.clone());
    let slow = Faults {
        delay: (1.0, millis(400)),
        response_timeout: Duration::from_secs(5),
        ..Faults::NONE
    };
    for seed in 0..20 {
        let network = Faulty::new(Arc::new(store.client()), seed, slow);
        let locks = Locks::with_clock(Arc::new(network.clone()), clock.clone());
        let leases = locks.lease(format!("k{seed}")).unwrap();
        let leases = leases.configure(|o| o.ttl(millis(300))).unwrap();
        let id = ClaimId::random().unwrap();
        let Ok(lease) = leases.acquire_as(id).await else { continue };
        let remaining = leases.remaining(&lease);
        sleep(remaining - millis(1)).await;
        let holders = Locks::new(Arc::new(store.client())).inspect(lease.key().clone()).await;
        assert_eq!(holders.unwrap().holders.len(), 1, "seed {seed}: gone before its time");
    }
}

/// Not a find but its neighbour: one claim, several calls that wait for it.
#[tokio::test(start_paused = true)]
async fn calls_repeated_under_one_id_while_it_waits_get_the_same_lease() {
    let clock = Arc::new(TokioClock::new());
    let store = Memory::with_clock(clock.clone());
    let holder = Locks::with_clock(Arc::new(store.client()), clock.clone());
    let locks = Locks::with_clock(Arc::new(store.client()), clock);
    let held = holder.mutex("k").unwrap().lock().await.unwrap();
    let leases = locks.lease("k").unwrap();
    let id = ClaimId::random().unwrap();
    let release_later = async {
        sleep(millis(50)).await;
        held.release().await.unwrap();
    };
    let (first, again, ()) =
        tokio::join!(leases.acquire_as(id), leases.acquire_as(id), release_later);
    let (first, again) = (first.unwrap(), again.unwrap());
    assert_eq!(first.fence(), again.fence());
}
