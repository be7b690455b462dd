//! The cancel sweep: every public async fn is dropped at every point at which it can be dropped,
//! and nothing is left of it at the store or in the keeper. It is also left alone, alive and not
//! polled, at every such point, and no other call waits for it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod calls;
mod idle;
mod listing;
mod prop;
mod stage;
mod tombstones;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use calls::{CALLS, Call};
use distlock::Locks;
use distlock::backends::Memory;
use distlock::clock::TokioClock;
use distlock_testkit::sweep::sweep;
use distlock_testkit::{Faults, Faulty};
use stage::{SITUATIONS, Situation, Stage};
use tombstones::Graves;

/// What CI asks for at least, whatever `DISTLOCK_SOAK` multiplies it by.
const CANCELLATIONS_MIN: usize = 10_000;

/// Networks per call and situation, times `DISTLOCK_SOAK`.
const SEEDS: u64 = 9;

/// How many leftovers a failure shows.
const SHOWN: usize = 40;

fn soak() -> u64 {
    std::env::var("DISTLOCK_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// What was dropped, and what it left behind.
#[derive(Default)]
struct Swept {
    cancellations: usize,
    leftovers: Vec<String>,
}

impl Swept {
    /// Drops one call at every point in one situation. Every drop has a stage of its own.
    async fn sweep(&mut self, call: &Call, situation: Situation, seed: u64, graves: Graves) {
        let prepare = async || Stage::prepare(call, situation, seed, graves).await;
        let slot = RefCell::new(Some(prepare().await));
        let make = || {
            let stage = slot.borrow();
            stage.as_ref().expect("a stage is prepared before every call").play(call)
        };
        let leftovers = &mut self.leftovers;
        let after = async |polls| {
            let stage = slot.take().expect("the stage of the call that was dropped");
            for left in stage.leftovers().await {
                let name = call.name;
                leftovers.push(format!("{name} {situation:?} seed {seed} polls {polls}: {left}"));
            }
            slot.replace(Some(prepare().await));
        };
        self.cancellations += sweep(make, after).await;
        if let Some(stage) = slot.take() {
            self.leftovers.extend(stage.leftovers().await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_point_leaves_nothing() {
    let mut swept = Swept::default();
    for call in CALLS {
        for situation in SITUATIONS {
            for seed in 0..SEEDS * soak() {
                swept.sweep(call, situation, seed, Graves::Kept).await;
            }
        }
    }
    let Swept { cancellations, leftovers } = swept;
    let (calls, situations) = (CALLS.len(), SITUATIONS.len());
    println!("{cancellations} cancellations of {calls} calls in {situations} situations");
    let shown: Vec<&str> = leftovers.iter().take(SHOWN).map(String::as_str).collect();
    assert!(leftovers.is_empty(), "{} left something:\n{}", leftovers.len(), shown.join("\n"));
    assert!(cancellations >= CANCELLATIONS_MIN, "only {cancellations} cancellations");
}

/// A sweep that cannot fail is worthless.
#[tokio::test(start_paused = true)]
async fn a_store_that_forgets_who_is_dead_is_found_out() {
    let mut swept = Swept::default();
    for call in CALLS.iter().filter(|call| call.name == "Mutex::lock") {
        swept.sweep(call, Situation::Free, 0, Graves::Forgotten).await;
    }
    let found = swept.leftovers.iter().find(|left| left.contains("left at the store"));
    println!("found in {} cancellations: {found:?}", swept.cancellations);
    assert!(found.is_some(), "{:?}", swept.leftovers);
}

/// A clock that never naps, as the runtime's own, wakes no task by the way.
#[tokio::test(start_paused = true)]
async fn a_refused_call_leaves_no_task_whatever_the_clock() {
    let clock = Arc::new(TokioClock::new());
    let store = Memory::with_clock(clock.clone());
    let holder = Locks::with_clock(Arc::new(store.client()), clock.clone());
    let held = holder.mutex("k").unwrap().lock().await.unwrap();

    let delays = Faults { delay: (1.0, Duration::from_millis(9)), ..Faults::NONE };
    let slow = Arc::new(Faulty::new(Arc::new(store.client()), 1, delays));
    let locks = Locks::with_clock(slow, clock);
    locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(locks.stats().tasks, 0, "a day later");
    drop(held);
}

#[test]
fn every_public_async_fn_is_swept() {
    let public = listing::public_async_fns();
    let swept: BTreeSet<String> = CALLS.iter().map(|call| call.name.to_owned()).collect();
    let missing: Vec<_> = public.difference(&swept).collect();
    let stale: Vec<_> = swept.difference(&public).collect();
    assert!(missing.is_empty(), "not swept: {missing:?}");
    assert!(stale.is_empty(), "swept and not there: {stale:?}");
    assert!(public.len() > 40, "the listing found only {}", public.len());
}
