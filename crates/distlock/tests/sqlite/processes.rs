//! One file and several processes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::Locks;
use distlock::backends::Sqlite;
use distlock_core::{Backend, Push, ReleaseOutcome};
use distlock_testkit::conformance::Subject;
use futures_util::StreamExt;

use crate::other_process::{FileClock, Peer};
use crate::support::{Place, ask, granted, queued, release, until, waits};

/// A file whose clients are in this process and in two others, by turns.
struct Processes {
    place: Place,
    clock: FileClock,
    peers: [Arc<Peer>; 2],
    turn: AtomicUsize,
}

impl Processes {
    fn start() -> Self {
        let place = Place::new();
        let clock = FileClock::new(place.folder.path().join("clock"));
        let peers = [(); 2].map(|()| Peer::start(&place.file, Some(&clock)));
        Self { place, clock, peers, turn: AtomicUsize::new(0) }
    }
}

impl Subject for Processes {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        let client: Arc<dyn Backend> = match self.peers.get(turn % 3) {
            Some(peer) => peer.client(),
            None => {
                let clock = Arc::new(self.clock.clone());
                Arc::new(Sqlite::with_clock(&self.place.file, "one", clock).unwrap())
            }
        };
        Box::pin(async { client })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.clock.advance(while_) })
    }
}

distlock_testkit::conformance_in_a_row!(kit, Processes::start());

#[tokio::test]
async fn a_waiter_in_another_process_is_told_at_once() {
    let place = Place::new();
    let (here, peer) = (place.client(), Peer::start(&place.file, None));
    let there = peer.client();
    let mut pushes = there.pushes();
    let (holder, waiter) = (ask("k"), queued("k"));
    granted(&here, &holder).await;
    let place_taken = waits(&*there, &waiter).await;
    release(&here, &holder).await;
    // No client sends a heartbeat here, so only a push can tell.
    let Some(Push::Granted { id, ticket, .. }) = pushes.next().await else { panic!("no grant") };
    assert_eq!((id, ticket), (waiter.claim.id, place_taken));
}

#[tokio::test]
async fn processes_do_not_overlap_and_lose_no_turn() {
    const ROUNDS: u32 = 15;
    let place = Place::new();
    let peers = [(); 3].map(|()| Peer::start(&place.file, None));
    let count = place.folder.path().join("count");
    std::fs::write(&count, "0").unwrap();
    let turns = peers.iter().map(|peer| {
        let (locks, count) = (Locks::new(peer.client()), count.clone());
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locks.mutex("count").unwrap().lock().await.unwrap();
                let before: u32 = std::fs::read_to_string(&count).unwrap().parse().unwrap();
                tokio::task::yield_now().await;
                std::fs::write(&count, (before + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    for turn in turns.collect::<Vec<_>>() {
        turn.await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(&count).unwrap(), (3 * ROUNDS).to_string());
}

#[tokio::test]
async fn processes_that_make_the_file_at_the_same_time_make_one() {
    let place = Place::new();
    let peers = [(); 4].map(|()| Peer::start(&place.file, None));
    let clients = peers.each_ref().map(Peer::client);
    let names = futures_util::future::join_all(clients.iter().map(|client| client.probe())).await;
    let names: Vec<_> = names.into_iter().map(|health| health.unwrap().identity).collect();
    assert!(names.windows(2).all(|pair| pair[0] == pair[1]), "{names:?}");
    let left: Vec<_> = std::fs::read_dir(place.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_process_killed_in_the_middle_of_a_transaction_leaves_nothing_broken() {
    let place = Place::new();
    let here = place.client();
    let mut last = granted(&here, &ask("first")).await;
    for round in 0..6 {
        let peer = Peer::start(&place.file, None);
        for key in ["a", "b", "c"] {
            peer.hammer(&ask(&format!("{key}{round}")));
        }
        let shell = place.shell();
        let counter = || place.number("SELECT counter FROM store");
        let before = counter();
        until("the peer takes locks", || counter() > before).await;
        peer.kill();
        let sound: String =
            shell.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        // Whatever it held is held until its lease ends; everything else goes on.
        let other = ask(&format!("other{round}"));
        let fence = granted(&here, &other).await;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        assert_eq!(release(&here, &other).await, ReleaseOutcome::WasHeld);
    }
}

#[tokio::test]
async fn the_socket_of_a_dead_client_is_removed_by_the_next_one() {
    let place = Place::new();
    let peer = Peer::start(&place.file, None);
    let there = peer.client();
    granted(&*there, &ask("k")).await;
    until("the peer listens", || place.sockets().len() == 1).await;
    peer.kill();
    let [stale] = &place.sockets()[..] else { panic!("a killed process removes nothing") };
    let aged = std::process::Command::new("touch").args(["-d", "1 hour ago"]).arg(stale).status();
    assert!(aged.unwrap().success());
    let here = place.client();
    let _pushes = here.pushes();
    until("the stale one goes, our own comes", || {
        let sockets = place.sockets();
        sockets.len() == 1 && !sockets.contains(stale)
    })
    .await;
}

#[tokio::test]
async fn a_client_that_is_dropped_takes_its_socket_and_its_thread_along() {
    let place = Place::new();
    let here = place.client();
    let _pushes = here.pushes();
    granted(&here, &ask("k")).await;
    assert_eq!(place.sockets().len(), 1);
    drop(here);
    // The thread removes it when it ends.
    until("the socket goes", || place.sockets().is_empty()).await;
}
