//! What the journal says of leases, whose calls may come from several processes.

use distlock::{ClaimId, HoldEnd, HoldRecordState, Locks, QueueOutcome};

use crate::support::*;

#[tokio::test]
async fn a_release_by_the_id_alone_is_a_release() {
    let locks = Locks::memory();
    let (a, b) = (writing(&locks, "a"), writing(&locks, "b"));
    let lease = a.lease("k").unwrap().acquire().await.unwrap();
    // Another process knows the id and nothing else.
    let other = b.lease("k").unwrap();
    let end = other.release(&other.lease_of(lease.id())).await.unwrap();
    assert_eq!(end, HoldEnd::Released);
    assert_eq!(past(&locks, "k").await, ["a released"]);
    assert_eq!(story(&b, "k").await, ["a granted", "a released"]);
    // An id that holds nothing leaves nothing.
    let end = other.release(&other.lease_of(lease.id())).await.unwrap();
    assert!(matches!(end, HoldEnd::Lost(_)));
    assert_eq!(story(&b, "k").await.len(), 2);
}

#[tokio::test]
async fn a_kept_place_waits_until_it_is_granted() {
    let locks = Locks::memory();
    let a = writing(&locks, "a").lease("k").unwrap().acquire().await.unwrap();
    let b = writing(&locks, "b").lease("k").unwrap();
    let b = b.configure(|o| o.max_wait(ms(10))).unwrap();
    let id = ClaimId::random().unwrap();
    for _ in 0..2 {
        assert!(matches!(b.acquire_or_queue(id).await.unwrap(), QueueOutcome::Waiting { .. }));
        let visits = locks.history("k", 10).await.unwrap();
        assert_eq!(visits.len(), 2, "{visits:?}");
        assert_eq!(of(&visits, "b").state, HoldRecordState::Waiting);
    }
    locks.lease("k").unwrap().release(&a).await.unwrap();
    let QueueOutcome::Granted(lease) = b.acquire_or_queue(id).await.unwrap() else {
        panic!("it waits")
    };
    let visits = locks.history("k", 10).await.unwrap();
    assert_eq!(of(&visits, "b").state, HoldRecordState::Held, "{visits:?}");
    assert_eq!(b.release(&lease).await.unwrap(), HoldEnd::Released);
    let visits = locks.history("k", 10).await.unwrap();
    assert_eq!(
        (visits.len(), &of(&visits, "b").state),
        (2, &HoldRecordState::Released),
        "{visits:?}"
    );
}

#[tokio::test]
async fn a_call_that_is_repeated_under_its_id_is_one_visit() {
    let locks = writing(&Locks::memory(), "a");
    let leases = locks.lease("k").unwrap();
    let id = ClaimId::random().unwrap();
    let lease = leases.acquire_as(id).await.unwrap();
    let again = leases.acquire_as(id).await.unwrap();
    assert_eq!(lease.fence(), again.fence());
    assert_eq!(past(&locks, "k").await, ["a held"]);
    assert_eq!(leases.release(&lease).await.unwrap(), HoldEnd::Released);
    assert_eq!(past(&locks, "k").await, ["a released"]);
}

#[tokio::test]
async fn a_lease_that_ran_out_before_its_release_was_lost() {
    let locks = writing(&Locks::memory(), "a");
    let leases = locks.lease("k").unwrap().configure(|o| o.ttl(ms(100))).unwrap();
    let lease = leases.acquire().await.unwrap();
    until("it ran out", async || locks.inspect("k").await.unwrap().is_free()).await;
    assert!(matches!(leases.release(&lease).await.unwrap(), HoldEnd::Lost(_)));
    assert_eq!(past(&locks, "k").await, ["a lost"]);
    assert_eq!(locks.stats().losses, 1);
}
