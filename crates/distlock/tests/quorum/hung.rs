//! Nodes that are stopped, not dead: they accept what is sent and answer nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::backends::QuorumOptions;
use distlock::{Backend, Key, Label, Locks};
use distlock_core::{Answer, Ask, Claim, ClaimId, ReleaseOptions, ReleaseOutcome, Target};
use distlock_testkit::servers::RedisServer;
use tokio::time::{Instant, sleep};

use crate::support::{Servers, mortals, quorum_of};

const CLIENTS: usize = 8;
const KEYS: usize = 2;

/// How long each phase of a round lasts.
const PHASE: Duration = Duration::from_secs(3);

/// No key may go without a grant for longer.
const STALL_MAX: Duration = Duration::from_secs(2);

fn rounds() -> u32 {
    std::env::var("DISTLOCK_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The grants of one phase.
struct Counter {
    grants: AtomicU64,
    began: Instant,
    /// When a key was last granted, in microseconds since the beginning, by key.
    last: [AtomicU64; KEYS],
    longest_us: AtomicU64,
}

impl Counter {
    fn new() -> Arc<Self> {
        let (grants, longest_us) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { grants, began: Instant::now(), last: Default::default(), longest_us })
    }

    /// The key was granted, or the phase has ended.
    fn note(&self, key: usize) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap();
        let before = self.last[key].swap(now, Ordering::Relaxed);
        self.longest_us.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }

    /// Grants per second, and the longest time that a key went without one.
    fn figures(&self) -> (u64, Duration) {
        (0..KEYS).for_each(|key| self.note(key));
        let grants = self.grants.load(Ordering::Relaxed);
        let per_second = grants as f64 / self.began.elapsed().as_secs_f64();
        (per_second as u64, Duration::from_micros(self.longest_us.load(Ordering::Relaxed)))
    }
}

/// Clients take and release the keys for the time of a phase.
async fn contend(clients: &[Locks]) -> (u64, Duration) {
    let (counter, stop) = (Counter::new(), Arc::new(AtomicBool::new(false)));
    let task = |(task, locks): (usize, &Locks)| {
        let mutex = locks.mutex(format!("k{}", task % KEYS)).unwrap();
        let (counter, stop) = (Arc::clone(&counter), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = mutex.lock().await.unwrap();
                counter.grants.fetch_add(1, Ordering::Relaxed);
                counter.note(task % KEYS);
                guard.release().await.unwrap();
            }
        })
    };
    let tasks: Vec<_> = clients.iter().enumerate().map(task).collect();
    sleep(PHASE).await;
    let figures = counter.figures();
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    figures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contended_keys_are_granted_while_two_of_five_servers_hang() {
    let servers = Servers::start(5);
    // Each with connections of its own, so that the servers see them in different sequences.
    let client = |_| Locks::new(Arc::new(servers.quorum(QuorumOptions::default())));
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    for round in 0..rounds() {
        let (before, _) = contend(&clients).await;
        let first = round as usize % 4;
        servers[first..first + 2].iter().for_each(RedisServer::pause);
        let (during, stall) = contend(&clients).await;
        servers[first..first + 2].iter().for_each(RedisServer::resume);
        println!("grants per second: {before} before, {during} during; longest stall: {stall:?}");
        assert!(stall < STALL_MAX, "a key was not granted for {stall:?}");
        assert!(during * 10 >= before, "{during} grants per second after {before}");
    }
}

fn ask() -> Ask {
    let claim = Claim::new(Key::new("k").unwrap(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "me").unwrap(), Duration::from_secs(30))
}

/// Two nodes of five hang, and of the other three one has granted the key to a rival. Whether the
/// client knows that they hang or not, whether it asks them again or not: it waits for neither.
#[tokio::test(start_paused = true)]
async fn a_split_vote_is_given_up_and_released_without_waiting_for_hung_nodes() {
    let nodes = mortals(5);
    let (quorum, first, rival) = (quorum_of(&nodes), ask(), ask());
    assert!(matches!(quorum.acquire(&first).await, Ok(Answer::Granted { .. })));
    quorum.release_everywhere(&first.claim.key, first.claim.id).await;
    nodes[..2].iter().for_each(|node| node.set_hanging(true));
    nodes[2].acquire(&rival).await.unwrap();
    let started = Instant::now();
    let mut rounds = 0;
    while started.elapsed() < Duration::from_secs(5) {
        let (mine, began) = (ask(), Instant::now());
        let answer = quorum.acquire(&mine).await.unwrap();
        assert!(matches!(answer, Answer::Outvoted(_)), "{answer:?}");
        let outcome =
            quorum.release(&Target::Claim(mine.claim), ReleaseOptions::default()).await.unwrap();
        assert_eq!(outcome, ReleaseOutcome::WasHeld, "two nodes had it and two cannot say");
        let (took, known) = (began.elapsed(), started.elapsed() > Duration::from_secs(1));
        let bound = Duration::from_millis(if known { 0 } else { 200 });
        assert!(took <= bound, "round {rounds} took {took:?}");
        for node in &nodes[3..] {
            assert!(node.inspect(&rival.claim.key).await.unwrap().is_free(), "still held");
        }
        sleep(Duration::from_millis(7)).await;
        rounds += 1;
    }
    nodes[2].release(&Target::Claim(rival.claim), ReleaseOptions::default()).await.unwrap();
    assert!(matches!(quorum.acquire(&ask()).await, Ok(Answer::Granted { .. })));
}
