//! At most n at once.

use distlock::{Error, HoldEnd, Semaphore};

use crate::support::{World, crash, go, is_held, is_timeout, ms, pass, queued, secs};

fn of(world: &World, permits: u32) -> Semaphore {
    world.locks().semaphore("k", permits).unwrap()
}

fn names_permits<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Invalid(bad)) if bad.what == "permits")
}

#[tokio::test(start_paused = true)]
async fn as_many_as_there_are_permits_hold_at_once() {
    let world = World::new();
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(of(&world, 5).try_acquire().await.unwrap());
    }
    assert!(is_held(&of(&world, 5).try_acquire().await));
    pass(secs(120)).await;
    assert!(guards.iter().all(distlock::Guard::is_held));
    guards.pop().unwrap().release().await.unwrap();
    assert!(of(&world, 5).try_acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_permits_are_inside_under_contention() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let world = World::new();
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for n in 0..60 {
        let (semaphore, inside, most) = (of(&world, 3), Arc::clone(&inside), Arc::clone(&most));
        tasks.push(go(async move {
            let guard = semaphore.acquire().await?;
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            pass(ms(20 + n % 7)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), HoldEnd::Released);
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn weights_add_up() {
    let world = World::new();
    let three = of(&world, 5).acquire_many(3).await.unwrap();
    assert!(is_held(&of(&world, 5).try_acquire_many(3).await));
    let two = of(&world, 5).try_acquire_many(2).await.unwrap();
    assert!(is_timeout(&of(&world, 5).try_acquire_many_for(2, ms(50)).await));
    three.release().await.unwrap();
    pass(ms(1)).await;
    assert!(of(&world, 5).try_acquire_many_for(3, ms(50)).await.is_ok());
    two.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_small_request_does_not_overtake_a_large_one() {
    let world = World::new();
    let one = of(&world, 3).acquire().await.unwrap();
    let large = of(&world, 3);
    let waiting = go(async move { large.acquire_many(3).await });
    queued(&world.locks(), "k", 1).await;
    assert!(is_held(&of(&world, 3).try_acquire().await), "there is room, but a client waits");
    assert!(is_held(&of(&world, 100).try_acquire().await), "nor with a larger number");
    one.release().await.unwrap();
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_changes_the_number_without_evicting_anybody() {
    let world = World::new();
    let mut old = Vec::new();
    for _ in 0..4 {
        old.push(of(&world, 4).acquire().await.unwrap());
    }
    assert!(is_held(&of(&world, 2).try_acquire().await), "fewer: waits until it fits");
    let more = of(&world, 6).try_acquire().await.unwrap();
    assert!(is_held(&of(&world, 4).try_acquire().await), "the old ones count the new one");
    pass(secs(60)).await;
    assert!(old.iter().chain([&more]).all(distlock::Guard::is_held));
    for guard in old {
        guard.release().await.unwrap();
    }
    assert!(of(&world, 2).try_acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_all_permits_holds_alone_whatever_others_believe() {
    let world = World::new();
    let all = of(&world, 3).acquire_many(3).await.unwrap();
    for permits in [1, 3, 4, 1_000_000] {
        assert!(is_held(&of(&world, permits).try_acquire().await), "{permits}");
    }
    all.release().await.unwrap();
    let one = of(&world, 1_000).acquire().await.unwrap();
    assert!(is_held(&of(&world, 3).try_acquire_many(3).await));
    assert!(is_held(&of(&world, 1).try_acquire().await));
    assert!(of(&world, 3).try_acquire_many(2).await.is_ok());
    one.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_crashed_holder_gives_its_permits_back_at_the_end_of_its_lease() {
    let world = World::new();
    let short = world.locks().configure(|o| o.ttl(secs(2))).unwrap();
    crash(short.semaphore("k", 3).unwrap().acquire_many(2).await.unwrap());
    let _one = of(&world, 3).acquire().await.unwrap();
    let two = of(&world, 3).acquire_many(2).await.unwrap();
    assert!(two.waited() <= ms(2_010), "{:?}", two.waited());
}

#[tokio::test(start_paused = true)]
async fn several_waiters_enter_together_when_a_large_holder_leaves() {
    let world = World::new();
    let all = of(&world, 4).acquire_many(4).await.unwrap();
    let mut waiting = Vec::new();
    for (n, weight) in [1, 2, 1, 1].into_iter().enumerate() {
        let semaphore = of(&world, 4);
        waiting.push(go(async move { semaphore.acquire_many(weight).await }));
        queued(&world.locks(), "k", n as u64 + 1).await;
    }
    all.release().await.unwrap();
    pass(ms(1)).await;
    let finished: Vec<_> = waiting.iter().map(tokio::task::JoinHandle::is_finished).collect();
    assert_eq!(finished, [true, true, true, false]);
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn impossible_numbers_are_refused_by_name() {
    let world = World::new();
    assert!(names_permits(world.locks().semaphore("k", 0)));
    assert!(names_permits(world.locks().semaphore("k", u32::MAX)));
    let three = of(&world, 3);
    assert_eq!((three.permits(), three.key().as_str()), (3, "k"));
    for n in [0, 4, u32::MAX] {
        assert!(names_permits(three.acquire_many(n).await), "{n}");
        assert!(names_permits(three.try_acquire_many(n).await), "{n}");
        assert!(names_permits(three.try_acquire_many_for(n, secs(1)).await), "{n}");
    }
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn one_permit_is_a_mutex() {
    let world = World::new();
    let guard = of(&world, 1).acquire().await.unwrap();
    assert!(is_held(&world.locks().mutex("k").unwrap().try_lock().await));
    guard.release().await.unwrap();
    let _guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    assert!(is_held(&of(&world, 1).try_acquire().await));
    assert!(is_held(&of(&world, 9).try_acquire().await));
}

#[tokio::test(start_paused = true)]
async fn with_gives_the_permit_back() {
    let world = World::new();
    let semaphore = of(&world, 1);
    for _ in 0..3 {
        semaphore.with(async |guard| assert!(guard.is_held())).await.unwrap();
    }
    assert!(world.locks().inspect("k").await.unwrap().is_free());
}
