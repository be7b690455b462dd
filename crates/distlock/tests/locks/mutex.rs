//! One at a time, first come, first served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Backoff, Error, HoldEnd, LossReason, WaitMode};
use distlock_core::{Answer, Busy};
use distlock_testkit::ScriptedReply;

use crate::support::{World, go, is_held, is_timeout, ms, pass, queued, scripted, secs};

#[tokio::test(start_paused = true)]
async fn a_held_key_refuses_a_single_attempt_at_once() {
    let world = World::new();
    let mine = world.locks().configure(|o| o.owner("ci-7").reason("deploy")).unwrap();
    let guard = mine.mutex("k").unwrap().lock().await.unwrap();
    pass(secs(4)).await;
    let before = tokio::time::Instant::now();
    match world.locks().mutex("k").unwrap().try_lock().await {
        Err(Error::Held { key, retry_after, holder, ahead }) => {
            assert_eq!((key.as_str(), ahead), ("k", 0));
            assert_eq!(retry_after, Some(secs(26)), "shrinks as the lease ages");
            let holder = holder.unwrap();
            assert_eq!(holder.owner.as_str(), "ci-7");
            assert_eq!(holder.reason.unwrap().as_str(), "deploy");
            assert_eq!((holder.fence, holder.held_for), (guard.fence(), secs(4)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(before.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_ends_in_time_and_not_before() {
    let world = World::new();
    let _guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    for max_wait in [ms(1), ms(100), secs(3), secs(300)] {
        let other = world.locks().configure(|o| o.max_wait(max_wait)).unwrap().mutex("k").unwrap();
        for attempt in [other.lock().await, other.try_lock_for(max_wait).await] {
            match attempt {
                Err(Error::Timeout { waited, source: None, .. }) => {
                    assert!(waited >= max_wait && waited <= max_wait + ms(2), "{waited:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_no_length_is_a_single_attempt() {
    let world = World::new();
    let _guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let other = world.locks().configure(|o| o.max_wait(ms(0))).unwrap().mutex("k").unwrap();
    assert!(is_held(&other.lock().await));
    assert!(is_held(&other.try_lock_for(ms(0)).await));
    assert_eq!(world.locks().inspect("k").await.unwrap().waiters_total, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_enters_as_soon_as_the_holder_leaves() {
    let world = World::new();
    for drops in [false, true] {
        let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
        let waiter = world.locks().mutex("k").unwrap();
        let waiting = go(async move { waiter.lock().await });
        queued(&world.locks(), "k", 1).await;
        pass(secs(100)).await;
        let left = tokio::time::Instant::now();
        if drops {
            drop(guard);
        } else {
            assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
        }
        let entered = waiting.await.unwrap().unwrap();
        assert!(left.elapsed() <= ms(1), "{:?}", left.elapsed());
        assert!(entered.waited() >= secs(100));
        assert_eq!(entered.attempts(), 1, "it polled instead of queueing");
        entered.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_waiters_of_ten_processes_are_served_as_they_came() {
    let world = World::new();
    let processes: Vec<_> = (0..10).map(|_| world.locks()).collect();
    let holder = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let mut waiting = Vec::new();
    for n in 0..50 {
        let mutex = processes[n * 7 % 10].mutex("k").unwrap();
        let served = Arc::clone(&served);
        waiting.push(go(async move {
            let guard = mutex.lock().await?;
            let turn = served.fetch_add(1, Ordering::SeqCst);
            pass(ms(300)).await;
            let alone = served.load(Ordering::SeqCst) == turn + 1;
            assert_eq!(guard.release().await?, HoldEnd::Released);
            Ok((turn, alone))
        }));
        queued(&processes[0], "k", n as u64 + 1).await;
    }
    pass(secs(10)).await;
    holder.release().await.unwrap();
    for (n, task) in waiting.into_iter().enumerate() {
        assert_eq!(task.await.unwrap().unwrap(), (n, true));
    }
    assert!(processes[0].inspect("k").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_single_attempt_never_overtakes_those_who_wait() {
    let world = World::new();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let (locks, network) = world.faulty();
    let slow = locks.mutex("k").unwrap();
    let waiting = go(async move { slow.lock().await });
    queued(&world.locks(), "k", 1).await;
    network.cut();
    guard.release().await.unwrap();
    let late = world.locks().mutex("k").unwrap().try_lock().await;
    assert!(is_held(&late), "the waiter was granted it, though it cannot know yet");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_makes_room_for_the_next_at_once() {
    let world = World::new();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let [head, next] = [(); 2].map(|()| world.locks().mutex("k").unwrap());
    let first = go(async move { head.lock().await });
    queued(&world.locks(), "k", 1).await;
    let second = go(async move { next.lock().await });
    queued(&world.locks(), "k", 2).await;
    first.abort();
    pass(ms(1)).await;
    assert_eq!(world.locks().inspect("k").await.unwrap().waiters_total, 1);
    guard.release().await.unwrap();
    assert!(second.await.unwrap().unwrap().waited() < ms(10));
}

#[tokio::test(start_paused = true)]
async fn ten_that_ask_at_once_have_one_winner() {
    let world = World::new();
    let tasks: Vec<_> = (0..10)
        .map(|_| world.locks().mutex("k").unwrap())
        .map(|mutex| go(async move { mutex.try_lock().await }))
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.extend(task.await.unwrap().ok());
    }
    assert_eq!(guards.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_keys_never_meet() {
    let world = World::new();
    let names = ["a", "a ", "A", "a:b", "a:", "a/b", "a{b}", "{a}b", "é", "e\u{301}", "%41", "\0"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(world.locks().mutex(name).unwrap().try_lock().await.unwrap());
    }
    assert!(guards.iter().zip(names).all(|(guard, name)| guard.key().as_str() == name));
}

#[tokio::test(start_paused = true)]
async fn polling_tries_as_often_as_it_may() {
    let world = World::new();
    let _guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    for retries in [0, 1, 5] {
        let poll = WaitMode::Poll(Backoff::fixed(ms(200)).max_retries(retries));
        let mutex = world.locks().configure(|o| o.wait_mode(poll)).unwrap().mutex("k").unwrap();
        let before = tokio::time::Instant::now();
        match mutex.lock().await {
            Err(Error::RetriesExhausted { attempts, .. }) => assert_eq!(attempts, retries + 1),
            other => panic!("{other:?}"),
        }
        assert!(before.elapsed() >= ms(200) * retries);
        assert_eq!(world.locks().inspect("k").await.unwrap().waiters_total, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn polling_without_a_pause_neither_panics_nor_spins() {
    let (locks, store) = scripted();
    let busy = Busy { ticket: None, ahead: 0, retry_after: Some(ms(0)), holder: None };
    store.always_acquire(Answer::Busy(busy));
    let poll = WaitMode::Poll(Backoff::fixed(ms(0)));
    let mutex = locks.configure(|o| o.wait_mode(poll)).unwrap().mutex("k").unwrap();
    assert!(is_timeout(&mutex.try_lock_for(ms(100)).await));
    assert!(store.count_acquires() <= 101, "{} attempts", store.count_acquires());
}

#[tokio::test(start_paused = true)]
async fn one_slow_attempt_is_not_followed_by_a_burst() {
    let (locks, store) = scripted();
    let busy = Busy { ticket: None, ahead: 0, retry_after: None, holder: None };
    store.on_acquire(ScriptedReply::from(Answer::Busy(busy.clone())).after(secs(3)));
    (0..5).for_each(|_| store.on_acquire(Answer::Busy(busy.clone())));
    let poll = WaitMode::Poll(Backoff::fixed(ms(500)));
    let mutex = locks.configure(|o| o.wait_mode(poll)).unwrap().mutex("k").unwrap();
    drop(mutex.lock().await.unwrap());
    let sent: Vec<_> = store.acquires().into_iter().map(|(at, _)| at).collect();
    assert_eq!(sent[0], ms(0), "the first attempt is immediate");
    assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= ms(500)), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_frees_the_key_at_its_end_and_the_waiter_enters() {
    let world = World::new();
    let dead = world.locks().configure(|o| o.ttl(secs(10))).unwrap();
    let lease = dead.lease("k").unwrap().acquire().await.unwrap();
    let guard = world.locks().mutex("k").unwrap().lock().await.unwrap();
    assert!(guard.waited() >= secs(10) && guard.waited() <= ms(10_010), "{:?}", guard.waited());
    assert!(guard.fence() > lease.fence());
}

#[tokio::test(start_paused = true)]
async fn a_closed_front_door_says_so() {
    let world = World::new();
    let locks = world.locks();
    let other = world.locks().mutex("k").unwrap().lock().await.unwrap();
    let waiter = locks.mutex("k").unwrap();
    let waiting = go(async move { waiter.lock().await });
    queued(&world.locks(), "k", 1).await;
    let mine = locks.mutex("mine").unwrap().lock().await.unwrap();
    locks.close().await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(locks.mutex("x").unwrap().try_lock().await, Err(Error::Closed)));
    assert_eq!(mine.release().await.unwrap(), HoldEnd::Lost(LossReason::Closed));
    assert!(locks.inspect("mine").await.unwrap().is_free());
    assert_eq!(locks.inspect("k").await.unwrap().waiters_total, 0);
    assert!(other.is_held());
    locks.close().await.unwrap();
}
