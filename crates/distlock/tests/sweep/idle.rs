//! The sweep of calls that are alive and not polled: no other call waits for them, on any store.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use distlock::{Error, Locks};
use distlock_testkit::servers::RedisServer;
use distlock_testkit::sweep::sweep_unpolled;
use tokio::task::JoinHandle;

use crate::calls::{CALLS, Call, Running};
use crate::prop::Prop;
use crate::soak;
use crate::stage::{KEY, SITUATIONS, Situation, Stage, long_lived};
use crate::tombstones::Graves;

/// Other calls take a few round trips. A heartbeat, a response timeout or a lease that they would
/// have to wait for is longer.
const BOUND: Duration = Duration::from_secs(2);

/// The same where requests and replies get lost and are repeated.
const BOUND_IN_CHAOS: Duration = Duration::from_secs(30);

/// Takes a key of its own and gives it back.
async fn goes_on(locks: &Locks) -> Result<(), Error> {
    let guard = locks.mutex("another key").unwrap().lock().await?;
    guard.release().await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_polled_delays_no_other_in_memory() {
    let mut left_alone = 0;
    for call in CALLS.iter().filter(|call| !closes(call)) {
        for situation in SITUATIONS {
            let chaos = situation == Situation::Chaos;
            let bound = if chaos { BOUND_IN_CHAOS } else { BOUND };
            for seed in 0..soak() {
                let slot = RefCell::new(None);
                #[expect(clippy::async_yields_async, reason = "the sweep polls the call")]
                let make = async || {
                    let stage = Stage::prepare(call, situation, seed, Graves::Kept).await;
                    let running = stage.play(call);
                    slot.replace(Some(stage));
                    running
                };
                let others = async |_| {
                    let stage = slot.take().expect("make has put it there");
                    for locks in stage.clients() {
                        let went_on = goes_on(locks).await;
                        assert!(chaos || went_on.is_ok(), "{}: {went_on:?}", call.name);
                    }
                };
                left_alone += sweep_unpolled(make, bound, others).await;
            }
        }
    }
    println!("{left_alone} calls were left alone");
    assert!(left_alone >= 1_000, "only {left_alone}");
}

/// Calls that give up all of the key. Once polled, they withhold it from no client.
const RELEASES: [&str; 3] = ["Guard::release", "WriteGuard::release", "Leases::release"];

/// Closing is meant to end the other calls of its client.
fn closes(call: &Call) -> bool {
    call.name.starts_with("Locks::close")
}

/// Two clients of a real store, and what a call needs there.
struct Clients {
    locks: Locks,
    other: Locks,
    prop: Rc<Prop>,
    rival: Option<JoinHandle<()>>,
}

impl Clients {
    async fn prepare(call: &Call, url: &str) -> Self {
        let [locks, other] = [(); 2].map(|()| long_lived(&Locks::connect(url).unwrap()));
        let prop = Rc::new((call.prepare)(locks.clone()).await);
        let rival = Stage::rival(call, Situation::Pushed, &other).await;
        Self { locks, other, prop, rival }
    }

    fn play(&self, call: &Call) -> Running {
        (call.run)(self.locks.clone(), Rc::clone(&self.prop))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let Some(rival) = &self.rival {
            rival.abort();
        }
    }
}

/// Leaves every call alone at every point on a store, of which `url` names a new one each time.
async fn on_store(mut url: impl FnMut(usize) -> String) {
    assert!(RELEASES.iter().all(|name| CALLS.iter().any(|call| call.name == *name)));
    let (left_alone, stores) = (Cell::new(0), Cell::new(0));
    for call in CALLS.iter().filter(|call| !closes(call)) {
        for _ in 0..soak() {
            let slot = RefCell::new(None);
            #[expect(clippy::async_yields_async, reason = "the sweep polls the call")]
            let make = async || {
                stores.set(stores.get() + 1);
                let clients = Clients::prepare(call, &url(stores.get())).await;
                let running = clients.play(call);
                slot.replace(Some(clients));
                running
            };
            let others = async |_| {
                let clients = slot.take().expect("make has put it there");
                goes_on(&clients.locks).await.unwrap();
                goes_on(&clients.other).await.unwrap();
                if RELEASES.contains(&call.name) {
                    let guard = clients.other.mutex(KEY).unwrap().lock().await.unwrap();
                    guard.release().await.unwrap();
                }
            };
            left_alone.set(left_alone.get() + sweep_unpolled(make, BOUND, others).await);
        }
    }
    println!("{} calls were left alone", left_alone.get());
    assert!(left_alone.get() > 100, "only {}", left_alone.get());
}

#[tokio::test]
async fn a_call_that_is_not_polled_delays_no_other_on_sqlite() {
    let folder = std::env::temp_dir().join(format!("distlock-idle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    on_store(|number| format!("sqlite:{}", folder.join(number.to_string()).display())).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_call_that_is_not_polled_delays_no_other_on_redis() {
    let server = RedisServer::start();
    on_store(|number| format!("{}?namespace=n{number}", server.url())).await;
}
