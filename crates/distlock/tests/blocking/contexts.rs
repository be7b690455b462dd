//! Where a blocking call may be made, and where it is refused.

use std::cell::RefCell;
use std::time::Duration;

use distlock::Error;
use distlock::blocking::{Guard, Locks};

use crate::two;

fn refused<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::AsyncContext))
}

async fn is_refused_everywhere(locks: Locks) {
    let mutex = locks.mutex("k").unwrap();
    assert!(refused(&mutex.lock()));
    assert!(refused(&mutex.try_lock()));
    assert!(refused(&locks.semaphore("k", 2).unwrap().acquire()));
    assert!(refused(&locks.lease("k").unwrap().acquire()));
    assert!(refused(&locks.inspect("k")));
    assert!(refused(&locks.close()));
    tokio::task::yield_now().await;
    assert!(refused(&mutex.try_lock()), "the budget of the task is new");
}

#[tokio::test]
async fn an_async_task_is_told_and_goes_on() {
    is_refused_everywhere(Locks::memory().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_one_on_another_runtime() {
    is_refused_everywhere(Locks::memory().unwrap()).await;
    tokio::spawn(is_refused_everywhere(Locks::memory().unwrap())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_threads_of_a_runtime_may_block() {
    let locks = Locks::memory().unwrap();
    let mutex = locks.mutex("k").unwrap();
    let here = mutex.clone();
    let fence = tokio::task::spawn_blocking(move || here.with(|guard| guard.fence()));
    let first = fence.await.unwrap().unwrap();
    let second = tokio::task::block_in_place(|| mutex.lock().unwrap().fence());
    assert!(second > first);
}

#[test]
fn a_guard_that_is_dropped_in_a_task_is_released_in_the_background() {
    let [here, there] = two();
    let guard = here.mutex("k").unwrap().lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async move { drop(guard) });
    assert!(there.mutex("k").unwrap().try_lock_for(Duration::from_secs(10)).is_ok());
    let guard = here.mutex("k").unwrap().lock().unwrap();
    assert!(refused(&runtime.block_on(async move { guard.release() })));
    assert!(there.mutex("k").unwrap().try_lock_for(Duration::from_secs(10)).is_ok());
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn a_guard_may_be_dropped_while_its_thread_is_torn_down() {
    let [here, there] = two();
    let mutex = here.mutex("k").unwrap();
    let keeps = move || KEPT.with(|kept| *kept.borrow_mut() = Some(mutex.lock().unwrap()));
    std::thread::spawn(keeps).join().unwrap();
    assert!(there.mutex("k").unwrap().try_lock_for(Duration::from_secs(10)).is_ok());
}

#[test]
fn a_panic_releases() {
    let [here, there] = two();
    let mutex = here.mutex("k").unwrap();
    let panics = std::thread::spawn(move || {
        let _guard = mutex.lock().unwrap();
        panic!("as planned");
    });
    assert!(panics.join().is_err());
    assert!(there.mutex("k").unwrap().try_lock().is_ok());
}

#[test]
fn a_thread_that_is_blocked_for_longer_than_its_lease_keeps_it() {
    let [here, there] = two();
    let here = here.configure(|o| o.ttl(Duration::from_secs(2))).unwrap();
    let guard = here.mutex("k").unwrap().lock().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(guard.is_held());
    assert!(there.mutex("k").unwrap().try_lock().is_err());
}
