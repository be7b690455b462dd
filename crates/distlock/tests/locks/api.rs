//! What types and futures promise to the compiler.

use std::fmt::Debug;
use std::time::Duration;

use distlock::backends::Memory;
use distlock::clock::{BootClock, TokioClock};
use distlock::{
    Backend, Backoff, Capabilities, ClaimId, Cursor, Error, Event, Fault, FaultKind, Guard, Health,
    HoldEnd, HoldWatcher, Holder, Invalid, Key, Label, Lease, Leases, Locks, LossReason,
    ManualClock, Moment, Mutex, NodeFaults, Options, Order, Page, ReentrantGuard, ReentrantMutex,
    ReentrantOwner, ReentryId, RwLock, Semaphore, Snapshot, Stats, WaitMode, Waiter, WriteGuard,
};

/// What everybody may expect of a public type.
fn free<T: Send + Sync + Unpin + Debug + 'static>() {}

fn copies<T: Clone>() {}

fn spawnable<T: Send>(_: &T) {}

macro_rules! each {
    ($check:ident: $($type:ty),* $(,)?) => { $($check::<$type>();)* };
}

#[test]
fn every_public_type_moves_freely_between_threads() {
    each!(free:
        Capabilities, ClaimId, Cursor, HoldEnd, Error, Event, Fault, FaultKind, Guard, Health,
        Holder, Invalid, Key, Label, Lease, Leases, Locks, ManualClock, Moment, Mutex, NodeFaults,
        Options, Order, Backoff, Page, LossReason, ReentrantGuard, ReentrantMutex, ReentrantOwner,
        ReentryId, RwLock, Semaphore, Snapshot, Stats, Waiter, WaitMode, HoldWatcher, WriteGuard,
        Memory, BootClock, TokioClock);
}

#[test]
fn handles_and_options_are_cloned_and_guards_are_not() {
    each!(copies:
        Error, Event, Fault, Key, Lease, Leases, Locks, Mutex, Options, Order, Backoff, LossReason,
        ReentrantMutex, ReentrantOwner, RwLock, Semaphore, Stats, WaitMode, HoldWatcher);
    trait NotClone {
        const CLONES: bool = false;
    }
    struct Probe<T>(std::marker::PhantomData<T>);
    impl<T> NotClone for Probe<T> {}
    impl<T: Clone> Probe<T> {
        const CLONES: bool = true;
    }
    const { assert!(Probe::<Locks>::CLONES) };
    const { assert!(!Probe::<Guard>::CLONES) };
    const { assert!(!Probe::<WriteGuard>::CLONES) };
    const { assert!(!Probe::<ReentrantGuard>::CLONES) };
}

#[test]
fn an_error_travels_as_any_error_does() {
    fn boxed(error: Error) -> Box<dyn std::error::Error + Send + Sync + 'static> {
        error.into()
    }
    assert!(boxed(Error::Closed).downcast_ref::<Error>().is_some());
    let bad = Key::new("").unwrap_err();
    assert!(matches!(Error::from(bad), Error::Invalid(_)));
}

#[test]
fn a_backend_is_an_object() {
    free::<std::sync::Arc<dyn Backend>>();
}

/// Only the types matter: no future here is ever polled.
#[test]
fn the_future_of_every_call_can_be_spawned() {
    let locks = Locks::memory();
    let second = Duration::from_secs(1);
    let id = ClaimId::from_bytes([7; 16]);
    let mutex = locks.mutex("k").unwrap();
    spawnable(&(mutex.lock(), mutex.try_lock(), mutex.try_lock_for(second)));
    let lock = locks.rwlock("k").unwrap();
    spawnable(&(lock.read(), lock.try_read(), lock.try_read_for(second)));
    spawnable(&(lock.write(), lock.try_write(), lock.try_write_for(second)));
    let owner = locks.reentrant("k").unwrap().owner().unwrap();
    spawnable(&(owner.lock(), owner.try_lock(), owner.try_lock_for(second)));
    let semaphore = locks.semaphore("k", 3).unwrap();
    spawnable(&(semaphore.acquire(), semaphore.acquire_many(2), semaphore.try_acquire()));
    spawnable(&(semaphore.try_acquire_many(2), semaphore.try_acquire_for(second)));
    spawnable(&semaphore.try_acquire_many_for(2, second));
    let leases = locks.lease("k").unwrap();
    spawnable(&(leases.acquire(), leases.try_acquire(), leases.try_acquire_for(second)));
    spawnable(&(leases.acquire_as(id), leases.try_acquire_as(id), leases.acquire_or_extend(id)));
    spawnable(&(locks.inspect("k"), locks.list("", None), locks.break_hold("k", 1)));
    spawnable(&(locks.probe(), locks.close(), locks.events()));
}

/// Never called: the guards and leases in it need not exist.
#[expect(dead_code, reason = "it has to compile and nothing else")]
fn the_futures_of_what_is_held_can_be_spawned(
    guard: (Guard, Guard),
    writer: (WriteGuard, WriteGuard),
    reentrant: ReentrantGuard,
    lease: &mut Lease,
) {
    let locks = Locks::memory();
    spawnable(&(guard.0.lost(), guard.0.run(async {}), guard.1.release()));
    let watch = guard.0.watch();
    spawnable(&watch.ended());
    spawnable(&(writer.0.downgrade(), writer.1.release(), reentrant.release()));
    spawnable(&locks.adopt(lease));
    let leases = locks.lease("k").unwrap();
    spawnable(&leases.release(lease));
    spawnable(&leases.extend(lease));
}

/// `with` takes an async closure, whose future must be `Send` if the closure's own is.
#[tokio::test]
async fn the_closure_forms_can_be_spawned() {
    let locks = Locks::memory();
    let mutex = locks.mutex("m").unwrap();
    let one = tokio::spawn(async move { mutex.with(async |guard| guard.fence()).await });
    let lock = locks.rwlock("r").unwrap();
    let two = tokio::spawn(async move {
        lock.with_read(async |guard| guard.fence()).await?;
        lock.with_write(async |guard| guard.fence()).await
    });
    let semaphore = locks.semaphore("s", 2).unwrap();
    let three = tokio::spawn(async move { semaphore.with(async |guard| guard.fence()).await });
    let owner = locks.reentrant("o").unwrap().owner().unwrap();
    let four = tokio::spawn(async move { owner.with(async |guard| guard.fence()).await });
    for task in [one, two, three, four] {
        assert!(task.await.unwrap().unwrap() > 0);
    }
}

#[test]
fn options_show_what_they_are() {
    let options = Options::default().owner("ci-7").ttl(Duration::from_secs(5));
    let shown = format!("{:?}", options.clone());
    assert!(shown.contains("ci-7") && shown.contains("5s"), "{shown}");
}

/// `Guard`, `WriteGuard`, `ReentrantGuard` and `Lease` are `#[must_use]`; a guard also says in
/// its debug output that it has ended.
#[tokio::test]
async fn a_guard_shows_its_key_fence_and_state() {
    let locks = Locks::memory();
    let guard = locks.mutex("jobs").unwrap().lock().await.unwrap();
    let shown = format!("{guard:?}");
    assert!(shown.contains("jobs") && shown.contains(&guard.fence().to_string()), "{shown}");
    assert!(shown.contains("held"), "{shown}");
    locks.break_hold("jobs", guard.fence()).await.unwrap();
    guard.lost().await;
    let shown = format!("{guard:?}");
    assert!(shown.contains("Broken") && !shown.contains("held"), "{shown}");
}
