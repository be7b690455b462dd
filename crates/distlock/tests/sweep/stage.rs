//! What a call is dropped in front of: a store, a bad network, another client that is in the way.

use std::any::Any;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Memory;
use distlock::clock::{BootClock, TokioClock};
use distlock::{Backend, Backoff, Clock, Locks, Moment, WaitMode};
use distlock_testkit::{Faults, Faulty};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::calls::{Call, Rival, Running};
use crate::prop::Prop;
use crate::tombstones::Graves;

pub(crate) const KEY: &str = "swept/key";

/// Leases and places outlive every check, so nothing is left merely because it expired.
const TTL: Duration = Duration::from_secs(60);
const PLACE: Duration = Duration::from_secs(20);

/// When the client that is in the way leaves.
const MIDWAY: Duration = Duration::from_millis(60);

/// By when nothing is left after a drop: far less than a lease or a place.
const SETTLED_WITHIN: Duration = Duration::from_secs(4);

/// In which situation a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// No claim is in the way.
    Free,
    /// Another client holds, and releases midway: the grant is pushed.
    Pushed,
    /// The same, and pushes are lost: a heartbeat finds the grant.
    Unpushed,
    /// The same, without a queue.
    Polled,
    /// Another client holds all the time, and the call has a deadline.
    Deadline,
    /// Requests, answers and pushes are lost and repeated; another client releases midway.
    Chaos,
}

pub(crate) const SITUATIONS: [Situation; 6] = [
    Situation::Free,
    Situation::Pushed,
    Situation::Unpushed,
    Situation::Polled,
    Situation::Deadline,
    Situation::Chaos,
];

impl Situation {
    fn faults(self) -> Faults {
        let slow = Faults {
            delay: (1.0, Duration::from_millis(20)),
            delay_push: (0.5, Duration::from_millis(20)),
            late_after_drop: 1.0,
            late: Duration::from_millis(300),
            ..Faults::NONE
        };
        match self {
            Self::Unpushed => Faults { lose_push: 1.0, ..slow },
            Self::Chaos => Faults {
                lose_request: 0.2,
                lose_reply: 0.2,
                lose_push: 0.3,
                duplicate_push: 0.3,
                response_timeout: Duration::from_millis(100),
                ..slow
            },
            _ => slow,
        }
    }

    fn waiting(self) -> WaitMode {
        match self {
            Self::Polled => WaitMode::Poll(Backoff::fixed(Duration::from_millis(25))),
            _ => WaitMode::Queue,
        }
    }

    fn max_wait(self) -> Option<Duration> {
        (self == Self::Deadline).then_some(Duration::from_millis(120))
    }
}

/// A store, this client behind a slow network, and another client who may be in the way.
pub(crate) struct Stage {
    store: Memory,
    network: Faulty,
    locks: Locks,
    prop: Rc<Prop>,
    other: Locks,
    rival: Option<JoinHandle<()>>,
}

impl Stage {
    pub(crate) async fn prepare(
        call: &Call,
        situation: Situation,
        seed: u64,
        graves: Graves,
    ) -> Self {
        let clock = Arc::new(Napping(TokioClock::new()));
        let store = Memory::with_clock(clock.clone());
        let network = Faulty::new(graves.client(&store), seed, Faults::NONE);
        let locks = long_lived(&Locks::with_clock(Arc::new(network.clone()), clock.clone()));
        let other = long_lived(&Locks::with_clock(Arc::new(store.client()), clock));
        let prop = Rc::new((call.prepare)(locks.clone()).await);
        let rival = Self::rival(call, situation, &other).await;
        network.set(situation.faults());
        let change =
            |o: distlock::Options| o.wait_mode(situation.waiting()).max_wait(situation.max_wait());
        let locks = locks.configure(change).unwrap();
        Self { store, network, locks, prop, other, rival }
    }

    /// A claim that is in the way, and goes midway.
    pub(crate) async fn rival(
        call: &Call,
        situation: Situation,
        other: &Locks,
    ) -> Option<JoinHandle<()>> {
        let held: Box<dyn Any + Send> = match (call.rival, situation) {
            (Rival::Breaks, _) => return Some(tokio::spawn(break_midway(other.clone()))),
            (Rival::None, _) | (_, Situation::Free) => return None,
            (Rival::Mutex, _) => Box::new(other.mutex(KEY).unwrap().lock().await.unwrap()),
            (Rival::Reader, _) => Box::new(other.rwlock(KEY).unwrap().read().await.unwrap()),
            (Rival::Writer, _) => Box::new(other.rwlock(KEY).unwrap().write().await.unwrap()),
        };
        let stays = situation == Situation::Deadline;
        Some(tokio::spawn(async move {
            if stays {
                pending::<()>().await;
            }
            sleep(MIDWAY).await;
            drop(held);
        }))
    }

    /// The client that makes the call, and the one that may be in the way.
    pub(crate) fn clients(&self) -> [&Locks; 2] {
        [&self.locks, &self.other]
    }

    /// The call itself, not yet polled.
    pub(crate) fn play(&self, call: &Call) -> Running {
        (call.run)(self.locks.clone(), Rc::clone(&self.prop))
    }

    /// The call was dropped: everything else goes, too, and nothing must be left. Says what is.
    pub(crate) async fn leftovers(self) -> Vec<String> {
        let Self { store, network, locks, prop, other, rival } = self;
        if let Some(rival) = rival {
            rival.abort();
        }
        network.heal();
        let clean = Locks::new(Arc::new(store.client()));
        let prop = Rc::into_inner(prop).expect("the call was dropped");
        let mut found: Vec<String> = prop.leaves(&clean).await.err().into_iter().collect();
        let began = Instant::now();
        while !is_empty(&store, &[&locks, &other]).await && began.elapsed() < SETTLED_WITHIN {
            sleep(Duration::from_millis(50)).await;
        }
        // Whatever is still on its way arrives, and changes nothing.
        network.settled().await;
        sleep(Duration::from_millis(1)).await;
        let (left, stats) = (store.list("", None).await.unwrap().locks, locks.stats());
        if !left.is_empty() {
            found.push(format!("left at the store: {left:?}"));
        }
        if stats.held + stats.waiting + stats.releasing > 0 {
            found.push(format!("left in the keeper: {stats:?}"));
        }
        sleep(Duration::from_secs(3)).await;
        if locks.stats().tasks > 0 {
            found.push("a task is left".into());
        }
        found
    }
}

/// With leases and places that outlive every check.
pub(crate) fn long_lived(locks: &Locks) -> Locks {
    locks.configure(|o| o.ttl(TTL).place(PLACE)).unwrap()
}

/// The test's clock, which naps like that of a machine: the keeper looks four times a second.
#[derive(Debug)]
struct Napping(TokioClock);

impl Clock for Napping {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn nap(&self) -> Duration {
        BootClock.nap()
    }
}

async fn is_empty(store: &Memory, clients: &[&Locks]) -> bool {
    let idle = clients.iter().all(|locks| {
        let stats = locks.stats();
        stats.held + stats.waiting + stats.releasing == 0
    });
    idle && store.list("", None).await.unwrap().locks.is_empty()
}

/// An operator breaks whatever is held.
async fn break_midway(locks: Locks) {
    sleep(MIDWAY).await;
    for holder in locks.inspect(KEY).await.unwrap().holders {
        let _ = locks.break_hold(KEY, holder.fence).await;
    }
}
