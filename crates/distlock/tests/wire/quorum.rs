//! Redlock over three servers, each of which carries locks of ours, too.

use distlock::Locks;
use distlock_testkit::servers::RedisServer;

use crate::foreign::{Foreign, Library};
use crate::kinds::{Hold, Kind};
use crate::stage::{LONG, Naming, SOON, assert_only_counters, connect, is_held, ms};

const REDLOCKS: [Library; 2] = [Library::RedlockPy, Library::RedlockNpm];

/// What a server says of a key that is not there.
const FREE: &str = "$-1\r\n";

/// Three servers and a client of ours on each.
struct Three {
    servers: [RedisServer; 3],
    locks: [Locks; 3],
}

impl Three {
    fn start() -> Self {
        let servers = std::array::from_fn(|_| RedisServer::start());
        let locks = servers.each_ref().map(|server| connect(server, Naming::Bare));
        Self { servers, locks }
    }

    async fn redlock(&self, library: Library) -> Foreign {
        Foreign::start(library, &self.servers.each_ref()).await
    }

    async fn hold(&self, kind: Kind, nodes: usize) -> Vec<Hold> {
        let mut holds = Vec::new();
        for locks in &self.locks[..nodes] {
            holds.push(kind.try_take(locks, "jobs").await.unwrap());
        }
        holds
    }

    fn values(&self) -> [String; 3] {
        self.servers.each_ref().map(|server| server.command(&["GET", "jobs"]))
    }

    /// Waits until the values are as they should be. Redlock goes on as soon as a majority has
    /// answered; the last server may learn of it later.
    async fn become_so(&self, what: &str, so: impl Fn(&[String; 3]) -> bool) {
        let seen = async {
            while !so(&self.values()) {
                tokio::time::sleep(ms(2)).await;
            }
        };
        let seen = tokio::time::timeout(SOON, seen).await;
        assert!(seen.is_ok(), "{what}: {:?}", self.values());
    }

    async fn finish(self) {
        for (locks, server) in self.locks.iter().zip(&self.servers) {
            locks.close().await.unwrap();
            assert_only_counters(server);
        }
    }
}

#[tokio::test]
async fn our_holds_on_a_majority_exclude_redlock_and_it_leaves_nothing_behind() {
    let three = Three::start();
    for library in REDLOCKS {
        let mut foreign = three.redlock(library).await;
        for kind in Kind::ALL {
            for nodes in [2, 3] {
                let holds = three.hold(kind, nodes).await;
                let before = three.values();
                assert!(!foreign.take("jobs", LONG).await, "{library:?}: {kind:?} on {nodes}");
                let what = format!("{library:?} leaves nothing beside {kind:?} on {nodes}");
                three.become_so(&what, |values| *values == before).await;
                for hold in holds {
                    hold.release().await;
                }
            }
        }
    }
    three.finish().await;
}

#[tokio::test]
async fn our_hold_on_a_minority_neither_stops_redlock_nor_is_harmed_by_it() {
    let three = Three::start();
    for library in REDLOCKS {
        let mut foreign = three.redlock(library).await;
        for kind in Kind::ALL {
            let holds = three.hold(kind, 1).await;
            let ours = three.values()[0].clone();
            assert!(foreign.take("jobs", LONG).await, "{library:?} beside {kind:?}");
            for locks in &three.locks[1..] {
                assert!(is_held(&kind.try_take(locks, "jobs").await), "{library:?}, {kind:?}");
            }
            assert!(foreign.release("jobs").await, "{library:?} beside {kind:?}");
            let what = format!("{library:?} releases its own beside {kind:?}");
            three.become_so(&what, |values| *values == [ours.as_str(), FREE, FREE]).await;
            for hold in holds {
                hold.release().await;
            }
        }
    }
    three.finish().await;
}

#[tokio::test]
async fn redlock_on_all_three_excludes_us_on_each() {
    let three = Three::start();
    for library in REDLOCKS {
        let mut foreign = three.redlock(library).await;
        assert!(foreign.take("jobs", LONG).await);
        three.become_so("taken", |values| values.iter().all(|value| value != FREE)).await;
        for locks in &three.locks {
            for kind in Kind::ALL {
                assert!(is_held(&kind.try_take(locks, "jobs").await), "{kind:?}");
            }
        }
        assert!(foreign.release("jobs").await);
        three.become_so("released", |values| values.iter().all(|value| value == FREE)).await;
        for hold in three.hold(Kind::Mutex, 3).await {
            hold.release().await;
        }
    }
    three.finish().await;
}
