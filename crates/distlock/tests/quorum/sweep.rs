//! Calls on a quorum are dropped at every point at which they can be dropped, and nothing is left.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Memory, Quorum};
use distlock::clock::TokioClock;
use distlock::{Backend, Clock, Locks, Order};
use distlock_testkit::sweep::sweep;
use distlock_testkit::{Faults, Faulty};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::named;

const KEY: &str = "swept/key";

/// Outlives every check, so that nothing is gone merely because it expired.
const TTL: Duration = Duration::from_secs(60);

/// By when nothing is left after a drop.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

const CANCELLATIONS_MIN: usize = 700;

type Running = Pin<Box<dyn Future<Output = ()>>>;

type Call = (&'static str, fn(Locks) -> Running);

/// What is dropped. A guard that comes of it goes, too.
const CALLS: [Call; 6] = [
    ("lock", |l| Box::pin(async move { drop(l.mutex(KEY).unwrap().lock().await) })),
    ("try_lock", |l| Box::pin(async move { drop(l.mutex(KEY).unwrap().try_lock().await) })),
    ("try_lock_for", |l| {
        let wait = Duration::from_millis(90);
        Box::pin(async move { drop(l.mutex(KEY).unwrap().try_lock_for(wait).await) })
    }),
    ("release", |l| {
        Box::pin(async move {
            if let Ok(guard) = l.mutex(KEY).unwrap().lock().await {
                let _ = guard.release().await;
            }
        })
    }),
    ("read", |l| {
        let lock = l.rwlock(KEY).unwrap().order(Order::PreferReaders);
        Box::pin(async move { drop(lock.read().await) })
    }),
    ("write", |l| {
        let lock = l.rwlock(KEY).unwrap().order(Order::PreferReaders);
        Box::pin(async move { drop(lock.write().await) })
    }),
];

/// In which situation a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    /// It is the first of its client, who has to look at the nodes.
    First,
    /// No claim is in the way.
    Free,
    /// Another client holds the key for a while.
    Held,
    /// Requests and answers are lost.
    Lossy,
}

const SITUATIONS: [Situation; 4] =
    [Situation::First, Situation::Free, Situation::Held, Situation::Lossy];

impl Situation {
    fn faults(self) -> Faults {
        let slow = Faults {
            delay: (1.0, Duration::from_millis(20)),
            late_after_drop: 1.0,
            late: Duration::from_millis(300),
            ..Faults::NONE
        };
        match self {
            Self::Lossy => Faults {
                lose_request: 0.2,
                lose_reply: 0.2,
                response_timeout: Duration::from_millis(100),
                ..slow
            },
            _ => slow,
        }
    }
}

/// Three stores, and a client behind three bad networks.
struct Stage {
    stores: Vec<Memory>,
    networks: Vec<Faulty>,
    locks: Locks,
    rival: Option<JoinHandle<()>>,
}

impl Stage {
    async fn prepare(situation: Situation, seed: u64) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let stores: Vec<_> = (0..3).map(|_| Memory::with_clock(Arc::clone(&clock))).collect();
        let network = |(at, store): (u64, &Memory)| {
            Faulty::new(Arc::new(store.client()), seed * 3 + at, Faults::NONE)
        };
        let networks: Vec<_> = (0..).zip(&stores).map(network).collect();
        let client = |nodes: Vec<Arc<dyn Backend>>| {
            let quorum = Quorum::new(named(nodes.into_iter())).unwrap();
            let locks = Locks::with_clock(Arc::new(quorum), Arc::clone(&clock));
            locks.configure(|o| o.ttl(TTL)).unwrap()
        };
        let locks = client(networks.iter().map(|node| Arc::new(node.clone()) as _).collect());
        let other = client(stores.iter().map(|node| Arc::new(node.client()) as _).collect());
        other.mutex("warm").unwrap().lock().await.unwrap().release().await.unwrap();
        if situation != Situation::First {
            locks.mutex("warm").unwrap().lock().await.unwrap().release().await.unwrap();
        }
        let rival = match situation {
            Situation::Held => Some(other.mutex(KEY).unwrap().lock().await.unwrap()),
            _ => None,
        };
        let rival = rival.map(|guard| {
            tokio::spawn(async move {
                sleep(Duration::from_millis(60)).await;
                guard.release().await.unwrap();
            })
        });
        networks.iter().for_each(|network| network.set(situation.faults()));
        Self { stores, networks, locks, rival }
    }

    /// What is left on the nodes and in the client.
    async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (at, store) in self.stores.iter().enumerate() {
            let keys = store.list("", None).await.unwrap().locks;
            let ours = keys.into_iter().filter(|seen| !seen.key.as_str().starts_with(".distlock/"));
            left.extend(ours.map(|seen| format!("on node {at}: {seen:?}")));
        }
        let stats = self.locks.stats();
        if stats.held + stats.waiting + stats.releasing > 0 {
            left.push(format!("in the keeper: {stats:?}"));
        }
        left
    }

    async fn leftovers(self) -> Vec<String> {
        self.networks.iter().for_each(Faulty::heal);
        if let Some(rival) = &self.rival {
            while !rival.is_finished() {
                sleep(Duration::from_millis(10)).await;
            }
        }
        let began = Instant::now();
        while !self.left().await.is_empty() && began.elapsed() < SETTLED_WITHIN {
            sleep(Duration::from_millis(50)).await;
        }
        // Whatever is still on its way arrives, and changes nothing.
        for network in &self.networks {
            network.settled().await;
        }
        sleep(Duration::from_millis(1)).await;
        self.left().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_point_leaves_nothing_on_any_node() {
    let (mut cancellations, mut leftovers) = (0, Vec::new());
    for (name, call) in CALLS {
        for situation in SITUATIONS {
            for seed in 0..4 {
                let slot = RefCell::new(Some(Stage::prepare(situation, seed).await));
                let make = || call(slot.borrow().as_ref().unwrap().locks.clone());
                let after = async |polls| {
                    let stage = slot.take().unwrap();
                    for left in stage.leftovers().await {
                        leftovers.push(format!("{name} {situation:?} {seed} {polls}: {left}"));
                    }
                    slot.replace(Some(Stage::prepare(situation, seed).await));
                };
                cancellations += sweep(make, after).await;
            }
        }
    }
    println!("{cancellations} cancellations");
    let shown = leftovers.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(leftovers.is_empty(), "{} left something:\n{shown}", leftovers.len());
    assert!(cancellations >= CANCELLATIONS_MIN, "only {cancellations} cancellations");
}
