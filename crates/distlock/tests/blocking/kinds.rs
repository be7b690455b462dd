//! Every kind of lock, from threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::blocking::Locks;
use distlock::{ClaimId, Error, HoldEnd, LossReason, QueueOutcome};

use crate::two;

const SOON: Duration = Duration::from_millis(20);

#[test]
fn threads_and_processes_exclude_each_other() {
    let (inside, entries) = (AtomicU32::new(0), AtomicU32::new(0));
    let processes = two();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let mutex = processes[thread % 2].mutex("k").unwrap();
            let (inside, entries) = (&inside, &entries);
            scope.spawn(move || {
                for _ in 0..20 {
                    let guard = mutex.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    entries.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            });
        }
    });
    assert_eq!(entries.into_inner(), 160);
}

#[test]
fn a_wait_ends_in_time_and_a_try_waits_for_nothing() {
    let [here, there] = two();
    let guard = here.mutex("k").unwrap().lock().unwrap();
    let mutex = there.mutex("k").unwrap();
    assert!(matches!(mutex.try_lock(), Err(Error::Held { .. })));
    assert!(matches!(mutex.try_lock_for(SOON), Err(Error::Timeout { .. })));
    let bounded = mutex.configure(|o| o.max_wait(SOON)).unwrap();
    assert!(matches!(bounded.lock(), Err(Error::Timeout { .. })));
    assert_eq!(guard.release().unwrap(), HoldEnd::Released);
    assert!(bounded.lock().is_ok());
}

#[test]
fn readers_share_and_a_writer_turns_into_one() {
    let [here, there] = two();
    let (ours, theirs) = (here.rwlock("k").unwrap(), there.rwlock("k").unwrap());
    let writer = ours.write().unwrap();
    assert!(theirs.try_read_for(SOON).is_err());
    let reader = writer.downgrade().unwrap();
    let other = theirs.try_read().unwrap();
    assert!(ours.try_write().is_err());
    drop((reader, other));
    assert!(ours.with_write(|guard| guard.fence()).unwrap() > 0);
}

#[test]
fn permits_are_counted() {
    let [here, there] = two();
    let (ours, theirs) = (here.semaphore("k", 3).unwrap(), there.semaphore("k", 3).unwrap());
    let two = ours.acquire_many(2).unwrap();
    let one = theirs.try_acquire().unwrap();
    assert!(theirs.try_acquire_for(SOON).is_err());
    drop(two);
    assert!(theirs.try_acquire_many(2).is_ok());
    drop(one);
    assert_eq!(ours.with(|_| ours.permits()).unwrap(), 3);
}

#[test]
fn an_owner_enters_again() {
    let [here, there] = two();
    let me = here.reentrant("k").unwrap().owner().unwrap();
    let depth = me.with(|_| me.with(|inner| inner.fence()).map(|_| me.holds())).unwrap();
    assert_eq!(depth.unwrap(), 1);
    let outer = me.lock().unwrap();
    let abroad = there.reentrant("k").unwrap();
    assert!(abroad.owner().unwrap().try_lock().is_err());
    assert!(abroad.owner_as(me.id()).try_lock().is_ok());
    drop(outer);
}

#[test]
fn leases_are_kept_by_hand() {
    let [here, there] = two();
    let leases = here.lease("k").unwrap().configure(|o| o.max_wait(Duration::ZERO)).unwrap();
    let mut lease = leases.acquire().unwrap();
    leases.extend(&mut lease).unwrap();
    let id: ClaimId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    assert!(matches!(leases.acquire_or_queue(id).unwrap(), QueueOutcome::Waiting { ahead: 0, .. }));
    assert_eq!(leases.release(&lease).unwrap(), HoldEnd::Released);
    let lease = leases.acquire_or_extend(id).unwrap();
    assert_eq!(leases.find(id).unwrap().unwrap().fence(), lease.fence());
    let adopted = there.adopt(&lease).unwrap();
    assert_eq!(adopted.into_lease().fence(), lease.fence());
}

#[test]
fn an_operator_sees_and_breaks_a_hold() {
    let [here, there] = two();
    let guard = here.mutex("k").unwrap().lock().unwrap();
    assert_eq!(there.list("", None).unwrap().locks.len(), 1);
    let seen = there.inspect("k").unwrap();
    there.break_hold("k", seen.holders[0].fence).unwrap();
    let lost = guard.lost_within(Duration::from_secs(10)).unwrap();
    assert_eq!(lost, Some(LossReason::Broken));
    assert_eq!(guard.release().unwrap(), HoldEnd::Lost(LossReason::Broken));
}

#[test]
fn work_under_a_lost_lock_is_reported() {
    let locks = Locks::memory().unwrap().configure(|o| o.max_hold(SOON)).unwrap();
    let done = locks.mutex("k").unwrap().with(|_| std::thread::sleep(SOON * 2));
    assert!(matches!(done, Err(Error::Lost { reason: LossReason::MaxHold, .. })), "{done:?}");
}

#[test]
fn several_keys_are_locked_together() {
    let [here, there] = two();
    let held = there.mutex("b").unwrap().lock().unwrap();
    let all = here.all(["b", "a"]).unwrap();
    assert!(matches!(all.try_lock(), Err(Error::Held { .. })));
    assert!(matches!(all.try_lock_for(SOON), Err(Error::Timeout { .. })));
    drop(held);
    let guard = all.lock().unwrap();
    assert!(guard.is_held() && there.mutex("a").unwrap().try_lock().is_err());
    assert!(guard.release().unwrap().iter().all(|(_, end)| end.is_ok()));
    drop(all.lock().unwrap());
    assert!(there.mutex("a").unwrap().try_lock().is_ok(), "a drop waits for the releases");
}
