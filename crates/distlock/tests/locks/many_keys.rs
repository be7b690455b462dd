//! Several keys at once: all or none, in one sequence, with one loss.

use distlock::{Error, HoldEnd, Key, Locks, LossReason};
use distlock_testkit::Faults;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::support::{World, go, is_held, is_timeout, ms, pass, queued, secs};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// Two processes on a store that takes all keys in one call, and two on one that does not.
fn pairs() -> [[Locks; 2]; 2] {
    let (one, other) = (World::new(), World::new());
    let one_by_one = || other.hung_on("no key");
    [[one.locks(), one.locks()], [one_by_one(), one_by_one()]]
}

async fn is_free(locks: &Locks, key: &str) -> bool {
    locks.inspect(key).await.unwrap().is_free()
}

#[tokio::test(start_paused = true)]
async fn all_are_held_each_with_its_own_fence_and_all_are_released() {
    for [here, there] in pairs() {
        let guard = here.all(["c", "a", "b", "a"]).unwrap().lock().await.unwrap();
        assert_eq!(guard.keys().map(Key::as_str).collect::<Vec<_>>(), KEYS);
        let mut fences = Vec::new();
        for key in KEYS {
            assert!(is_held(&there.mutex(key).unwrap().try_lock().await));
            let seen = there.inspect(key).await.unwrap().holders[0].fence;
            assert_eq!(guard.fence(key), Some(seen));
            fences.push((key, seen));
        }
        assert!(guard.is_held() && guard.remaining() > secs(29) && guard.fence("d").is_none());
        for (key, end) in guard.release().await {
            assert_eq!(end.unwrap(), HoldEnd::Released, "{key}");
        }
        for (key, fence) in fences {
            assert!(there.mutex(key).unwrap().try_lock().await.unwrap().fence() > fence);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_in_use_leaves_none_taken() {
    for [here, there] in pairs() {
        for rival in KEYS {
            let held = there.mutex(rival).unwrap().lock().await.unwrap();
            let all = here.all(KEYS).unwrap();
            match all.try_lock().await {
                Err(Error::Held { key, .. }) => assert_eq!(key.as_str(), rival),
                other => panic!("{other:?}"),
            }
            let began = Instant::now();
            match all.try_lock_for(ms(500)).await {
                Err(Error::Timeout { key, waited, .. }) => {
                    assert_eq!(key.as_str(), rival);
                    assert!(waited >= ms(500), "{waited:?}");
                }
                other => panic!("{other:?}"),
            }
            assert!(began.elapsed() < ms(700), "{:?}", began.elapsed());
            for key in KEYS.into_iter().filter(|key| *key != rival) {
                assert!(is_free(&there, key).await, "{key} is left");
            }
            held.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_deadline_counts_for_all_keys() {
    for [here, there] in pairs() {
        let (a, b) = (
            there.mutex("a").unwrap().lock().await.unwrap(),
            there.mutex("b").unwrap().lock().await.unwrap(),
        );
        let all = here.all(KEYS).unwrap().configure(|o| o.max_wait(secs(10))).unwrap();
        let waiting = go(async move { all.lock().await });
        pass(secs(6)).await;
        drop(a);
        pass(secs(3)).await;
        assert!(!waiting.is_finished());
        pass(ms(1_200)).await;
        assert!(waiting.is_finished(), "the second key had a deadline of its own");
        assert!(is_timeout(&waiting.await.unwrap()));
        drop(b);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_holds_what_comes_before_and_gets_its_turn() {
    for [here, there] in pairs() {
        let held = there.mutex("b").unwrap().lock().await.unwrap();
        let all = here.all(KEYS).unwrap();
        let waiting = go(async move { all.lock().await });
        queued(&there, "b", 1).await;
        assert!(!is_free(&there, "a").await, "held in sequence");
        assert!(is_free(&there, "c").await, "not before its turn");
        // No later client overtakes.
        assert!(is_held(&there.mutex("b").unwrap().try_lock().await));
        held.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.fences().count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn overlapping_sets_in_any_sequence_never_wait_in_a_circle() {
    for clients in pairs() {
        let sets = [["a", "b", "c"], ["c", "b", "a"], ["b", "d", "a"], ["d", "c", "b"]];
        let mut workers = Vec::new();
        for (number, set) in sets.into_iter().cycle().take(16).enumerate() {
            let all = clients[number % 2].all(set).unwrap();
            workers.push(go(async move {
                for _ in 0..20 {
                    let guard = all.lock().await?;
                    pass(ms(number as u64 % 3)).await;
                    guard.release().await.into_iter().for_each(|(_, end)| assert!(end.is_ok()));
                }
                Ok(())
            }));
        }
        for worker in workers {
            timeout(secs(600), worker).await.expect("no circle").unwrap().unwrap();
        }
        for locks in &clients {
            assert_eq!(locks.stats().held, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_key_is_the_loss_of_all() {
    for [here, there] in pairs() {
        let guard = here.all(KEYS).unwrap().lock().await.unwrap();
        let token = guard.cancellation();
        there.break_hold("b", guard.fence("b").unwrap()).await.unwrap();
        token.cancelled().await;
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let (key, reason) = guard.lost().await;
        assert_eq!((key.as_str(), reason), ("b", LossReason::Broken));
        assert_eq!(guard.loss(), Some((key, reason)));
        let work = guard.run(std::future::pending::<()>()).await;
        assert!(matches!(work, Err(Error::Lost { reason: LossReason::Broken, .. })));
        let ends: Vec<_> = guard.release().await.into_iter().map(|(_, end)| end.unwrap()).collect();
        assert_eq!(ends, [HoldEnd::Released, HoldEnd::Lost(LossReason::Broken), HoldEnd::Released]);
        assert!(here.all(KEYS).unwrap().try_lock().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_lost_while_another_is_waited_for_is_taken_anew() {
    for [here, there] in pairs() {
        let held = there.mutex("b").unwrap().lock().await.unwrap();
        let all = here.all(KEYS).unwrap();
        let waiting = go(async move { all.lock().await });
        queued(&there, "b", 1).await;
        let first = there.inspect("a").await.unwrap().holders[0].fence;
        there.break_hold("a", first).await.unwrap();
        queued(&there, "b", 1).await;
        held.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        assert!(guard.is_held() && guard.fence("a").unwrap() > first);
    }
}

#[tokio::test(start_paused = true)]
async fn one_release_that_fails_stops_no_other_and_is_named() {
    let world = World::new();
    let locks = world.hung_releasing("b");
    let locks = locks.configure(|o| o.release_timeout(ms(300))).unwrap();
    let guard = locks.all(KEYS).unwrap().lock().await.unwrap();
    let ends = guard.release().await;
    let failed: Vec<_> =
        ends.iter().filter(|(_, end)| end.is_err()).map(|(key, _)| key.as_str()).collect();
    assert_eq!(failed, ["b"], "{ends:?}");
    assert!(is_free(&world.locks(), "a").await && is_free(&world.locks(), "c").await);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_one_call_costs_time_and_nothing_else() {
    let world = World::new();
    let (locks, network) = world.faulty();
    network.set(Faults { lose_reply: 1.0, response_timeout: ms(100), ..Faults::NONE });
    let all = locks.all(KEYS).unwrap();
    let waiting = go(async move { all.lock().await });
    pass(ms(50)).await;
    network.heal();
    let guard = timeout(secs(10), waiting).await.unwrap().unwrap().unwrap();
    assert!(guard.is_held());
    drop(guard);
    locks.drained().await.unwrap();
    for key in KEYS {
        assert!(is_free(&world.locks(), key).await, "{key} is left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_and_a_close_end_the_wait_and_leave_nothing() {
    for [here, there] in pairs() {
        let held = there.mutex("b").unwrap().lock().await.unwrap();
        let token = CancellationToken::new();
        let parent = token.clone();
        let all = here.all(KEYS).unwrap().configure(|o| o.cancel_on(parent)).unwrap();
        let waiting = go(async move { all.lock().await });
        queued(&there, "b", 1).await;
        token.cancel();
        assert!(matches!(waiting.await.unwrap(), Err(Error::Cancelled { .. })));
        let all = here.all(KEYS).unwrap();
        let waiting = go(async move { all.lock().await });
        queued(&there, "b", 1).await;
        here.close().await.unwrap();
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
        drop(held);
        there.drained().await.unwrap();
        for key in KEYS {
            assert!(is_free(&there, key).await, "{key} is left");
        }
    }
}

#[tokio::test]
async fn too_few_and_too_many_keys_are_refused() {
    let locks = Locks::memory();
    assert!(matches!(locks.all(Vec::<String>::new()), Err(Error::Invalid(_))));
    let many = |n: usize| locks.all((0..n).map(|n| n.to_string()));
    assert!(many(64).is_ok() && many(65).is_err());
    assert!(locks.all(["a", ""]).is_err());
}
